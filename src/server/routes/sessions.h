// What the routes of sessions share.
#pragma once

#include <functional>

#include "server/context.h"
#include "server/json.h"
#include "store/store.h"

namespace stet::server {

// Runs `work` with the tenant's store, on the keeper's thread; what it returns is the answer unless
// it sent one.
using StoreWork = std::function<Status(Call&, Keeper&, store::Store&)>;
Status with_store(Call& call, StoreWork work);

Json session_json(const store::SessionInfo& session);

}  // namespace stet::server
