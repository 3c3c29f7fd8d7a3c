#include "base/quote.h"

#include <fmt/format.h>

namespace stet {
namespace {

constexpr std::size_t kQuotedMax = 80;

}  // namespace

std::string quote_name(std::string_view name) {
    std::string text = "\"";
    for (const char c : name.substr(0, kQuotedMax)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
            text += fmt::format("\\x{:02x}", byte);
        } else {
            text += c;
        }
    }
    text += name.size() > kQuotedMax ? "...\"" : "\"";
    return text;
}

}  // namespace stet
