// JSON as clients send it: parsed within limits, read by field with types and ranges.
//
// A Fields reads members of one object and remembers the first thing that is wrong, so that a
// parser is a list of fields followed by one check. Not for several threads.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stet/status.h"

namespace stet::server {

using Json = nlohmann::ordered_json;  // keys stay in the order of the documentation

inline constexpr std::uint32_t kJsonDepthMax = 64;

// An object. invalid_argument: not JSON, deeper than kJsonDepthMax, not an object, not UTF-8.
Result<Json> parse_object(std::string_view text);
// One line. Bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);

class Fields {
  public:
    // `where` goes before names in messages ("messages[2].").
    explicit Fields(const Json& object, std::string where = "");

    // A member that is missing or null leaves `value` as it is.
    void number(std::string_view name, float& value, float min, float max);
    void integer(std::string_view name, std::int64_t& value, std::int64_t min, std::int64_t max);
    void flag(std::string_view name, bool& value);
    void text(std::string_view name, std::string& value);
    // A string, or a list of strings.
    void texts(std::string_view name, std::vector<std::string>& value, std::size_t count_max);

    // Null when it is missing or null.
    const Json* find(std::string_view name) const;
    void fail(std::string_view name, std::string_view expected);
    void require(std::string_view name);
    const Status& status() const { return status_; }

  private:
    const Json& object_;
    std::string where_;
    Status status_;
};

}  // namespace stet::server
