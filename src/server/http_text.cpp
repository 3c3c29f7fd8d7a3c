#include "server/http_text.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace stet::server {
namespace {

struct StatusName {
    int status;
    std::string_view name;
};
constexpr std::array kStatusNames = {
    StatusName{200, "OK"},
    StatusName{201, "Created"},
    StatusName{204, "No Content"},
    StatusName{400, "Bad Request"},
    StatusName{401, "Unauthorized"},
    StatusName{403, "Forbidden"},
    StatusName{404, "Not Found"},
    StatusName{405, "Method Not Allowed"},
    StatusName{408, "Request Timeout"},
    StatusName{409, "Conflict"},
    StatusName{413, "Payload Too Large"},
    StatusName{422, "Unprocessable Entity"},
    StatusName{429, "Too Many Requests"},
    StatusName{431, "Request Header Fields Too Large"},
    StatusName{499, "Client Closed Request"},
    StatusName{500, "Internal Server Error"},
    StatusName{501, "Not Implemented"},
    StatusName{503, "Service Unavailable"},
    StatusName{504, "Gateway Timeout"},
    StatusName{507, "Insufficient Storage"},
};

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::string unescape(std::string_view text, bool plus_is_space) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
            hex_digit(text[i + 2]) >= 0) {
            plain += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
            i += 2;
        } else {
            plain += plus_is_space && text[i] == '+' ? ' ' : text[i];
        }
    }
    return plain;
}

}  // namespace

std::string_view reason_phrase(int status) {
    const auto* at = std::find_if(kStatusNames.begin(), kStatusNames.end(),
                                  [&](const StatusName& row) { return row.status == status; });
    return at == kStatusNames.end() ? "Status" : at->name;
}

std::string lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
}

void split_target(std::string_view target, Request& request) {
    const std::size_t mark = target.find('?');
    request.path = unescape(target.substr(0, mark), false);
    if (mark == std::string_view::npos) return;
    std::string_view rest = target.substr(mark + 1);
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const std::size_t equals = part.find('=');
        request.query.emplace_back(
            unescape(part.substr(0, equals), true),
            equals == std::string_view::npos ? "" : unescape(part.substr(equals + 1), true));
    }
}

std::string random_hex(std::size_t bytes) {
    std::vector<unsigned char> raw(bytes);
    STET_CHECK(RAND_bytes(raw.data(), static_cast<int>(bytes)) == 1);
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : raw) {
        text += kDigits[byte >> 4U];
        text += kDigits[byte & 15U];
    }
    return text;
}

std::string new_request_id() {
    constexpr std::size_t kIdBytes = 8;
    return random_hex(kIdBytes);
}

bool is_plain_id(std::string_view text) {
    constexpr std::size_t kIdMax = 64;
    return !text.empty() && text.size() <= kIdMax &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
           });
}

std::string_view Request::header(std::string_view name) const {
    const auto at = std::find_if(headers.begin(), headers.end(),
                                 [&](const auto& header) { return header.first == name; });
    return at == headers.end() ? std::string_view() : std::string_view(at->second);
}

std::string_view Request::query_value(std::string_view name) const {
    const auto at = std::find_if(query.begin(), query.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    return at == query.end() ? std::string_view() : std::string_view(at->second);
}

}  // namespace stet::server
