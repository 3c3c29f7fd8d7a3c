// Times of tests are written as people read them.
#pragma once

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>

namespace stet::test {

// "2026-07-26T12:00:00" in the local time zone, which strftime_now() uses.
inline std::chrono::system_clock::time_point local_time(const std::string& text) {
    std::tm time{};
    if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) std::abort();
    time.tm_isdst = -1;
    return std::chrono::system_clock::from_time_t(std::mktime(&time));
}

}  // namespace stet::test
