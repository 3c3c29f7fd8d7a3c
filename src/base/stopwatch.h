// Time that passed since it was made; it keeps running.
#pragma once

#include <chrono>

namespace stet {

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

}  // namespace stet
