// What the keeper does when nothing waits: looks for damage, and gives space back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "server/keeper.h"

namespace stet::server {
namespace {

constexpr std::chrono::nanoseconds kBetweenCollections = std::chrono::minutes(10);

}  // namespace

// About once a second, between what is asked for; stops at once when more of that comes.
void Keeper::keep_up() {
    const auto is_wanted = [this] {
        const std::lock_guard lock(mutex_);
        return is_stopping_ || !tasks_.empty();
    };
    for (auto& [id, tenant] : tenants_) {
        if (is_wanted()) return;
        scrub(tenant);
        if (is_wanted()) return;
        collect(tenant);
    }
}

// A stretch of the store, which all of the tenants' stores share the rate for. Sessions with damage
// are no longer offered to prompts; the next turn of each writes anew what it lacks.
void Keeper::scrub(Tenant& tenant) {
    if (options_.scrub_bytes_per_second == 0) return;
    const std::uint64_t bytes = options_.scrub_bytes_per_second / tenants_.size() + 1;
    const auto verified = tenant.store->verify(tenant.scrubbed_to, bytes);
    if (!verified) {
        options_.warn(
            fmt::format("the store could not be verified: {}", verified.status().to_string()));
        return;
    }
    tenant.scrubbed_to = verified->next;
    for (const std::string& damage : verified->damages) {
        options_.warn(
            fmt::format("damaged state: {}; sessions affected: {}; they are computed "
                        "again from their tokens",
                        damage, fmt::join(verified->sessions, ", ")));
    }
    const std::lock_guard lock(mutex_);
    stats_.upkeep.scrubbed_bytes += verified->bytes;
    stats_.upkeep.damaged_records += verified->damages.size();
    for (const std::string& session : verified->sessions) set_lacking(tenant, session);
}

void Keeper::collect(Tenant& tenant) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds ttl = options_.store.ttl;
    const bool is_wanted = tenant.may_have_garbage || ttl.count() != 0;
    const auto between =
        ttl.count() == 0 ? kBetweenCollections : std::min(kBetweenCollections, ttl);
    if (tenant.collected_at == std::chrono::steady_clock::time_point()) tenant.collected_at = now;
    if (!is_wanted || now - tenant.collected_at < between) return;
    tenant.collected_at = now;
    const auto reclaimed = tenant.store->collect_garbage();
    if (!reclaimed) {
        options_.warn(fmt::format("garbage of the store could not be collected: {}",
                                  reclaimed.status().to_string()));
        return;
    }
    tenant.may_have_garbage = false;
    {
        const std::lock_guard lock(mutex_);
        ++stats_.upkeep.collections;
        stats_.upkeep.collected_bytes += reclaimed->bytes;
        stats_.upkeep.expired_sessions += reclaimed->sessions;
    }
    if (reclaimed->sessions == 0) return;
    const auto left = tenant.store->list();
    if (!left) return;
    std::set<std::string, std::less<>> names;
    for (const auto& session : *left) names.insert(session.name);
    const std::lock_guard lock(mutex_);
    std::erase_if(tenant.index, [&](const auto& entry) { return !names.contains(entry.first); });
}

}  // namespace stet::server
