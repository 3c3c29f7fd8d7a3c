// Stores that are encrypted.
#include "store/sealing.h"

#include <set>

#include "base/try.h"
#include "store/segment.h"
#include "store/sqlite.h"
#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

constexpr std::string_view kName = "chat";

struct SealedWorld : World {
    explicit SealedWorld(unsigned lifetimes = 15) : World(make_schema(lifetimes)) {
        options.key = key_of('a');
    }
};

std::string all_bytes(const std::filesystem::path& directory) {
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (!entry.is_regular_file()) continue;
        for (const std::byte byte : read_bytes(entry.path())) all += static_cast<char>(byte);
    }
    return all;
}

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What must not be found in the files of a sealed store, and is found in those of a plain one.
std::vector<std::string> secrets(const Schema& schema, const Sequence& value,
                                 std::string_view content) {
    std::vector<std::string> secrets{std::string(content)};
    secrets.push_back(text_of(std::as_bytes(std::span(value.tokens).subspan(20, 4))));
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const auto bytes = schema.groups[g].is_paged() ? value.groups[g].pages.back().data()
                                                       : value.groups[g].block.data();
        secrets.push_back(text_of(bytes.first(16)));
    }
    return secrets;
}

TEST(SealedStore, LivesAsAnyOther) {
    SealedWorld world;
    ASSERT_TRUE(world.open().is_ok());
    EXPECT_TRUE(world.store->is_encrypted());
    ASSERT_TRUE(world.create(kName).is_ok());
    Sequence value = Sequence::empty(world.schema);
    std::vector<Sequence> values{value};
    std::vector<store::TurnId> turns{store::kNoTurn};
    for (std::uint64_t i = 1; i <= 4; ++i) {
        const auto turn = world.commit(kName, value, 70 * i, i);
        ASSERT_TRUE(turn.is_ok()) << turn.status().to_string();
        turns.push_back(turn->id);
        values.push_back(value);
    }
    ASSERT_TRUE(world.open().is_ok());
    EXPECT_EQ(world.wrong_session(kName, value.tokens), "");
    for (std::size_t i = 1; i < turns.size(); ++i) {
        EXPECT_EQ(world.wrong_session(kName, values[i].tokens, turns[i]), "");
    }
    const auto history = world.store->turns(kName);
    ASSERT_TRUE(history.is_ok());
    for (std::uint64_t i = 1; i <= 4; ++i) {
        EXPECT_EQ((*history)[i - 1].content, World::new_turn(i).content);
        EXPECT_EQ((*history)[i - 1].sampler, World::new_turn(i).sampler);
    }
    ASSERT_TRUE(world.store->fork(kName, "fork", turns[2]).is_ok());
    EXPECT_EQ(world.wrong_session("fork", values[2].tokens), "");
    ASSERT_TRUE(world.store->rollback(kName, turns[1]).is_ok());
    ASSERT_TRUE(world.store->remove("fork").is_ok());
    ASSERT_TRUE(world.store->collect_garbage().is_ok());
    EXPECT_EQ(world.wrong_session(kName, values[1].tokens), "");
    const auto verified = world.store->verify(0, std::uint64_t{1} << 40);
    ASSERT_TRUE(verified.is_ok());
    EXPECT_GT(verified->records, 0U);
    EXPECT_TRUE(verified->damages.empty());
}

// Collected, moved and forked: at no time is anything of a conversation readable.
TEST(SealedStore, ShowsNothingOfAConversation) {
    for (const bool is_sealed : {false, true}) {
        SealedWorld world;
        if (!is_sealed) world.options.key.reset();
        ASSERT_TRUE(world.open().is_ok());
        ASSERT_TRUE(world.create(kName).is_ok());
        ASSERT_TRUE(world.create("other").is_ok());
        Sequence value = Sequence::empty(world.schema);
        Sequence other = value;
        ASSERT_TRUE(world.commit(kName, value, 64 * 3, 12345).is_ok());
        ASSERT_TRUE(world.commit("other", other, 64 * 9, 777).is_ok());
        const auto hidden = secrets(world.schema, value, World::new_turn(12345).content);
        std::size_t found = 0;
        const auto look = [&] {
            const std::string all = all_bytes(world.directory());
            for (const std::string& secret : hidden) {
                if (all.find(secret) != std::string::npos) ++found;
            }
        };
        look();
        ASSERT_TRUE(world.store->remove("other").is_ok());
        ASSERT_TRUE(world.store->collect_garbage().is_ok());
        look();
        world.store.reset();
        look();
        EXPECT_EQ(found, is_sealed ? 0 : 3 * hidden.size());
    }
}

// The name of a record is a hash of tokens; it must not tell who knows the text that it is there.
TEST(SealedStore, ItsRecordsCantBeLookedUp) {
    std::set<std::string> keys;
    std::size_t count = 0;
    for (const char digit : {'a', 'a', 'b', '-'}) {
        World world(make_schema(1));
        if (digit != '-') world.options.key = key_of(digit);
        ASSERT_TRUE(world.open().is_ok());
        ASSERT_TRUE(world.create(kName).is_ok());
        Sequence value = Sequence::empty(world.schema);
        ASSERT_TRUE(world.commit(kName, value, 64 * 2, 5).is_ok());
        world.store.reset();
        auto database = store::Database::open(world.directory() / "catalogue.sqlite", {}, nullptr);
        ASSERT_TRUE(database.is_ok());
        auto row = (*database)->query("SELECT hex(key) FROM record");
        ASSERT_TRUE(row.is_ok());
        while (*row->step()) {
            keys.emplace(row->text(0));
            ++count;
        }
    }
    EXPECT_EQ(count, 8U);
    EXPECT_EQ(keys.size(), count);
}

TEST(SealedStore, NeedsItsKey) {
    SealedWorld world(1);
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create(kName).is_ok());
    Sequence value = Sequence::empty(world.schema);
    ASSERT_TRUE(world.commit(kName, value, 100, 3).is_ok());
    world.store.reset();
    const std::string before = all_bytes(world.directory());

    world.options.key = key_of('b');
    const Status wrong = world.open();
    EXPECT_EQ(wrong.code(), Code::incompatible);
    EXPECT_NE(wrong.to_string().find("another key"), std::string::npos) << wrong.to_string();
    world.options.key.reset();
    const Status without = world.open();
    EXPECT_EQ(without.code(), Code::incompatible);
    EXPECT_NE(without.to_string().find("--store-key-file"), std::string::npos)
        << without.to_string();
    EXPECT_EQ(all_bytes(world.directory()), before);

    world.options.key = key_of('a');
    ASSERT_TRUE(world.open().is_ok());
    EXPECT_EQ(world.wrong_session(kName, value.tokens), "");
}

// Names and sizes are no secret; what was said is.
TEST(SealedStore, CanBeListedWithoutItsKey) {
    SealedWorld world(1);
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create(kName).is_ok());
    Sequence value = Sequence::empty(world.schema);
    ASSERT_TRUE(world.commit(kName, value, 100, 3).is_ok());
    world.options.key.reset();
    world.options.read_only = true;
    ASSERT_TRUE(world.open().is_ok());
    const auto sessions = world.store->list();
    ASSERT_TRUE(sessions.is_ok());
    EXPECT_EQ(sessions->at(0).tokens, 100U);
    EXPECT_TRUE(world.store->usage().is_ok());
    EXPECT_EQ(world.store->turns(kName).status().code(), Code::incompatible);
    EXPECT_EQ(world.store->tokens(kName).status().code(), Code::incompatible);
    const auto loaded = world.store->load(kName, world.fingerprint, world.pool);
    EXPECT_EQ(loaded.status().code(), Code::incompatible);
    EXPECT_NE(loaded.status().to_string().find("--store-key-file"), std::string::npos);
    EXPECT_EQ(world.store->verify(0, 1 << 20).status().code(), Code::incompatible);
}

TEST(SealedStore, APlainStoreTakesNoKey) {
    World world(make_schema(1));
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create(kName).is_ok());
    world.options.key = key_of('a');
    const Status opened = world.open();
    EXPECT_EQ(opened.code(), Code::incompatible);
    EXPECT_NE(opened.to_string().find("is not encrypted"), std::string::npos) << opened.to_string();
    world.options.key.reset();
    EXPECT_TRUE(world.open().is_ok());
}

// What somebody without the key can do to the first record of two that are alike in size: every
// checksum and the catalogue fit again.
class Forger {
  public:
    explicit Forger(const World& world) : directory_(world.directory()) {
        file_ = segment_files(directory_).at(0);
        bytes_ = read_bytes(file_);
        auto database = open_catalogue();
        auto row = database->query("SELECT offset, size_bytes FROM record ORDER BY offset");
        EXPECT_TRUE(row.is_ok());
        while (*row->step()) {
            offsets_.push_back(static_cast<std::size_t>(row->integer(0)));
            size_ = static_cast<std::size_t>(row->integer(1));
        }
    }
    std::span<std::byte> payload(std::size_t record) {
        return std::span(bytes_).subspan(offsets_.at(record) + store::kRecordHeaderBytes, size_);
    }
    // Of the record's header.
    std::span<std::byte> seal(std::size_t record) {
        return std::span(bytes_).subspan(offsets_.at(record) + 80, kSealBytes);
    }
    void finish() {
        const std::span<std::byte> header = std::span(bytes_).subspan(offsets_[0], 128);
        const Hash128 checksum = xxh3_128(payload(0));
        std::ranges::copy(std::as_bytes(std::span(checksum.bytes)), header.begin() + 64);
        const Hash128 of_header = xxh3_128(header.first(112));
        std::ranges::copy(std::as_bytes(std::span(of_header.bytes)), header.begin() + 112);
        write_bytes(file_, bytes_);
        const auto offset = static_cast<std::int64_t>(offsets_[0]);
        EXPECT_TRUE(open_catalogue()
                        ->run("UPDATE record SET checksum = ?1 WHERE offset = ?2", checksum, offset)
                        .is_ok());
    }

  private:
    std::unique_ptr<store::Database> open_catalogue() {
        auto database =
            store::Database::open(directory_ / "catalogue.sqlite", directory_ / "lock", nullptr);
        EXPECT_TRUE(database.is_ok());
        return std::move(*database);
    }

    std::filesystem::path directory_;
    std::filesystem::path file_;
    std::vector<std::byte> bytes_;
    std::vector<std::size_t> offsets_;
    std::size_t size_ = 0;
};

// Who has no key can make checksums fit, but no seal; nor can he pass one record off as another.
TEST(SealedStore, AChangeWithFittingChecksumsIsFound) {
    for (const bool is_other_record : {false, true}) {
        SealedWorld world(1);
        ASSERT_TRUE(world.open().is_ok());
        ASSERT_TRUE(world.create(kName).is_ok());
        ASSERT_TRUE(world.create("second").is_ok());
        Sequence value = Sequence::empty(world.schema);
        Sequence second = value;
        ASSERT_TRUE(world.commit(kName, value, 64, 3).is_ok());
        ASSERT_TRUE(world.commit("second", second, 64, 4).is_ok());
        world.store.reset();
        Forger forger(world);
        if (is_other_record) {
            std::ranges::copy(forger.payload(1), forger.payload(0).begin());
            std::ranges::copy(forger.seal(1), forger.seal(0).begin());
        } else {
            forger.payload(0)[40] ^= std::byte{1};
        }
        forger.finish();
        ASSERT_TRUE(world.open().is_ok());
        const auto loaded = world.store->load(kName, world.fingerprint, world.pool);
        ASSERT_EQ(loaded.status().code(), Code::corruption);
        EXPECT_NE(loaded.status().to_string().find("seal"), std::string::npos)
            << loaded.status().to_string();
        EXPECT_EQ(world.wrong_session("second", second.tokens), "");
    }
}

TEST(SealedStore, ADamagedRowOfTheKeyIsDamage) {
    SealedWorld world(1);
    ASSERT_TRUE(world.open().is_ok());
    ASSERT_TRUE(world.create(kName).is_ok());
    world.store.reset();
    {
        auto database = store::Database::open(world.directory() / "catalogue.sqlite",
                                              world.directory() / "lock", nullptr);
        ASSERT_TRUE(database.is_ok());
        ASSERT_TRUE((*database)
                        ->run("UPDATE meta SET value = replace(value, '1', '2') WHERE name = "
                              "'sealing'")
                        .is_ok());
    }
    EXPECT_EQ(world.open().code(), Code::corruption);
}

}  // namespace
}  // namespace stet::store_test
