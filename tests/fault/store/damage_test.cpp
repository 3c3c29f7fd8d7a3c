// Damage: whatever happens to the bytes of a store, a load gives the very value that was committed
// or refuses. Never another value, never a crash, and nothing alive changes.

#include <fcntl.h>
#include <unistd.h>

#include <map>

#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

// A store with two sessions that are small enough to try everything on.
class DamagedWorld {
  public:
    explicit DamagedWorld(std::uint64_t size_of_segments = 1U << 20)
        : world(make_schema(15, 20, 4)) {
        world.options.segment_bytes = size_of_segments;
        EXPECT_TRUE(world.open().is_ok());
        for (const char* name : {"a", "b"}) {
            EXPECT_TRUE(world.create(name).is_ok());
            Sequence value = Sequence::empty(world.schema);
            EXPECT_TRUE(world.commit(name, value, 9, name[0]).is_ok());
            EXPECT_TRUE(world.commit(name, value, 6, 7).is_ok());
            values[name] = value;
        }
    }
    std::filesystem::path segment(std::size_t index = 0) {
        return segment_files(world.directory()).at(index);
    }

    // How often a session was refused. Anything but the right value or a refusal is a failure.
    std::size_t refusals(const std::string& when) {
        std::size_t count = 0;
        for (const auto& [name, value] : values) {
            const auto loaded = world.store->load(name, world.fingerprint, world.pool);
            if (!loaded) {
                ++count;
                EXPECT_EQ(loaded.status().code(), Code::corruption)
                    << when << ": " << loaded.status().to_string();
                EXPECT_NE(loaded.status().to_string().find(fmt::format("session '{}'", name)),
                          std::string::npos)
                    << when << ": " << loaded.status().to_string();
                continue;
            }
            EXPECT_EQ(loaded->sequence.tokens, value.tokens) << when;
            EXPECT_EQ(wrong_content(world.schema, loaded->sequence), "") << when;
            EXPECT_EQ(wrong_content(world.schema, value), "") << when << ": the living one";
        }
        return count;
    }

    World world;
    std::map<std::string, Sequence> values;
};

void put_byte(const std::filesystem::path& path, std::uint64_t offset, std::byte value) {
    const int file = open(path.c_str(), O_WRONLY);
    EXPECT_EQ(pwrite(file, &value, 1, static_cast<off_t>(offset)), 1);
    close(file);
}

TEST(StoreDamage, EveryByteOfASegment) {
    DamagedWorld damaged;
    const auto path = damaged.segment();
    const std::vector<std::byte> good = read_bytes(path);
    ASSERT_EQ(damaged.refusals("undamaged"), 0U);
    std::size_t unnoticed = 0;
    for (std::uint64_t i = 0; i < good.size(); ++i) {
        for (const std::byte flip : {std::byte(1U << (i % 8)), std::byte{0xff}}) {
            put_byte(path, i, good[i] ^ flip);
            // The header of a segment is read once, when it is opened.
            if (i < 128) {
                ASSERT_TRUE(damaged.world.open().is_ok());
            }
            if (damaged.refusals(fmt::format("byte {} of {}", i, good.size())) == 0) ++unnoticed;
        }
        put_byte(path, i, good[i]);
        if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(damaged.world.open().is_ok());
    EXPECT_EQ(damaged.refusals("mended"), 0U);
    // Only the filling after payloads, and blocks that a later turn replaced, may go unnoticed.
    EXPECT_LT(unnoticed, 2 * good.size() / 4);
    EXPECT_GT(unnoticed, 0U);
}

// All of its records being needed, only the filling of a segment is covered by nothing.
TEST(StoreDamage, AllBytesOfNeededRecordsAreCovered) {
    World world(make_schema(1));
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create("s").is_ok());
    Sequence value = Sequence::empty(world.schema);
    ASSERT_TRUE(world.commit("s", value, 7, 1).is_ok());
    ASSERT_TRUE(world.commit("s", value, 3, 2).is_ok());
    std::uint64_t filling = 0;
    for (const std::uint64_t rows : {7U, 3U}) {
        filling += (64 - rows * world.schema.groups[0].row_bytes() % 64) % 64;
    }
    const auto path = segment_files(world.directory()).front();
    const std::vector<std::byte> good = read_bytes(path);
    std::uint64_t unnoticed = 0;
    for (std::uint64_t i = 0; i < good.size(); ++i) {
        put_byte(path, i, good[i] ^ std::byte{0x10});
        ASSERT_TRUE(world.open().is_ok());
        if (world.wrong_session("s", value.tokens).empty()) ++unnoticed;
        put_byte(path, i, good[i]);
    }
    EXPECT_EQ(unnoticed, filling);
}

TEST(StoreDamage, EveryLengthOfASegment) {
    DamagedWorld damaged;
    const auto path = damaged.segment();
    const std::vector<std::byte> good = read_bytes(path);
    for (std::uint64_t size = good.size() - 1; size > 0; size -= size > 600 ? 7 : 1) {
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        const std::size_t refused = damaged.refusals(fmt::format("cut to {}", size));
        if (size + 64 < good.size()) {
            EXPECT_GE(refused, 1U) << size;
        }
        if (testing::Test::HasFailure()) return;
    }
    write_bytes(path, good);
    std::vector<std::byte> longer = good;
    for (int i = 0; i < 64; ++i) {
        longer.push_back(std::byte{0x5a});
        write_bytes(path, longer);
        ASSERT_TRUE(damaged.world.open().is_ok());
        EXPECT_EQ(damaged.refusals("made longer"), 0U);
    }
    // The tail that nobody named is not written over, and not in the way.
    Sequence& value = damaged.values["a"];
    EXPECT_TRUE(damaged.world.commit("a", value, 30, 3).is_ok());
    EXPECT_EQ(damaged.refusals("after a commit"), 0U);
    EXPECT_EQ(read_bytes(path), longer);
    std::filesystem::remove(path);
    ASSERT_TRUE(damaged.world.open().is_ok());
    EXPECT_EQ(damaged.refusals("removed"), 2U);
}

TEST(StoreDamage, ExchangedRecordsAndFiles) {
    DamagedWorld damaged(1);  // a segment a commit
    const std::size_t count = segment_files(damaged.world.directory()).size();
    ASSERT_EQ(count, 4U);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
            if (i == j) continue;
            const auto one = read_bytes(damaged.segment(i));
            const auto other = read_bytes(damaged.segment(j));
            write_bytes(damaged.segment(i), other);
            ASSERT_TRUE(damaged.world.open().is_ok());
            EXPECT_GE(damaged.refusals("a file in the place of another"), 1U);
            // The same with the header of the segment left alone.
            std::vector<std::byte> body = one;
            for (std::size_t k = 128; k < std::min(body.size(), other.size()); ++k) {
                body[k] = other[k];
            }
            write_bytes(damaged.segment(i), body);
            ASSERT_TRUE(damaged.world.open().is_ok());
            EXPECT_GE(damaged.refusals("records in the place of others"), 1U);
            write_bytes(damaged.segment(i), one);
        }
    }
    ASSERT_TRUE(damaged.world.open().is_ok());
    EXPECT_EQ(damaged.refusals("mended"), 0U);
}

TEST(StoreDamage, RunsOfZeroes) {
    DamagedWorld damaged;
    const auto path = damaged.segment();
    const std::vector<std::byte> good = read_bytes(path);
    for (std::uint64_t at = 0; at + 512 <= good.size(); at += 512) {
        std::vector<std::byte> bytes = good;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 512, std::byte{0});
        write_bytes(path, bytes);
        ASSERT_TRUE(damaged.world.open().is_ok());
        EXPECT_GE(damaged.refusals(fmt::format("zeroes at {}", at)), 1U);
    }
}

// SQLite's own file has no checksums of its pages; ours of its rows must do. Refusing to open is an
// answer, too.
TEST(StoreDamage, BytesOfTheCatalogue) {
    DamagedWorld damaged;
    World& world = damaged.world;
    const auto expected = world.store->turns("a");
    ASSERT_TRUE(expected.is_ok());
    world.store.reset();
    const auto path = world.directory() / "catalogue.sqlite";
    const std::vector<std::byte> good = read_bytes(path);
    std::size_t refused = 0;
    std::size_t tried = 0;
    for (std::uint64_t i = 0; i < good.size(); i += 1 + mix(5, i) % 45) {
        const std::string when = fmt::format("catalogue byte {}", i);
        std::filesystem::remove(path.string() + "-wal");
        std::filesystem::remove(path.string() + "-shm");
        std::vector<std::byte> bytes = good;
        bytes[i] ^= std::byte(1U << (i % 8));
        write_bytes(path, bytes);
        ++tried;
        if (!world.open()) {
            ++refused;
            continue;
        }
        for (const auto& [name, value] : damaged.values) {
            const auto loaded = world.store->load(name, world.fingerprint, world.pool);
            if (!loaded) {
                ++refused;
                continue;
            }
            EXPECT_EQ(loaded->sequence.tokens, value.tokens) << when;
            EXPECT_EQ(wrong_content(world.schema, loaded->sequence), "") << when;
        }
        const auto turns = world.store->turns("a");
        for (std::size_t t = 0; turns && t < turns->size(); ++t) {
            EXPECT_EQ((*turns)[t].content, (*expected)[t].content) << when;
            EXPECT_EQ((*turns)[t].sampler, (*expected)[t].sampler) << when;
        }
        // Nothing that could be loaded is garbage.
        const auto loadable = [&] {
            std::size_t count = 0;
            for (const auto& [name, value] : damaged.values) {
                if (world.store->load(name, world.fingerprint, world.pool)) ++count;
            }
            return count;
        };
        const std::size_t before = loadable();
        static_cast<void>(world.store->collect_garbage());
        EXPECT_EQ(loadable(), before) << when;
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(refused, 0U);
    EXPECT_GT(tried, 1000U);
    world.store.reset();
    std::filesystem::remove(path.string() + "-wal");
    std::filesystem::remove(path.string() + "-shm");
    write_bytes(path, good);
    ASSERT_TRUE(world.open().is_ok());
    EXPECT_EQ(damaged.refusals("mended"), 0U);
}

}  // namespace
}  // namespace stet::store_test
