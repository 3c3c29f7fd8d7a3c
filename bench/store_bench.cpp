// What it costs to keep state: durable saves, restores, forks and reopening of a store, for the
// schema of a real model and rows that nobody shares. Prints one JSON object; state_bench.py puts
// the peer beside it.
//
// usage: store_bench MODEL.gguf DIRECTORY RUNS
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "state/sequence.h"
#include "store/store.h"

namespace stet {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::map<std::string, std::vector<double>>;  // milliseconds by name

constexpr std::uint64_t kPoolBytes = 2ULL << 30;
constexpr std::size_t kStepTokens = 512;
constexpr std::uint64_t kPagesToOpen = 100'000;

template <typename T>
T expect(Result<T> result) {
    if (result) return std::move(result).value();
    fmt::print(stderr, "store_bench: {}\n", result.status().to_string());
    std::exit(1);
}
void expect(const Status& status) {
    if (status) return;
    fmt::print(stderr, "store_bench: {}\n", status.to_string());
    std::exit(1);
}

template <typename Work>
double ms_of(Work work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void fill(std::byte* bytes, std::uint64_t size, std::uint64_t& seed) {
    for (std::uint64_t i = 0; i < size; ++i) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        bytes[i] = std::byte(seed >> 56U);
    }
}

// `count` tokens more, with rows that no other sequence has.
state::Sequence extend(memory::PagePool& pool, state::Sequence value, std::uint64_t count,
                       std::uint64_t& seed) {
    while (count > 0) {
        const std::uint64_t step = std::min<std::uint64_t>(count, kStepTokens);
        std::vector<state::Token> tokens(step);
        for (auto& token : tokens) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            token = static_cast<state::Token>(seed >> 40U);
        }
        state::Append append = expect(state::Append::begin(pool, value, tokens));
        for (std::size_t g = 0; g < pool.schema().groups.size(); ++g) {
            const memory::Group& group = pool.schema().groups[g];
            if (!group.is_paged()) {
                fill(append.new_block(g).data(), append.new_block(g).size(), seed);
                continue;
            }
            const auto& held = append.next().groups[g];
            for (std::uint64_t row = group.rows_at(value.position()); row < held.rows; ++row) {
                const std::uint64_t at = row - held.first_row;
                std::byte* page = append.block_table(g)[at / memory::kPageRows];
                for (std::size_t p = 0; p < group.planes.size(); ++p) {
                    const std::uint64_t bytes = group.planes[p].row_bytes;
                    // One random word a row is enough to make it its own.
                    fill(page + group.plane_offset(p) + at % memory::kPageRows * bytes,
                         std::min<std::uint64_t>(bytes, 8), seed);
                }
            }
        }
        value = std::move(append).commit();
        count -= step;
    }
    return value;
}

void drop_from_page_cache(const std::filesystem::path& directory) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (!entry.is_regular_file()) continue;
        const int file = open(entry.path().c_str(), O_RDONLY);
        if (file < 0) continue;
        fdatasync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
}

struct Bench {
    memory::Schema schema;
    Hash256 fingerprint;
    std::filesystem::path directory;
    memory::PagePool pool{schema, kPoolBytes};
    std::unique_ptr<store::Store> store;
    std::uint64_t seed = 1;
    Times times;

    void run_length(std::uint64_t tokens, int run) {
        const std::string name = fmt::format("s{}-{}", tokens, run);
        const auto at = [&](std::string_view what) -> std::vector<double>& {
            return times[fmt::format("{} {}", what, tokens)];
        };
        expect(store->create(name, fingerprint, schema, "bench", "bench").status());
        state::Sequence value = extend(pool, state::Sequence::empty(schema), tokens, seed);
        at("save").push_back(ms_of([&] {
            expect(store->commit_turn(name, schema, value, {"{}", {}}).status());
        }));
        value = extend(pool, std::move(value), 64, seed);
        at("save 64 more after").push_back(ms_of([&] {
            expect(store->commit_turn(name, schema, value, {"{}", {}}).status());
        }));
        state::Sequence kept;
        at("restore resident").push_back(ms_of([&] { kept = value; }));
        kept = {};
        const auto load = [&] {
            const store::Loaded loaded = expect(store->load(name, fingerprint, pool));
            if (loaded.sequence.tokens != value.tokens) std::exit(1);
        };
        load();
        at("restore page cache").push_back(ms_of(load));
        drop_from_page_cache(directory);
        at("restore cold").push_back(ms_of(load));
        std::vector<state::Sequence> branches;
        branches.reserve(64);
        for (const int count : {8, 64}) {
            branches.clear();
            const double ms = ms_of([&] {
                for (int i = 0; i < count; ++i) branches.push_back(value);
            });
            at(fmt::format("fork {} times, each", count)).push_back(ms / count);
        }
        constexpr int kForks = 8;
        const double ms = ms_of([&] {
            for (int i = 0; i < kForks; ++i) {
                expect(store->fork(name, fmt::format("{}-f{}", name, i)).status());
            }
        });
        at("durable fork, each").push_back(ms / kForks);
        for (int i = 0; i < kForks; ++i) expect(store->remove(fmt::format("{}-f{}", name, i)));
        expect(store->remove(name));
    }
};

store::StoreOptions options() {
    return {};
}

// A store of many small pages.
void measure_reopen(const std::filesystem::path& directory, int runs, Times& times) {
    memory::Schema schema;
    schema.groups.push_back(
        {"attention", memory::Lifetime::tokens, 0, {{"k", 0, memory::ElementType::f16, 2, 4}}});
    memory::PagePool pool(schema, kPoolBytes);
    std::uint64_t seed = 7;
    auto store = expect(store::Store::open(Env::posix(), directory, options()));
    constexpr std::uint64_t kSessions = 50;
    for (std::uint64_t i = 0; i < kSessions; ++i) {
        const std::string name = fmt::format("s{}", i);
        expect(store->create(name, {}, schema, "bench", "bench").status());
        const std::uint64_t tokens = kPagesToOpen / kSessions * memory::kPageRows;
        const state::Sequence value = extend(pool, state::Sequence::empty(schema), tokens, seed);
        expect(store->commit_turn(name, schema, value, {"{}", {}}).status());
    }
    store.reset();
    for (int run = 0; run < runs; ++run) {
        times["open a store of 100,000 pages"].push_back(
            ms_of([&] { store = expect(store::Store::open(Env::posix(), directory, options())); }));
        store.reset();
    }
}

int run(int argc, char** argv) {
    if (argc != 4) {
        fmt::print(stderr, "usage: store_bench MODEL.gguf DIRECTORY RUNS\n");
        return 2;
    }
    const int runs = std::atoi(argv[3]);
    const auto file = expect(gguf::File::open(Env::posix(), argv[1]));
    const model::Config config = expect(model::resolve(*file, {}));
    const std::filesystem::path root = argv[2];
    Bench bench{.schema = config.schema,
                .fingerprint = {},
                .directory = root / "store",
                .store = {},
                .times = {}};
    bench.store = expect(store::Store::open(Env::posix(), bench.directory, options()));
    for (int run = 0; run < runs; ++run) {
        for (const std::uint64_t tokens : {512U, 2048U, 8000U}) bench.run_length(tokens, run);
        expect(bench.store->collect_garbage().status());
    }
    bench.store.reset();
    measure_reopen(root / "many", runs, bench.times);
    const nlohmann::ordered_json json = {{"row_bytes", config.schema.bytes_per_token()},
                                         {"ms", bench.times}};
    fmt::print("{}\n", json.dump());
    return 0;
}

}  // namespace
}  // namespace stet

int main(int argc, char** argv) {
    return stet::run(argc, argv);
}
