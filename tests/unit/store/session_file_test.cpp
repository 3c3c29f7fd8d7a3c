// A session in one file: out of one store and into another.
#include "store/session_file.h"

#include "memory/schema_bytes.h"
#include "unit/store/store_world.h"

namespace stet::store_test {
namespace {

#define ASSERT_OK(expr)                                            \
    do {                                                           \
        const ::stet::Status ok_status_ = (expr);                  \
        ASSERT_TRUE(ok_status_.is_ok()) << ok_status_.to_string(); \
    } while (false)

constexpr std::uint64_t kMemory = 1U << 30;

std::vector<std::byte> exported(World& world, std::string_view name, bool is_compressed) {
    const auto file = store::collect_session(*world.store, name);
    if (!file) {
        ADD_FAILURE() << file.status().to_string();
        return {};
    }
    std::vector<std::byte> bytes;
    state::CallbackSink sink([&](std::span<const std::byte> data) {
        bytes.insert(bytes.end(), data.begin(), data.end());
        return Status();
    });
    const Status written = store::write_session(*file, is_compressed, sink);
    EXPECT_TRUE(written.is_ok()) << written.to_string();
    return bytes;
}

Result<store::SessionFile> read(std::span<const std::byte> bytes) {
    state::SpanSource source(bytes);
    return store::read_session(source, kMemory);
}

// A session with turns of many lengths; their ends.
Sequence fill(World& world, std::vector<std::pair<store::TurnId, std::uint64_t>>& turns) {
    EXPECT_TRUE(world.create("s").is_ok());
    Sequence value = Sequence::empty(world.schema);
    std::uint64_t seed = 0;
    for (const std::size_t count : {3U, 61U, 1U, 130U, 40U}) {
        const auto turn = world.commit("s", value, count, ++seed);
        EXPECT_TRUE(turn.is_ok());
        turns.emplace_back(turn->id, value.position());
    }
    return value;
}

TEST(SessionFile, GoesToAnotherStoreWithEveryTurn) {
    for (unsigned lifetimes = 0; lifetimes < 16; ++lifetimes) {
        for (const bool is_compressed : {false, true}) {
            SCOPED_TRACE(fmt::format("lifetimes {}", lifetimes));
            World from(make_schema(lifetimes));
            ASSERT_OK(from.open());
            std::vector<std::pair<store::TurnId, std::uint64_t>> turns;
            const Sequence value = fill(from, turns);
            const auto bytes = exported(from, "s", is_compressed);

            World to(make_schema(lifetimes));
            to.options.tenant = "somebody else";
            to.pool.set_poison(std::byte{0xa5});
            ASSERT_OK(to.open());
            auto file = read(bytes);
            ASSERT_OK(file.status());
            EXPECT_EQ(file->is_compressed, is_compressed);
            EXPECT_EQ(file->name, "s");
            EXPECT_EQ(file->identity().model_name, "tiny");
            const auto made = store::import_session(*to.store, *file, "t");
            ASSERT_OK(made.status());
            EXPECT_EQ(made->tokens, value.position());
            ASSERT_OK(to.open());
            EXPECT_EQ(to.wrong_session("t", value.tokens), "");
            const auto there = to.store->turns("t");
            ASSERT_OK(there.status());
            ASSERT_EQ(there->size(), turns.size());
            for (std::size_t i = 0; i < turns.size(); ++i) {
                const auto end = static_cast<std::ptrdiff_t>(turns[i].second);
                EXPECT_EQ(to.wrong_session("t", {value.tokens.begin(), value.tokens.begin() + end},
                                           there->at(i).id),
                          "");
                EXPECT_EQ(there->at(i).content, World::new_turn(i + 1).content);
                EXPECT_EQ(there->at(i).sampler, World::new_turn(i + 1).sampler);
            }
            // It goes on there as it would have here.
            Sequence next = std::move(to.store->load("t", to.fingerprint, to.pool)->sequence);
            ASSERT_OK(to.commit("t", next, 70, 9).status());
            EXPECT_EQ(to.wrong_session("t", next.tokens), "");
        }
    }
}

TEST(SessionFile, DamageIsFoundWhereverItIs) {
    World world(make_schema(15, 20));
    ASSERT_OK(world.open());
    std::vector<std::pair<store::TurnId, std::uint64_t>> turns;
    const Sequence value = fill(world, turns);
    for (const bool is_compressed : {false, true}) {
        const auto whole = exported(world, "s", is_compressed);
        ASSERT_OK(read(whole).status());
        const std::size_t step = std::max<std::size_t>(1, whole.size() / 1500);
        for (std::size_t i = 0; i < whole.size(); i += i < 600 ? 1 : step) {
            auto bytes = whole;
            bytes[i] ^= std::byte{0x10};
            const auto file = read(bytes);
            // A bit of zstd's framing that means nothing leaves all that is proven as it was.
            const bool is_same = is_compressed && file && file->name == "s" &&
                                 file->sequence().tokens == value.tokens &&
                                 wrong_content(world.schema, file->sequence()).empty();
            EXPECT_TRUE(is_same || file.status().code() == Code::corruption ||
                        file.status().code() == Code::incompatible)
                << "byte " << i << ": " << file.status().to_string();
            EXPECT_FALSE(read(std::span(whole).first(i))) << "cut to " << i;
        }
        auto longer = whole;
        longer.push_back(std::byte{0});
        EXPECT_EQ(read(longer).status().code(), Code::corruption);
    }
}

TEST(SessionFile, ANameThatIsTakenStays) {
    World world;
    ASSERT_OK(world.open());
    std::vector<std::pair<store::TurnId, std::uint64_t>> turns;
    const Sequence value = fill(world, turns);
    const auto bytes = exported(world, "s", false);
    ASSERT_OK(world.store->rollback("s", turns[1].first));
    const auto refused = store::import_session(*world.store, *read(bytes), "s");
    EXPECT_EQ(refused.status().code(), Code::already_exists);
    EXPECT_EQ(world.store->find("s")->turns, 2U);
    // Beside what it was exported from it shares all it can.
    const std::uint64_t before = segment_bytes(world.directory());
    ASSERT_OK(store::import_session(*world.store, *read(bytes), "again").status());
    EXPECT_EQ(world.wrong_session("again", value.tokens), "");
    EXPECT_EQ(segment_bytes(world.directory()), before);
}

TEST(SessionFile, WhatIsNotThereIsNotExported) {
    World world(make_schema(1));
    world.options.disk_limit_bytes = 4 << 20;
    ASSERT_OK(world.open());
    ASSERT_OK(world.create("empty"));
    EXPECT_EQ(store::collect_session(*world.store, "empty").status().code(), Code::unavailable);
    ASSERT_OK(world.create("first"));
    Sequence value = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("first", value, 30'000, 1).status());
    ASSERT_OK(world.create("second"));
    Sequence other = Sequence::empty(world.schema);
    ASSERT_OK(world.commit("second", other, 30'000, 2).status());
    const auto evicted = store::collect_session(*world.store, "first");
    EXPECT_EQ(evicted.status().code(), Code::unavailable) << evicted.status().to_string();
}

TEST(SessionFile, ASchemaThatMakesNoSenseIsRefused) {
    for (const int kind : {0, 1, 2, 3}) {
        Schema schema = make_schema(15);
        Group& group = schema.groups[kind == 1 ? 2 : 0];
        if (kind == 0) group.planes[0].row_bytes = 1ULL << 60;
        if (kind == 1) group.parameter = 0;  // rows every 0 tokens
        if (kind == 2) group.planes.clear();
        if (kind == 3) {
            group.planes[0].elements = 0xffffffff;
            group.planes[0].type = ElementType::f32;
            group.planes[0].row_bytes = memory::row_bytes(ElementType::f32, 0xffffffff);
        }
        Writer manifest;
        const Hash256 fingerprint = fingerprint_of(1);
        const Hash256 hash = schema.hash();
        manifest.write_bytes(std::as_bytes(std::span(fingerprint.bytes)));
        manifest.write_bytes(std::as_bytes(std::span(hash.bytes)));
        manifest.write(std::uint32_t{1});
        manifest.write(std::uint32_t{1});
        manifest.write_string("hostile");
        memory::write_schema(manifest, schema);
        Writer file;
        file.write_bytes(std::as_bytes(std::span(state::format::kMagic)));
        file.write(state::format::kVersion);
        file.write(std::uint32_t{1});
        file.write(std::uint64_t{state::format::kHeaderBytes + manifest.data().size()});
        file.write(std::uint64_t{manifest.data().size()});
        const Hash128 manifest_checksum = xxh3_128(manifest.data());
        file.write_bytes(std::as_bytes(std::span(manifest_checksum.bytes)));
        const Hash128 checksum = xxh3_128(file.data());
        file.write_bytes(std::as_bytes(std::span(checksum.bytes)));
        file.write_bytes(manifest.data());
        state::SpanSource source(file.data());
        const auto decoded = state::decode_standalone(source, kMemory);
        EXPECT_EQ(decoded.status().code(), Code::corruption) << decoded.status().to_string();
        EXPECT_NE(decoded.status().message().find("schema: group"), std::string::npos)
            << decoded.status().to_string();
    }
}

}  // namespace
}  // namespace stet::store_test
