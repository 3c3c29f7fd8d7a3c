// The parts of HTTP that are only text: targets, names of statuses, ids of requests.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace stet::server {

std::string_view reason_phrase(int status);
std::string lower_case(std::string_view text);  // ASCII
// Fills path and query. An escape that is none stays as it is.
void split_target(std::string_view target, Request& request);
std::string new_request_id();               // 16 hexadecimal digits
bool is_plain_id(std::string_view text);    // [A-Za-z0-9._-]{1,64}
std::string random_hex(std::size_t bytes);  // not guessable

}  // namespace stet::server
