#include "cli/doctor_checks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "base/env.h"
#include "cli/report.h"
#include "exec/kernel.h"
#include "store/sealing.h"
#include "store/store.h"

namespace stet::cli {
namespace {

namespace fs = std::filesystem;
using Outcome = Finding::Outcome;

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// 0: no number, which "max" is not.
std::uint64_t number_in(std::string_view text) {
    std::uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// Of the control groups of this process and all above them, version 2 and 1.
std::uint64_t group_limit() {
    std::uint64_t limit = 0;
    const auto take = [&](const fs::path& path) {
        const std::uint64_t found = number_in(first_line(path));
        constexpr std::uint64_t kNone = 1ULL << 60U;  // version 1 writes a huge number instead
        if (found != 0 && found < kNone && (limit == 0 || found < limit)) limit = found;
    };
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const std::size_t colon = line.rfind(':');
        if (colon == std::string::npos) continue;
        const bool is_v2 = line.starts_with("0::");
        if (!is_v2 && line.find(":memory") == std::string::npos) continue;
        const fs::path root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        const char* name = is_v2 ? "memory.max" : "memory.limit_in_bytes";
        fs::path group = fs::path(line.substr(colon + 1)).relative_path();
        for (; !group.empty(); group = group.parent_path()) take(root / group / name);
        take(root / name);
    }
    return limit;
}

constexpr std::array<const char*, 12> kFeatures = {
    "avx2",     "fma",         "f16c",        "avx512f", "avx512bw", "avx512_vnni",
    "avx_vnni", "avx512_bf16", "avx512_fp16", "asimd",   "asimddp",  "sve"};

std::string cpu_features() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        line += ' ';
        std::vector<std::string> found;
        for (const char* feature : kFeatures) {
            if (line.find(fmt::format(" {} ", feature)) != std::string::npos) {
                found.emplace_back(feature);
            }
        }
        return fmt::format("{}", fmt::join(found, " "));
    }
    return {};
}

// File systems on which a sync means little, or not what it means elsewhere.
std::string file_system_name(const fs::path& path, bool& is_doubtful) {
    static const std::map<long, std::pair<const char*, bool>> kNames = {
        {0xEF53, {"ext4", false}},      {0x58465342, {"xfs", false}},
        {0x9123683E, {"btrfs", false}}, {0x2FC12FC1, {"zfs", false}},
        {0xF2F52010, {"f2fs", false}},  {0x794C7630, {"overlay", false}},
        {0x01021994, {"tmpfs", true}},  {0x858458F6, {"ramfs", true}},
        {0x6969, {"nfs", true}},        {0xFF534D42, {"cifs", true}},
        {0xFE534D42, {"smb2", true}},   {0x65735546, {"fuse", true}},
        {0x01021997, {"9p", true}},     {0x4D44, {"vfat", true}}};
    struct statfs facts {};
    if (::statfs(path.c_str(), &facts) != 0) return "unknown";
    const auto at = kNames.find(static_cast<long>(facts.f_type));
    if (at == kNames.end()) return fmt::format("type {:#x}", static_cast<long>(facts.f_type));
    is_doubtful = at->second.second;
    return at->second.first;
}

// Writes, syncs and removes a file, as a commit would.
Status try_writing(const fs::path& directory) {
    Env& env = Env::posix();
    const fs::path path = directory / fmt::format(".doctor-{}", ::getpid());
    auto file = env.open(path, OpenMode::create);
    if (!file) return file.status();
    const std::array<std::byte, 4096> block{};
    Status status = (*file)->write_at(0, block);
    if (status) status = (*file)->sync();
    if (status) status = env.sync_directory(directory);
    const Status removed = env.remove(path);
    return status ? removed : status;
}

void check_catalogue(const fs::path& directory, const server::Settings& settings,
                     Findings& findings) {
    const auto key = store::store_key(Env::posix(), settings.store_key, settings.store_key_file);
    if (!key) {
        findings.push_back({Outcome::fail, "store key", key.status().to_string(), ""});
        return;
    }
    store::StoreOptions options;
    options.read_only = true;
    options.key = *key;
    const auto store = store::Store::open(Env::posix(), directory, options);
    const auto list =
        store ? (*store)->list() : Result<std::vector<store::SessionInfo>>(store.status());
    if (list) {
        findings.push_back(
            {Outcome::ok, "catalogue",
             fmt::format("{} session{}{}", list->size(), list->size() == 1 ? "" : "s",
                         (*store)->is_encrypted() ? ", encrypted" : ""),
             ""});
    } else {
        findings.push_back({Outcome::fail, "catalogue", list.status().to_string(),
                            "keep a copy of the directory, then stet session verify"});
    }
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
    constexpr std::array<std::string_view, 3> kNames = {"ok", "warn", "fail"};
    return kNames.at(static_cast<std::size_t>(outcome));
}

std::uint64_t MemoryLimits::usable_bytes() const {
    return group_bytes == 0 ? machine_bytes : std::min(machine_bytes, group_bytes);
}

MemoryLimits memory_limits() {
    MemoryLimits limits;
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    limits.machine_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);) {
        constexpr std::string_view kName = "MemAvailable:";
        if (!line.starts_with(kName)) continue;
        const std::size_t digit = line.find_first_of("0123456789");
        if (digit != std::string::npos) {
            limits.available_bytes = number_in(std::string_view(line).substr(digit)) << 10U;
        }
    }
    limits.group_bytes = group_limit();
    return limits;
}

void check_cpu(const server::Settings& settings, Findings& findings) {
    const auto targets = exec::kernel_targets();
    const std::string features = cpu_features();
    const std::string text =
        fmt::format("kernels for {}; {}", targets.front(),
                    features.empty() ? "no vector extensions are reported" : features);
    const bool is_slow = targets.size() == 1;
    findings.push_back({is_slow ? Outcome::warn : Outcome::ok, "cpu", text,
                        is_slow ? "only the plainest kernels run here; expect low speed" : ""});
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    const std::string plan =
        settings.threads == 0
            ? fmt::format("{} cores, a thread for each", cores)
            : fmt::format("{} cores, {} threads (--threads)", cores, settings.threads);
    const bool is_crowded = settings.threads > cores;
    findings.push_back({is_crowded ? Outcome::warn : Outcome::ok, "threads", plan,
                        is_crowded ? "more threads than cores slow each other down" : ""});
}

void check_memory(const MemoryLimits& limits, Findings& findings) {
    std::string text = fmt::format("{}, {} available", format_bytes(limits.machine_bytes),
                                   format_bytes(limits.available_bytes));
    if (limits.group_bytes != 0) {
        text += fmt::format(", the control group allows {}", format_bytes(limits.group_bytes));
    }
    // Unless --ram says otherwise, state takes half of the machine, whatever the group says.
    const bool is_tight = limits.group_bytes != 0 && limits.group_bytes < limits.machine_bytes;
    findings.push_back({is_tight ? Outcome::warn : Outcome::ok, "memory", text,
                        is_tight ? "bound the state below that limit with --ram" : ""});
}

void check_store(const fs::path& directory, const server::Settings& settings, Findings& findings) {
    Env& env = Env::posix();
    if (settings.durability == "none") {
        findings.push_back({Outcome::warn, "store", "nothing is kept (--durability none)",
                            "conversations are lost when the server ends"});
        return;
    }
    // What is not there yet will be made: its parent decides.
    fs::path place = directory;
    while (!env.info(place) && place.has_relative_path()) place = place.parent_path();
    const bool is_there = place == directory;
    struct stat facts {};
    if (is_there && ::stat(directory.c_str(), &facts) == 0 && (facts.st_mode & 077U) != 0) {
        findings.push_back({Outcome::warn, "permissions",
                            fmt::format("{} has mode {:o}: others may read conversations",
                                        directory.string(), facts.st_mode & 0777U),
                            fmt::format("chmod 700 {}", shell_quoted(directory.string()))});
    } else if (is_there) {
        findings.push_back({Outcome::ok, "permissions", "only you may read conversations", ""});
    }
    const Status writable = try_writing(place);
    findings.push_back({writable ? Outcome::ok : Outcome::fail, "store",
                        writable ? fmt::format("{} can be written{}", directory.string(),
                                               is_there ? "" : " (made when first used)")
                                 : writable.to_string(),
                        writable ? "" : "name a directory that you may write with --store"});
    bool is_doubtful = false;
    const std::string type = file_system_name(place, is_doubtful);
    findings.push_back({is_doubtful ? Outcome::warn : Outcome::ok, "file system", type,
                        is_doubtful ? "what is written there may not survive a crash of the "
                                      "machine; name a local disk with --store"
                                    : ""});
    constexpr std::uint64_t kFreeWanted = 1ULL << 30U;
    const auto free = env.free_bytes(place);
    const std::uint64_t wanted =
        std::max(kFreeWanted, std::uint64_t{settings.disk_free_mib} << 20U);
    if (!free) {
        findings.push_back({Outcome::warn, "disk", free.status().to_string(), "check the disk"});
    } else {
        const bool is_low = *free < wanted;
        findings.push_back({is_low ? Outcome::warn : Outcome::ok, "disk",
                            fmt::format("{} free", format_bytes(*free)),
                            is_low ? "make room, or bound the store with --disk" : ""});
    }
    if (is_there && env.info(directory / "catalogue.sqlite")) {
        check_catalogue(directory, settings, findings);
    }
}

void check_port(const server::Settings& settings, Findings& findings) {
    const std::string host = settings.host == "localhost" ? "127.0.0.1" : settings.host;
    const std::string where = fmt::format("{} port {}", host, settings.port);
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    v4.sin_port = v6.sin6_port = htons(static_cast<std::uint16_t>(settings.port));
    const bool is_v4 = inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
        findings.push_back({Outcome::fail, "port", fmt::format("'{}' is no IP address", host),
                            "give an address to listen on with --host"});
        return;
    }
    const int socket = ::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    int result = socket;
    if (socket >= 0) {
        // As the server does: a port that waits after its last use is free.
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        result = is_v4 ? ::bind(socket, reinterpret_cast<const sockaddr*>(&v4), sizeof v4)
                       : ::bind(socket, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
        if (result == 0) result = ::listen(socket, 1);
    }
    const int error = errno;
    if (socket >= 0) ::close(socket);
    if (result >= 0) {
        findings.push_back({Outcome::ok, "port", where + " is free", ""});
    } else {
        findings.push_back({Outcome::fail, "port",
                            fmt::format("{}: {}", where, std::strerror(error)),
                            "stop what uses it, or give another with --port"});
    }
}

}  // namespace stet::cli
