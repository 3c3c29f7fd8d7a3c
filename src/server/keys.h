// API keys. Only hashes are kept, and a comparison takes as long for a wrong key as for a right
// one. A tenant is a key: each has conversations and reuse of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "server/http.h"

namespace stet::server {

class Keys {
  public:
    // Keys separated by commas.
    explicit Keys(std::string_view list);

    bool is_open() const { return hashes_.empty(); }
    // Of all keys; {""} when there are none.
    std::vector<std::string> tenants() const;
    // The tenant of a request: "" when no keys are set, nothing when its key is missing or wrong.
    // Takes Authorization: Bearer and X-Api-Key.
    std::optional<std::string> tenant_of(const Request& request) const;

  private:
    std::vector<Hash256> hashes_;
};

}  // namespace stet::server
