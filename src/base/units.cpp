#include "base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace stet {
namespace {

// Bytes in a unit; 0 if there is none of that name.
double unit_bytes(std::string_view unit) {
    constexpr std::string_view kPrefixes = "KMGT";
    if (unit.empty() || unit == "B") return 1.0;
    const std::string_view rest = unit.substr(1);
    const char prefix = unit.front() == 'k' ? 'K' : unit.front();
    const std::size_t power = kPrefixes.find(prefix);
    if (power == std::string_view::npos) return 0.0;
    if (rest.empty() || rest == "iB") return std::pow(1024.0, static_cast<double>(power + 1));
    return rest == "B" ? std::pow(1000.0, static_cast<double>(power + 1)) : 0.0;
}

}  // namespace

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
    std::int64_t count = 0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, count);
    std::int64_t seconds = 0;
    if (error == std::errc() && end + 1 == last) {
        seconds = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
    }
    constexpr std::int64_t kMostSeconds = std::numeric_limits<std::int64_t>::max() / 1000000000;
    if (seconds == 0 || count <= 0 || count > kMostSeconds / seconds) {
        return Status(Code::invalid_argument,
                      fmt::format("'{}' is no duration: give a number above 0 and s, m, h or d, "
                                  "as in 30d",
                                  text));
    }
    return std::chrono::nanoseconds(std::chrono::seconds(count * seconds));
}

Result<std::uint64_t> parse_size(std::string_view text) {
    double count = 0.0;
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, count, std::chars_format::fixed);
    const double unit =
        error == std::errc() ? unit_bytes({end, static_cast<std::size_t>(last - end)}) : 0.0;
    constexpr double kMost = 9e18;
    if (unit == 0.0 || !(count >= 0.0) || count > kMost / unit) {
        return Status(
            Code::invalid_argument,
            fmt::format("'{}' is no size: give a number and K, M, G or T, as in 20G", text));
    }
    return static_cast<std::uint64_t>(count * unit);
}

}  // namespace stet
