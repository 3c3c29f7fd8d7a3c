// Import of llama.cpp state: every memory kind in random shapes, damage at every byte, and each
// refusal by name.
#include "state/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "llama_kinds.h"
#include "llama_writer.h"
#include "memory/page_pool.h"
#include "state/extent.h"
#include "state/sequence.h"

namespace stet::state {
namespace {

using memory::Group;
using memory::PagePool;
using memory::Schema;
using test::llama_cells;
using test::llama_row;
using test::LlamaFile;
using test::LlamaModel;
using test::LlamaWriter;
using testing::HasSubstr;

constexpr std::uint64_t kPoolBytes = 64 << 20;

LlamaModel model_of(std::string_view kind, std::uint32_t seed = 1) {
    return test::LlamaModelMaker(kind, seed).take();
}

std::vector<std::byte> bytes_of(const LlamaModel& model, const LlamaFile& file) {
    return LlamaWriter(model.schema, file).write();
}

// Rows that later tokens need, and the fixed blocks, are those of the writer.
void expect_rows(const LlamaModel& model, const Sequence& sequence, std::uint32_t salt = 0) {
    ASSERT_TRUE(validate(model.schema, sequence));
    for (std::size_t g = 0; g < model.schema.groups.size(); ++g) {
        const Group& group = model.schema.groups[g];
        const std::uint64_t end = group.is_paged()
                                      ? group.rows_at(sequence.position())
                                      : std::min<std::uint64_t>(sequence.position(), 1);
        for (std::uint64_t row = group.first_needed_row(sequence.position()); row < end; ++row) {
            std::vector<std::byte> payload(group.row_bytes());
            gather(model.schema, sequence, {g, row, row + 1, payload.size(), {}}, payload);
            std::vector<std::byte> expected;
            for (std::size_t p = 0; p < group.planes.size(); ++p) {
                const auto part = llama_row(model.schema, g, p, row, salt);
                expected.insert(expected.end(), part.begin(), part.end());
            }
            ASSERT_EQ(payload, expected) << group.name << " row " << row;
        }
    }
}

class ImportKinds : public testing::TestWithParam<std::string_view> {};

TEST_P(ImportKinds, RandomShapesComeBackRowByRow) {
    const std::vector<std::uint64_t> lengths = {0, 1, 3, 4, 5, 12, 63, 64, 65, 130, 257};
    std::uint32_t seed = 0;
    for (const std::uint64_t length : lengths) {
        for (const auto kind : {ImportKind::sequence, ImportKind::session, ImportKind::slot}) {
            for (int repeat = 0; repeat < 4; ++repeat) {
                const LlamaModel model = model_of(GetParam(), ++seed);
                const LlamaFile file = test::llama_file(model, kind, length, seed);
                PagePool pool(model.schema, kPoolBytes);
                pool.set_poison(std::byte{0x3e});
                const auto bytes = bytes_of(model, file);
                const auto imported = import_llama_state(bytes, "state", model.target, pool);
                ASSERT_TRUE(imported) << seed << ": " << imported.status().to_string();
                EXPECT_EQ(imported->kind, kind);
                ASSERT_EQ(imported->sequences.size(), 1U);
                EXPECT_EQ(imported->sequences[0].sequence.tokens, file.tokens);
                expect_rows(model, imported->sequences[0].sequence);
            }
        }
    }
}

// Nothing says whether cells have an extension, and a token in it may look like a count of layers.
TEST_P(ImportKinds, OneTokenOfAnyIdComesBack) {
    const LlamaModel model = model_of(GetParam());
    for (const auto kind : {ImportKind::sequence, ImportKind::session, ImportKind::slot}) {
        for (Token token = 0; token < 100; ++token) {
            LlamaFile file = test::llama_file(model, kind, 1, 3);
            file.has_extension = token % 2 == 0 || token < 10;
            file.tokens = {token};
            PagePool pool(model.schema, kPoolBytes);
            const auto bytes = bytes_of(model, file);
            const auto imported = import_llama_state(bytes, "state", model.target, pool);
            ASSERT_TRUE(imported) << token << ": " << imported.status().to_string();
        }
    }
}

TEST_P(ImportKinds, EveryCutIsRefused) {
    const LlamaModel model = model_of(GetParam());
    for (const auto kind : {ImportKind::sequence, ImportKind::session, ImportKind::slot}) {
        LlamaFile file = test::llama_file(model, kind, 9, 5);
        file.has_empty_window = false;  // which no one could miss
        PagePool pool(model.schema, kPoolBytes);
        const auto bytes = bytes_of(model, file);
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            const auto cut = std::span(bytes).first(size);
            ASSERT_FALSE(import_llama_state(cut, "state", model.target, pool)) << size;
            ASSERT_EQ(pool.stats().pages_in_use, 0U);
        }
        auto longer = bytes;
        longer.push_back(std::byte{0});
        ASSERT_FALSE(import_llama_state(longer, "state", model.target, pool));
    }
}

// The format has no checksum: a flipped row or token can't be seen. Everything else can.
TEST_P(ImportKinds, EveryFlipThatCanBeSeenIsRefused) {
    const LlamaModel model = model_of(GetParam());
    for (const auto kind : {ImportKind::sequence, ImportKind::session, ImportKind::slot}) {
        const LlamaFile file = test::llama_file(model, kind, 9, 6);
        LlamaWriter writer(model.schema, file);
        auto bytes = writer.write();
        std::vector<bool> is_checked(bytes.size());
        for (const auto& [from, to] : writer.checked()) {
            for (std::size_t i = from; i < to; ++i) is_checked[i] = true;
        }
        PagePool pool(model.schema, kPoolBytes);
        const auto live = import_llama_state(bytes, "live", model.target, pool);
        ASSERT_TRUE(live) << live.status().to_string();
        const auto before = pool.stats().pages_in_use;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            for (const int bit : {0, 1, 7}) {
                bytes[i] ^= std::byte(1 << bit);
                const auto imported = import_llama_state(bytes, "flip", model.target, pool);
                if (is_checked[i]) {
                    ASSERT_FALSE(imported) << "byte " << i << " bit " << bit;
                    ASSERT_EQ(imported.status().message().find('\n'), std::string_view::npos);
                }
                bytes[i] ^= std::byte(1 << bit);
            }
            ASSERT_EQ(pool.stats().pages_in_use, before);
        }
        expect_rows(model, live->sequences[0].sequence);
    }
}

INSTANTIATE_TEST_SUITE_P(All, ImportKinds, testing::ValuesIn(test::kLlamaKinds),
                         [](const auto& parameter) { return std::string(parameter.param); });

// What is refused, by the field that is changed: the message says so.
struct Refusal {
    std::string_view kind, field;
    std::int64_t value;
    Code code;
    std::string_view message;
};

class ImportRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(ImportRefuses, ByName) {
    const Refusal& refusal = GetParam();
    const LlamaModel model = model_of(refusal.kind, 2);
    for (const auto kind : {ImportKind::sequence, ImportKind::session, ImportKind::slot}) {
        LlamaFile file = test::llama_file(model, kind, 9, 7);
        file.has_extension = refusal.field == "x" || refusal.field == "cell token";
        file.is_transposed = false;
        bool is_changed = false;
        int seen = 0;
        file.change = [&](std::string_view field, std::int64_t value) {
            if (field != refusal.field || ++seen > 2) return value;
            // The second one (a first token of -1 has a meaning of its own).
            if (seen == 1 && (field == "position" || field == "token")) return value;
            is_changed = true;
            return refusal.value;
        };
        PagePool pool(model.schema, kPoolBytes);
        const auto imported =
            import_llama_state(bytes_of(model, file), "file.bin", model.target, pool);
        if (!is_changed) continue;  // a field of another kind of file
        ASSERT_FALSE(imported) << refusal.field;
        EXPECT_EQ(imported.status().code(), refusal.code) << imported.status().to_string();
        EXPECT_THAT(imported.status().to_string(), HasSubstr(std::string(refusal.message)));
        EXPECT_THAT(imported.status().to_string(), HasSubstr("file.bin"));
        EXPECT_EQ(pool.stats().pages_in_use, 0U);
    }
}

constexpr std::int64_t kMax32 = 0xffffffff;

INSTANTIATE_TEST_SUITE_P(
    All, ImportRefuses,
    testing::Values(
        Refusal{"plain", "magic", 0x46554747, Code::corruption, "no llama.cpp sequence"},
        Refusal{"plain", "version", 3, Code::incompatible, "version 3, expected"},
        Refusal{"plain", "slot version", 2, Code::incompatible, "slot tokens of version 2"},
        Refusal{"plain", "token count", kMax32, Code::corruption, "claims 4294967295 elements"},
        Refusal{"plain", "slot tokens", kMax32, Code::corruption, "claims 4294967295 elements"},
        Refusal{"plain", "media", 1, Code::unimplemented, "media chunks"},
        Refusal{"plain", "token", -1, Code::incompatible, "id -1"},
        Refusal{"plain", "token", 100, Code::incompatible, "id 100, the model's are 0 to 99"},
        Refusal{"plain", "name size", kMax32, Code::corruption, "cut short"},
        Refusal{"plain", "name", 'x', Code::incompatible, "expected 'test'"},
        Refusal{"plain", "streams", 0, Code::corruption, "number of streams"},
        Refusal{"plain", "streams", 257, Code::corruption, "number of streams"},
        Refusal{"plain", "cell count", kMax32, Code::corruption, "claims 4294967295 elements"},
        Refusal{"plain", "position", -1, Code::corruption, "position -1"},
        Refusal{"plain", "position", 9, Code::corruption, "position 9, but 9 tokens"},
        Refusal{"plain", "position", 0x7fffffff, Code::corruption, "position 2147483647"},
        Refusal{"window", "position", 4, Code::corruption, "comes twice"},
        Refusal{"plain", "sequences", 0, Code::corruption, "in 0 sequences"},
        Refusal{"plain", "sequences", kMax32, Code::corruption, "in 4294967295 sequences"},
        Refusal{"plain", "x", 40, Code::unimplemented, "media can't be imported"},
        Refusal{"plain", "cell token", 99, Code::corruption, "token 99 at position"},
        Refusal{"plain", "V transposed", 2, Code::corruption, "V layout"},
        Refusal{"plain", "layers", 3, Code::incompatible, "3 layers, expected 2"},
        Refusal{"plain", "rotation", 64, Code::unimplemented, "are rotated"},
        Refusal{"plain", "V rotation", 64, Code::unimplemented, "are rotated"},
        Refusal{"dsa", "indexer rotation", 0, Code::unimplemented, "are rotated"},
        Refusal{"plain", "K type", 8, Code::incompatible, "'k' rows of q8_0, expected f16"},
        Refusal{"plain", "K type", 30, Code::incompatible, "'k' rows of bf16, expected f16"},
        Refusal{"plain", "V type", 77, Code::incompatible, "'v' rows of type 77, expected f16"},
        Refusal{"plain", "K row", 1024, Code::incompatible, "K rows of 1024 bytes, expected"},
        Refusal{"plain", "V row", 0, Code::incompatible, "V rows of 0 bytes, expected"},
        Refusal{"msa", "ignored V row", -1, Code::corruption, "claims 9 elements"},
        Refusal{"recurrent", "recurrent cells", 257, Code::corruption, "number of recurrent cells"},
        Refusal{"recurrent", "recurrent position", 7, Code::corruption, "after position 7, but 9"},
        Refusal{"recurrent", "recurrent position", -1, Code::corruption, "position -1"},
        Refusal{"recurrent", "recurrent layout", 1, Code::corruption, "layout of recurrent"},
        Refusal{"recurrent", "recurrent layers", 5, Code::incompatible, "5 layers, expected 4"},
        Refusal{"recurrent", "recurrent row", 1 << 20, Code::incompatible, "of 1048576 bytes"},
        Refusal{"dsv4", "dsv4 magic", 1, Code::incompatible, "magic is 1"},
        Refusal{"dsv4", "dsv4 mode", 1, Code::unimplemented, "partial state"},
        Refusal{"dsv4", "cache version", 3, Code::incompatible, "version 3"},
        Refusal{"dsv4", "dsv4 layers", 7, Code::incompatible, "number of layers is 7"},
        Refusal{"dsv4", "layer", 9, Code::incompatible, "layer is 9"},
        Refusal{"dsv4", "tensor rows", -1, Code::incompatible, "number of rows"},
        Refusal{"dsv4", "ratio", 8, Code::incompatible, "ratio is 8, expected 4"},
        Refusal{"dsv4", "state rows", kMax32, Code::incompatible, "elements of state"}));

TEST(Import, TokensAndPositionsMustAgree) {
    const LlamaModel model = model_of("hybrid");
    PagePool pool(model.schema, kPoolBytes);
    for (const int change : {-1, 1}) {
        LlamaFile file = test::llama_file(model, ImportKind::sequence, 9, 3);
        file.tokens.resize(static_cast<std::size_t>(9 + change));
        file.has_extension = false;
        const auto imported = import_llama_state(bytes_of(model, file), "f", model.target, pool);
        ASSERT_FALSE(imported);
        EXPECT_EQ(imported.status().code(), Code::corruption);
    }
}

TEST(Import, HoleInAWindowIsRefusedUnlessNothingSeesIt) {
    const LlamaModel model = model_of("window");
    LlamaFile file = test::llama_file(model, ImportKind::sequence, 12, 3);
    file.window[0] = llama_cells(10, 12, 0);  // window of 5: the chunk of 12 begins at 10
    PagePool pool(model.schema, kPoolBytes);
    const auto bytes = bytes_of(model, file);
    const auto refused = import_llama_state(bytes, "f", model.target, pool);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.status().to_string(),
                HasSubstr("window cache: position 8 of 12 is missing"));
    ImportTarget chunked = model.target;
    chunked.window_is_chunk = true;
    EXPECT_TRUE(import_llama_state(bytes, "f", chunked, pool));
}

TEST(Import, OtherArchitectureIsRefusedWithBothNames) {
    const LlamaModel model = model_of("plain");
    LlamaFile file = test::llama_file(model, ImportKind::session, 9, 3);
    file.architecture = "other\n";
    PagePool pool(model.schema, kPoolBytes);
    const auto imported = import_llama_state(bytes_of(model, file), "f", model.target, pool);
    ASSERT_FALSE(imported);
    EXPECT_THAT(imported.status().to_string(),
                HasSubstr("state of a 'other?' model, expected 'test'"));
}

TEST(Import, FullPoolTakesNothing) {
    const LlamaModel model = model_of("hybrid_window");
    const LlamaFile file = test::llama_file(model, ImportKind::sequence, 300, 3);
    const auto bytes = bytes_of(model, file);
    PagePool roomy(model.schema, kPoolBytes);
    std::uint64_t needed = 0;
    {
        const auto imported = import_llama_state(bytes, "f", model.target, roomy);
        ASSERT_TRUE(imported);
        needed = roomy.stats().bytes_in_use;
    }
    PagePool pool(model.schema, needed - 1);
    const auto imported = import_llama_state(bytes, "f", model.target, pool);
    ASSERT_FALSE(imported);
    EXPECT_EQ(imported.status().code(), Code::resource_exhausted);
    EXPECT_EQ(pool.stats().pages_in_use, 0U);
}

// Session with two sequences: 0 and 1 share a prefix of 6, then 0 goes on alone to 9.
TEST(Import, SessionSequencesThatShareCellsBothCome) {
    const LlamaModel model = model_of("window");
    LlamaFile file = test::llama_file(model, ImportKind::session, 9, 4);
    file.has_extension = false;
    file.streams = {llama_cells(0, 6, 0, {0, 1})};
    for (const auto& cell : llama_cells(6, 9, 0)) file.streams[0].push_back(cell);
    file.window.clear();
    PagePool pool(model.schema, kPoolBytes);
    const auto imported = import_llama_state(bytes_of(model, file), "f", model.target, pool);
    ASSERT_TRUE(imported) << imported.status().to_string();
    ASSERT_EQ(imported->sequences.size(), 2U);
    EXPECT_EQ(imported->sequences[0].sequence.position(), 9U);
    EXPECT_EQ(imported->sequences[1].id, 1);
    EXPECT_EQ(imported->sequences[1].sequence.position(), 6U);
    for (const auto& one : imported->sequences) expect_rows(model, one.sequence);
}

TEST(Import, SessionSequenceWithoutTokensNeedsThemFromTheCaller) {
    for (const std::string_view kind : {"plain", "hybrid", "dsv4"}) {
        const LlamaModel model = model_of(kind);
        LlamaFile file = test::llama_file(model, ImportKind::session, 9, 4);
        file.has_extension = false;
        file.streams = {llama_cells(0, 9, 0), {}, llama_cells(0, 7, 3, {2}, 2)};
        file.window.clear();
        file.recurrent = {{8, {0}, 0}, {6, {2}, 2}};
        file.dsv4_streams = 3;
        PagePool pool(model.schema, kPoolBytes);
        const auto bytes = bytes_of(model, file);
        const auto refused = import_llama_state(bytes, "f", model.target, pool);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.status().code(), Code::unimplemented) << refused.status().to_string();
        EXPECT_THAT(refused.status().to_string(), HasSubstr("not of sequence 2"));

        const KnownTokens known = {{2, test::llama_tokens(7, 99)}};
        const auto imported = import_llama_state(bytes, "f", model.target, pool, known);
        ASSERT_TRUE(imported) << imported.status().to_string();
        ASSERT_EQ(imported->sequences.size(), 2U);
        expect_rows(model, imported->sequences[0].sequence, 0);
        expect_rows(model, imported->sequences[1].sequence, 2);
    }
}

TEST(Import, SummaryTakesNoPages) {
    const LlamaModel model = model_of("dsa_window");
    const auto bytes = bytes_of(model, test::llama_file(model, ImportKind::slot, 20, 4));
    const auto summary = check_llama_state(bytes, "f", model.target, model.schema);
    ASSERT_TRUE(summary) << summary.status().to_string();
    EXPECT_EQ(summary->kind, ImportKind::slot);
    ASSERT_EQ(summary->sequences.size(), 1U);
    EXPECT_EQ(summary->sequences[0].tokens, 20U);
}

TEST(Import, UnknownGroupIsRefused) {
    LlamaModel model = model_of("plain");
    const auto bytes = bytes_of(model, test::llama_file(model, ImportKind::sequence, 5, 4));
    model.schema.groups[0].name = "novelty";
    const auto summary = check_llama_state(bytes, "f", model.target, model.schema);
    ASSERT_FALSE(summary);
    EXPECT_THAT(summary.status().to_string(), HasSubstr("no part for memory group 'novelty'"));
}

}  // namespace
}  // namespace stet::state
