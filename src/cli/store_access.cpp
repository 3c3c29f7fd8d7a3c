#include "cli/store_access.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string_view>

#include "base/env.h"
#include "base/try.h"
#include "base/units.h"
#include "store/sealing.h"

namespace stet::cli {
namespace {

constexpr std::array<std::string_view, 32> kAdjectives = {
    "amber", "brave",  "brisk", "calm",  "clear", "crisp", "early", "fair",
    "fleet", "gentle", "glad",  "grand", "green", "happy", "hazel", "honest",
    "keen",  "kind",   "light", "lucky", "mild",  "neat",  "noble", "plain",
    "proud", "quick",  "quiet", "rapid", "sharp", "snowy", "sunny", "warm"};
constexpr std::array<std::string_view, 32> kNouns = {
    "acorn", "badger", "beech", "birch",  "brook",  "cedar",  "cloud",  "comet",
    "coral", "crane",  "delta", "ember",  "falcon", "fern",   "finch",  "harbor",
    "heron", "island", "lark",  "maple",  "meadow", "otter",  "pebble", "pine",
    "raven", "river",  "robin", "spruce", "stone",  "valley", "willow", "wren"};

}  // namespace

void add_store_options(CLI::App& verb, StoreFlags& flags, const std::string& group) {
    verb.add_option("--store", flags.directory, "Directory of the sessions")->group(group);
    verb.add_option("--store-key-file", flags.key_file,
                    "Key of an encrypted store (openssl rand -hex 32)")
        ->envname("STET_STORE_KEY_FILE")
        ->group(group);
}

std::filesystem::path store_directory(const StoreFlags& flags) {
    return flags.directory.empty() ? store::default_store_directory()
                                   : std::filesystem::path(flags.directory);
}

Result<std::unique_ptr<store::Store>> open_store(const StoreFlags& flags, bool read_only,
                                                 const StoreLimits& limits) {
    store::StoreOptions options;
    options.read_only = read_only;
    if (!limits.disk.empty()) {
        STET_ASSIGN(options.disk_limit_bytes, parse_size(limits.disk));
    }
    if (!limits.disk_free.empty()) {
        STET_ASSIGN(options.free_floor_bytes, parse_size(limits.disk_free));
    }
    if (!limits.ttl.empty()) {
        STET_ASSIGN(options.ttl, parse_duration(limits.ttl));
    }
    const char* key = std::getenv("STET_STORE_KEY");
    STET_ASSIGN(options.key,
                store::store_key(Env::posix(), key == nullptr ? "" : key, flags.key_file));
    auto store = store::Store::open(Env::posix(), store_directory(flags), options);
    if (store.is_ok() || store.status().code() != Code::conflict) return store;
    return store.status().with_context("the store is taken (--store DIR names another)");
}

Result<std::string> fresh_session_name(store::Store& store) {
    constexpr int kTries = 100;
    std::random_device device;
    for (int i = 0; i < kTries; ++i) {
        std::string name = fmt::format("{}-{}-{}", kAdjectives.at(device() % kAdjectives.size()),
                                       kNouns.at(device() % kNouns.size()), 100 + device() % 900);
        const auto found = store.find(name);
        if (found.is_ok()) continue;
        if (found.status().code() == Code::not_found) return name;
        return found.status();
    }
    return Status(Code::resource_exhausted,
                  fmt::format("found no free name for a session in {} tries; give one with "
                              "--session NAME, or remove old ones with stet session rm",
                              kTries));
}

}  // namespace stet::cli
