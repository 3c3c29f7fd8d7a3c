// What the tests of the store share: a directory of their own, schemas of every lifetime, and a
// "model" whose rows are a function of the tokens alone, so that any restored value can be checked
// byte by byte without keeping a copy.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/env.h"
#include "memory/page_pool.h"
#include "state/checkpoint.h"
#include "state/sequence.h"
#include "store/store.h"

namespace stet::store_test {

using memory::ElementType;
using memory::Group;
using memory::Lifetime;
using memory::Plane;
using memory::Schema;
using state::Sequence;
using state::Token;

// In memory where the system has such a place: what these tests prove does not depend on a disk,
// and they commit thousands of times.
class TempDirectory {
  public:
    TempDirectory() {
        const std::filesystem::path in_memory = "/dev/shm";
        std::error_code ignored;
        const bool is_there = std::filesystem::is_directory(in_memory, ignored);
        const auto parent = is_there ? in_memory : std::filesystem::temp_directory_path();
        std::string name = (parent / "stet-store-XXXXXX").string();
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~TempDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDirectory(const TempDirectory&) = delete;
    TempDirectory& operator=(const TempDirectory&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

inline SecretKey key_of(char digit) {
    return *SecretKey::parse(std::string(64, digit), "test");
}

inline Plane make_plane(std::string name, std::int32_t layer, ElementType type,
                        std::uint32_t elements) {
    return {std::move(name), layer, type, elements, memory::row_bytes(type, elements)};
}

// One bit a lifetime: 1 tokens, 2 window, 4 every, 8 fixed.
inline Schema make_schema(unsigned lifetimes, std::uint32_t window = 100, std::uint32_t ratio = 4) {
    Schema schema;
    if (lifetimes & 1U) {
        schema.groups.push_back(
            {"attention",
             Lifetime::tokens,
             0,
             {make_plane("k", 0, ElementType::f16, 8), make_plane("v", 0, ElementType::q8_0, 32),
              make_plane("k", 3, ElementType::f16, 4)}});
    }
    if (lifetimes & 2U) {
        schema.groups.push_back(
            {"window",
             Lifetime::window,
             window,
             {make_plane("k", 1, ElementType::f32, 3), make_plane("v", 1, ElementType::f16, 5)}});
    }
    if (lifetimes & 4U) {
        schema.groups.push_back(
            {"pooled", Lifetime::every, ratio, {make_plane("k", 2, ElementType::f16, 16)}});
    }
    if (lifetimes & 8U) {
        schema.groups.push_back({"recurrent",
                                 Lifetime::fixed,
                                 0,
                                 {make_plane("conv", 4, ElementType::f32, 12),
                                  make_plane("state", 4, ElementType::f32, 40)}});
    }
    return schema;
}

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15U ^ (b + 0x632be59bd9b4e019U);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

// digests[n] stands for the first n tokens.
inline std::vector<std::uint64_t> prefix_digests(const std::vector<Token>& tokens) {
    std::vector<std::uint64_t> digests{1};
    for (const Token token : tokens) {
        digests.push_back(mix(digests.back(), static_cast<std::uint64_t>(token)));
    }
    return digests;
}

inline void make_row(std::uint64_t digest, std::size_t group, std::size_t plane, std::byte* row,
                     std::uint64_t row_bytes) {
    std::uint64_t stream = mix(mix(digest, group), plane);
    for (std::uint64_t i = 0; i < row_bytes; ++i) {
        if (i % 8 == 0) stream = mix(stream, i);
        row[i] = std::byte(stream >> (i % 8 * 8) & 0xff);
    }
}

// The digest that row `row` of a paged group depends on.
inline std::uint64_t row_digest(const Group& group, const std::vector<std::uint64_t>& digests,
                                std::uint64_t row) {
    return digests[group.lifetime == Lifetime::every ? (row + 1) * group.parameter : row + 1];
}

// The value after `tokens` more, as a model's step would make it.
inline Sequence extend(memory::PagePool& pool, const Sequence& base,
                       const std::vector<Token>& tokens) {
    auto begun = state::Append::begin(pool, base, tokens);
    if (!begun) {
        ADD_FAILURE() << begun.status().to_string();
        return base;
    }
    state::Append append = std::move(*begun);
    const Schema& schema = pool.schema();
    const auto digests = prefix_digests(append.next().tokens);
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        const std::uint64_t row_end = group.rows_at(append.next().position());
        for (std::uint64_t row = group.rows_at(base.position()); row < row_end; ++row) {
            const std::uint64_t at = row - append.next().groups[g].first_row;
            std::byte* page = append.block_table(g)[at / memory::kPageRows];
            for (std::size_t p = 0; p < group.planes.size(); ++p) {
                const std::uint64_t bytes = group.planes[p].row_bytes;
                make_row(row_digest(group, digests, row), g, p,
                         page + group.plane_offset(p) + at % memory::kPageRows * bytes, bytes);
            }
        }
        if (group.is_paged()) continue;
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            make_row(digests.back(), g, p, append.new_block(g).data() + group.plane_offset(p),
                     group.planes[p].row_bytes);
        }
    }
    return std::move(append).commit();
}

// Empty if every row that the value needs is what the model would have made of its tokens.
inline std::string wrong_content(const Schema& schema, const Sequence& sequence) {
    if (const Status valid = state::validate(schema, sequence); !valid) return valid.to_string();
    const auto digests = prefix_digests(sequence.tokens);
    std::vector<std::byte> expected;
    const auto differs = [&](std::uint64_t digest, std::size_t g, std::size_t p,
                             const std::byte* found) {
        expected.resize(schema.groups[g].planes[p].row_bytes);
        make_row(digest, g, p, expected.data(), expected.size());
        return std::memcmp(expected.data(), found, expected.size()) != 0;
    };
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        const state::GroupState& held = sequence.groups[g];
        for (std::uint64_t row = group.first_needed_row(sequence.position()); row < held.rows;
             ++row) {
            const std::uint64_t at = row - held.first_row;
            const std::byte* page = held.pages[at / memory::kPageRows].data().data();
            for (std::size_t p = 0; p < group.planes.size(); ++p) {
                const std::byte* found = page + group.plane_offset(p) +
                                         at % memory::kPageRows * group.planes[p].row_bytes;
                if (differs(row_digest(group, digests, row), g, p, found)) {
                    return fmt::format("group {}, plane {}, row {} differs", g, p, row);
                }
            }
        }
        if (group.is_paged() || sequence.position() == 0) continue;
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            if (differs(digests.back(), g, p, held.block.data().data() + group.plane_offset(p))) {
                return fmt::format("group {}, plane {} of the block differs", g, p);
            }
        }
    }
    return {};
}

// `count` tokens that differ with `seed`.
inline std::vector<Token> make_tokens(std::size_t count, std::uint64_t seed) {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<Token>(mix(seed, i) % 32000));
    }
    return tokens;
}

inline Hash256 fingerprint_of(std::uint64_t seed) {
    return Sha256().add(seed).finish();
}

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

// In place, so that the file stays the same one.
inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::filesystem::path> segment_files(const std::filesystem::path& store) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(store / "segments")) {
        files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

inline std::uint64_t segment_bytes(const std::filesystem::path& store) {
    std::uint64_t sum = 0;
    for (const auto& file : segment_files(store)) sum += std::filesystem::file_size(file);
    return sum;
}

inline std::uint64_t directory_bytes(const std::filesystem::path& store) {
    std::uint64_t sum = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(store)) {
        if (entry.is_regular_file()) sum += entry.file_size();
    }
    return sum;
}

// A store with one schema and a pool, the value of a session being kept by the test.
class World {
  public:
    explicit World(Schema shape = make_schema(15), Env& env = Env::posix())
        : schema(std::move(shape)), pool(schema, 1U << 30), env_(env) {
        options.tenant = "tests";
    }
    const std::filesystem::path& directory() const { return directory_.path(); }

    Status open() {
        store.reset();
        auto opened = store::Store::open(env_, directory_.path(), options);
        if (!opened) return opened.status();
        store = std::move(*opened);
        return {};
    }
    Status create(std::string_view name) {
        return store->create(name, fingerprint, schema, "tiny", "/models/tiny.gguf").status();
    }
    // Makes `count` tokens more and commits them; `value` moves only when that works.
    Result<store::Turn> commit(std::string_view name, Sequence& value, std::size_t count,
                               std::uint64_t seed) {
        Sequence next = extend(pool, value, make_tokens(count, seed));
        auto turn = store->commit_turn(name, schema, next, new_turn(seed));
        if (turn) value = std::move(next);
        return turn;
    }
    static store::NewTurn new_turn(std::uint64_t seed) {
        return {fmt::format("{{\"seed\": {}}}", seed),
                std::vector<std::byte>(seed % 7, std::byte(seed & 0xff))};
    }
    // Empty if the session restores to exactly these tokens with the right content.
    std::string wrong_session(std::string_view name, const std::vector<Token>& tokens,
                              std::optional<store::TurnId> turn = {}) {
        auto loaded = store->load(name, fingerprint, pool, turn);
        if (!loaded) return loaded.status().to_string();
        if (loaded->sequence.tokens != tokens) {
            return fmt::format("{} tokens, expected {}", loaded->sequence.position(),
                               tokens.size());
        }
        return wrong_content(schema, loaded->sequence);
    }

    TempDirectory directory_;
    Schema schema;
    memory::PagePool pool;
    Hash256 fingerprint = fingerprint_of(1);
    store::StoreOptions options;
    std::unique_ptr<store::Store> store;

  private:
    Env& env_;
};

}  // namespace stet::store_test
