// Stopwatches that start when they are made and keep running.
#pragma once

#include <time.h>

#include <chrono>

namespace stet {

// Time that passed.
class Stopwatch {
  public:
    double seconds() const { return passed<std::ratio<1>>(); }
    double ms() const { return passed<std::milli>(); }

  private:
    template <typename Unit>
    double passed() const {
        return std::chrono::duration<double, Unit>(std::chrono::steady_clock::now() - start_)
            .count();
    }

    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Processor time of the thread that made it: what else the machine does counts little.
class ThreadStopwatch {
  public:
    double seconds() const { return now() - start_; }
    double ms() const { return seconds() * 1e3; }

  private:
    static double now() {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    }

    double start_ = now();
};

}  // namespace stet
