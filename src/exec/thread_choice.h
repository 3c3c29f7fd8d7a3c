// How many threads the next run of a small graph uses: all, or one.
//
// ggml's threads meet after every node. Where other processes want the processors too, each meeting
// waits for a thread that isn't running, and two threads become many times slower than one
// (docs/internals/speed.md). Nothing tells beforehand, so both are timed: now and then, and at once
// when a run takes much longer than it used to.
//
// Thread rules: one thread at a time.
#pragma once

#include <cstdint>

namespace stet::exec {

class ThreadChoice {
  public:
    explicit ThreadChoice(int threads) : threads_(threads) {}

    // The number of threads for the next run: 1 or all.
    int next();
    // What that run took. Call after each next().
    void done(double seconds);

  private:
    struct Way {
        double seconds = 0.0;  // a run, averaged over the last few; 0: not known
        void add(double measured);
    };

    int threads_;
    Way all_, one_;
    bool uses_one_ = false;  // the way chosen
    bool is_trial_ = false;  // this run tries the other way
    std::uint32_t runs_ = 0;
    std::uint32_t slow_runs_ = 0;    // in a row
    std::uint32_t until_trial_ = 2;  // the first run is slower than others to come
    std::uint32_t spacing_ = 64;     // runs between trials
};

}  // namespace stet::exec
