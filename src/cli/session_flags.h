// What the verbs of `stet session` share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.h"
#include "cli/store_access.h"
#include "cli/verbs.h"
#include "stet/status.h"
#include "store/store.h"

namespace stet::cli {

struct SessionFlags {
    StoreFlags store;
    bool json = false;
    bool dry_run = false;
    bool off = false;
    bool force = false;
    bool zstd = false;
    std::string model;
    std::string ttl;
    std::string name;
    std::string other;
    std::vector<std::string> names;
    std::optional<std::uint64_t> turn;
};

// The session of that name, or the one whose name begins so. invalid_argument when several do.
Result<std::string> resolve_session(store::Store& store, const std::string& typed);

// The JSON object, or the text with a line end.
Status answer(const SessionFlags& flags, Terminal& terminal, const Json& json,
              std::string_view text);

// session_care.cpp: what keeps a store in order.
Status pin_session(const SessionFlags& flags, Terminal& terminal);
Status show_usage(const SessionFlags& flags, Terminal& terminal);
Status collect_garbage(const SessionFlags& flags, Terminal& terminal);
Status verify_store(const SessionFlags& flags, Terminal& terminal);

// session_files.cpp
Status export_session(const SessionFlags& flags, Terminal& terminal);
Status import_session(const SessionFlags& flags, Terminal& terminal);

}  // namespace stet::cli
