#include "exec/thread_choice.h"

#include <algorithm>

namespace stet::exec {
namespace {

constexpr double kWeight = 0.25;     // of a new measurement in the average
constexpr double kMuchLonger = 2.0;  // than the average, so many times in a row: look at once
constexpr std::uint32_t kSlowRuns = 2;
constexpr double kClearlyFaster = 0.9;     // than the way in use: change to it
constexpr std::uint32_t kSpacingMin = 64;  // a trial costs a run of perhaps twice the time
constexpr std::uint32_t kSpacingMax = 1024;

}  // namespace

void ThreadChoice::Way::add(double measured) {
    seconds = seconds == 0.0 ? measured : seconds + kWeight * (measured - seconds);
}

int ThreadChoice::next() {
    if (threads_ == 1) return 1;
    is_trial_ = until_trial_ == 0;
    return uses_one_ != is_trial_ ? 1 : threads_;
}

void ThreadChoice::done(double seconds) {
    if (threads_ == 1) return;
    Way& used = uses_one_ ? one_ : all_;
    Way& other = uses_one_ ? all_ : one_;
    if (is_trial_) {
        other.seconds = seconds;
        const bool is_faster = seconds < kClearlyFaster * used.seconds;
        if (is_faster) uses_one_ = !uses_one_;
        // A trial that loses makes the next one rarer: it may have cost much.
        spacing_ = is_faster ? kSpacingMin : std::min(2 * spacing_, kSpacingMax);
        until_trial_ = spacing_;
        return;
    }
    until_trial_ -= std::min(until_trial_, 1U);
    // The first run of a graph warms caches up, and one slow run may be anything.
    if (runs_++ == 0) return;
    const bool is_slow = used.seconds != 0.0 && seconds > kMuchLonger * used.seconds;
    slow_runs_ = is_slow ? slow_runs_ + 1 : 0;
    if (!is_slow) used.add(seconds);
    if (slow_runs_ < kSlowRuns) return;
    slow_runs_ = 0;
    used.seconds = seconds;
    until_trial_ = 0;
}

}  // namespace stet::exec
