#include "gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "support/gguf_writer.h"
#include "support/temp_directory.h"

namespace stet::gguf {
namespace {

using test::GgufValue;
using test::GgufWriter;
using test::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kU64Max = std::numeric_limits<std::uint64_t>::max();

class GgufTest : public testing::Test {
  protected:
    TempDirectory directory_;

    Result<std::unique_ptr<File>> open(GgufWriter& writer, const char* name = "model.gguf") {
        EXPECT_TRUE(writer.save(directory_ / name).is_ok());
        return File::open(Env::posix(), directory_ / name);
    }
    Status failure(GgufWriter& writer) { return open(writer).status(); }
};

std::vector<float> counting(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
    return values;
}

TEST_F(GgufTest, ReadsEveryKindOfValue) {
    GgufWriter writer;
    writer.set_u8("u8", 200).set_i8("i8", -100).set_u16("u16", 60000).set_i16("i16", -30000);
    writer.set_u32("u32", 4000000000u).set_i32("i32", -2000000000);
    writer.set_u64("u64", kU64Max).set_i64("i64", std::numeric_limits<std::int64_t>::min());
    writer.set_f32("f32", 0.5f).set_f64("f64", 0.1).set_bool("yes", true).set_bool("no", false);
    writer.set_string("text", std::string_view("a\0b", 3)).set_string("empty", "");
    writer.set_u32s("u32s", {1, 4000000000u}).set_i32s("i32s", {-1}).set_f32s("f32s", {1.5f});
    writer.set_bools("bools", {1, 0}).set_strings("texts", {"", "x"}).set_i32s("none", {});
    const auto file = std::move(open(writer)).value();

    EXPECT_EQ(file->get_uint("u8"), 200u);
    EXPECT_EQ(file->get_int("i8"), -100);
    EXPECT_EQ(file->get_uint("u16"), 60000u);
    EXPECT_EQ(file->get_int("i16"), -30000);
    EXPECT_EQ(file->get_uint("u32"), 4000000000u);
    EXPECT_EQ(file->get_int("i32"), -2000000000);
    EXPECT_EQ(file->get_uint("u64"), kU64Max);
    EXPECT_EQ(file->get_int("i64"), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(file->get_float("f32"), 0.5);
    EXPECT_EQ(file->get_float("f64"), 0.1);
    EXPECT_EQ(file->get_bool("yes"), true);
    EXPECT_EQ(file->get_bool("no"), false);
    EXPECT_EQ(file->get_string("text"), std::string_view("a\0b", 3));
    EXPECT_EQ(file->get_string("empty"), "");
    EXPECT_THAT(*file->get_ints("u32s"), ElementsAre(1, 4000000000));
    EXPECT_THAT(*file->get_ints("i32s"), ElementsAre(-1));
    EXPECT_THAT(*file->get_floats("f32s"), ElementsAre(1.5));
    EXPECT_THAT(*file->get_ints("bools"), ElementsAre(1, 0));
    EXPECT_THAT(*file->get_strings("texts"), ElementsAre("", "x"));
    EXPECT_TRUE(file->get_ints("none")->empty());
    EXPECT_EQ(file->metadata().size(), 20u);
    EXPECT_TRUE(file->has("none"));
    EXPECT_FALSE(file->has("absent"));
}

TEST_F(GgufTest, NumbersConvertWhereExact) {
    GgufWriter writer;
    writer.set_i32("minus", -1).set_u64("big", kU64Max).set_f32("ten", 10.0f);
    writer.set_f32("half", 0.5f).set_u32("u", 7).set_f64("nan", std::nan("")).set_bool("b", true);
    writer.set_f64("2^64", 18446744073709551616.0).set_f64("-2^63", -9223372036854775808.0);
    writer.set_i64("2^53+1", 9007199254740993).set_string("text", "1");
    const auto file = std::move(open(writer)).value();

    EXPECT_EQ(file->get_uint("minus"), std::nullopt);
    EXPECT_EQ(file->get_float("minus"), -1.0);
    EXPECT_EQ(file->get_int("big"), std::nullopt);
    EXPECT_EQ(file->get_float("big"), std::nullopt);
    EXPECT_EQ(file->get_uint("ten"), 10u);
    EXPECT_EQ(file->get_int("ten"), 10);
    EXPECT_EQ(file->get_uint("half"), std::nullopt);
    EXPECT_EQ(file->get_int("half"), std::nullopt);
    EXPECT_EQ(file->get_int("u"), 7);
    EXPECT_EQ(file->get_float("u"), 7.0);
    EXPECT_EQ(file->get_uint("nan"), std::nullopt);
    EXPECT_EQ(file->get_int("nan"), std::nullopt);
    EXPECT_EQ(file->get_uint("2^64"), std::nullopt);
    EXPECT_EQ(file->get_int("2^64"), std::nullopt);
    EXPECT_EQ(file->get_int("-2^63"), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(file->get_float("2^53+1"), std::nullopt);
    for (const char* key : {"b", "text", "absent"}) {
        EXPECT_EQ(file->get_uint(key), std::nullopt) << key;
        EXPECT_EQ(file->get_int(key), std::nullopt) << key;
        EXPECT_EQ(file->get_float(key), std::nullopt) << key;
        EXPECT_EQ(file->get_ints(key), nullptr) << key;
        EXPECT_EQ(file->get_floats(key), nullptr) << key;
        EXPECT_EQ(file->get_strings(key), nullptr) << key;
    }
    EXPECT_EQ(file->get_bool("u"), std::nullopt);
    EXPECT_EQ(file->get_string("u"), std::nullopt);
}

TEST_F(GgufTest, ReadsTensors) {
    GgufWriter writer;
    writer.set_u32("general.alignment", 64).set_alignment(64);
    writer.add_f32("a", {3}, counting(3)).add_f32("b", {2, 3, 4, 5}, counting(120));
    writer.add_tensor("q", TensorType::q4_0, {64, 2}, std::vector<std::byte>(2 * 2 * 18));
    const auto file = std::move(open(writer)).value();

    ASSERT_EQ(file->tensors().size(), 3u);
    const Tensor* a = file->find_tensor("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->dimensions, 1u);
    EXPECT_THAT(a->shape, ElementsAre(3, 1, 1, 1));
    EXPECT_EQ(a->size_bytes, 12u);
    EXPECT_EQ(a->offset_bytes % 64, 0u);
    const Tensor* b = file->find_tensor("b");
    EXPECT_THAT(b->shape, ElementsAre(2, 3, 4, 5));
    const auto data = file->data(*b);
    ASSERT_EQ(data.size(), 480u);
    float last = 0;
    std::memcpy(&last, data.data() + 476, sizeof(last));
    EXPECT_EQ(last, 119.0f);
    EXPECT_EQ(file->find_tensor("q")->size_bytes, 72u);
    EXPECT_EQ(file->find_tensor("none"), nullptr);
    EXPECT_EQ(file->size_bytes(), std::filesystem::file_size(file->path()));
    EXPECT_EQ(file->file_count(), 1u);
}

TEST_F(GgufTest, ReadsVersion2AndFilesWithoutTensors) {
    GgufWriter writer;
    writer.set_version(2).set_string("general.architecture", "llama");
    EXPECT_EQ((*open(writer))->get_string("general.architecture"), "llama");
    GgufWriter empty;
    EXPECT_TRUE(open(empty).is_ok());
}

TEST_F(GgufTest, VersionsAndByteOrderThatWeCannotReadAreIncompatible) {
    for (const std::uint32_t version : {1u, 4u, 65535u, 0x03000000u, 0x02000000u}) {
        GgufWriter writer;
        const Status status = failure(writer.set_version(version));
        EXPECT_EQ(status.code(), Code::incompatible) << version;
        const bool is_swapped = version > 65535;
        EXPECT_THAT(status.to_string(),
                    HasSubstr(is_swapped ? "big-endian" : std::to_string(version)));
    }
    GgufWriter writer;
    EXPECT_EQ(failure(writer.set_version(0)).code(), Code::corruption);
}

TEST_F(GgufTest, OtherFilesAreNotGguf) {
    for (const std::string text :
         {"", "GGU", "ggml....................", "<html>\n\x1b[31m error"}) {
        std::ofstream(directory_ / "x") << text;
        const Status status = File::open(Env::posix(), directory_ / "x").status();
        EXPECT_EQ(status.code(), Code::corruption) << text;
        EXPECT_THAT(status.to_string(), HasSubstr("/x"));
        EXPECT_EQ(status.to_string().find_first_of("\n\x1b"), std::string::npos);
    }
    EXPECT_EQ(File::open(Env::posix(), directory_ / "none").status().code(), Code::not_found);
    EXPECT_EQ(File::open(Env::posix(), directory_.path()).status().code(), Code::invalid_argument);
}

TEST_F(GgufTest, DuplicatesAreRefused) {
    GgufWriter keys;
    EXPECT_THAT(failure(keys.set_u32("k", 1).set_u32("k", 1)).to_string(),
                HasSubstr("\"k\": found twice"));
    GgufWriter tensors;
    tensors.add_f32("t", {1}, counting(1)).add_f32("t", {1}, counting(1));
    EXPECT_EQ(failure(tensors).code(), Code::corruption);
}

TEST_F(GgufTest, NamesHaveALimit) {
    GgufWriter longest;
    longest.set_u32(std::string(65535, 'k'), 1);
    EXPECT_TRUE(open(longest).is_ok());
    GgufWriter longer;
    EXPECT_EQ(failure(longer.set_u32(std::string(65536, 'k'), 1)).code(), Code::corruption);
    GgufWriter empty;
    EXPECT_EQ(failure(empty.set_u32("", 1)).code(), Code::corruption);
    GgufWriter tensor;
    tensor.add_f32(std::string(65536, 't'), {1}, counting(1));
    EXPECT_EQ(failure(tensor).code(), Code::corruption);
}

TEST_F(GgufTest, NamesCannotForgeMessages) {
    GgufWriter writer;
    writer.add_f32("t\nERROR: \x1b[2J\"" + std::string(500, 'x'), {0}, {});
    const std::string message = failure(writer).to_string();
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u);
}

TEST_F(GgufTest, UnknownTypesAreNamed) {
    for (const std::uint32_t id : {4u, 5u, 31u, 36u, 43u, 99u, 0xffffffffu}) {
        GgufWriter writer;
        writer.add_tensor("t", TensorType{id}, {32}, std::vector<std::byte>(64));
        const Status status = failure(writer);
        EXPECT_EQ(status.code(), Code::incompatible) << id;
        EXPECT_THAT(status.to_string(), HasSubstr("type id " + std::to_string(id)));
    }
    GgufWriter writer;
    writer.set_raw("k", GgufValue{13}, std::vector<std::byte>(8));
    EXPECT_EQ(failure(writer).code(), Code::corruption);
}

TEST_F(GgufTest, ArraysOfArraysAreRefused) {
    GgufWriter writer;
    writer.set_raw_array("k", GgufValue::array, 1, std::vector<std::byte>(64));
    EXPECT_EQ(failure(writer).code(), Code::incompatible);
    GgufWriter unknown;
    unknown.set_raw_array("k", GgufValue{77}, 1, std::vector<std::byte>(64));
    EXPECT_EQ(failure(unknown).code(), Code::corruption);
}

TEST_F(GgufTest, ValuesThatDoNotFitAreRefused) {
    GgufWriter integers;
    integers.set_raw_array("k", GgufValue::u64, 1, std::as_bytes(std::span(&kU64Max, 1)));
    EXPECT_EQ(failure(integers).code(), Code::incompatible);
    GgufWriter bools;
    EXPECT_EQ(failure(bools.set_bools("k", {2})).code(), Code::corruption);
    GgufWriter one_bool;
    const std::byte two{2};
    EXPECT_EQ(failure(one_bool.set_raw("k", GgufValue::boolean, {&two, 1})).code(),
              Code::corruption);
}

TEST_F(GgufTest, ArraysHaveALimitTogether) {
    GgufWriter writer;
    const std::vector<std::byte> data(9 << 20);
    writer.set_raw_array("a", GgufValue::u8, data.size(), data);
    EXPECT_TRUE(open(writer).is_ok());
    writer.set_raw_array("b", GgufValue::u8, data.size(), data);
    EXPECT_THAT(failure(writer).to_string(), HasSubstr("16777216 are allowed"));
}

TEST_F(GgufTest, AlignmentIsAPowerOfTwo) {
    for (const std::uint32_t alignment : {1u, 8u, 32u, 4096u}) {
        GgufWriter writer;
        writer.set_u32("general.alignment", alignment).set_alignment(alignment);
        writer.add_f32("a", {3}, counting(3)).add_f32("b", {3}, counting(3));
        EXPECT_EQ(open(writer).is_ok(), true) << alignment;
    }
    for (const std::uint32_t alignment : {0u, 3u, 33u, 0xffffffffu, 0x80000000u}) {
        GgufWriter writer;
        writer.set_u32("general.alignment", alignment).add_f32("a", {3}, counting(3));
        EXPECT_EQ(failure(writer).code(), Code::corruption) << alignment;
    }
    GgufWriter text;
    EXPECT_EQ(failure(text.set_string("general.alignment", "32")).code(), Code::corruption);
}

TEST_F(GgufTest, ShapesMustFitTheirTypeAndTheFile) {
    const std::vector<std::byte> data(1024);
    const std::vector<std::vector<std::uint64_t>> wrong = {
        {},
        {0},
        {32, 0},
        {31},
        {48},
        {1ull << 32, 1ull << 32},
        {1ull << 63, 2},
        {kU64Max - 31},
        {1ull << 40},
        {32, 1, 1, 1, 1},
        {32, 1, 1, 1, 1, 1ull << 60},
    };
    for (const auto& shape : wrong) {
        GgufWriter writer;
        writer.add_tensor("t", TensorType::q8_0, shape, data);
        EXPECT_EQ(failure(writer).code(), Code::corruption) << testing::PrintToString(shape);
    }
    GgufWriter right;
    right.add_tensor("t", TensorType::q8_0, {32, 30}, data);  // 1020 bytes
    EXPECT_TRUE(open(right).is_ok());
    GgufWriter one_too_many;
    one_too_many.add_tensor("t", TensorType::q8_0, {32, 31}, data);
    EXPECT_EQ(failure(one_too_many).code(), Code::corruption);
}

// An Env in which a file is longer when it is looked at than when it is mapped.
class ShrinkingEnv final : public Env {
  public:
    Result<std::unique_ptr<stet::File>> open(const Path& path, OpenMode mode) override {
        return base_.open(path, mode);
    }
    Result<std::unique_ptr<Mapping>> map(const Path&) override {
        class Empty final : public Mapping {
            std::span<const std::byte> bytes() const override { return {}; }
        };
        return std::unique_ptr<Mapping>(std::make_unique<Empty>());
    }
    Result<FileInfo> info(const Path& path) override { return base_.info(path); }
    Result<std::vector<std::string>> list(const Path& path) override { return base_.list(path); }
    Status make_directory(const Path& path) override { return base_.make_directory(path); }
    Status rename(const Path& from, const Path& to) override { return base_.rename(from, to); }
    Status remove(const Path& path) override { return base_.remove(path); }
    Status sync_directory(const Path& path) override { return base_.sync_directory(path); }
    Result<std::unique_ptr<FileLock>> lock(const Path& path) override { return base_.lock(path); }
    Result<std::uint64_t> free_bytes(const Path& path) override { return base_.free_bytes(path); }
    std::chrono::system_clock::time_point now() override { return base_.now(); }
    std::chrono::steady_clock::time_point steady_now() override { return base_.steady_now(); }

  private:
    Env& base_ = Env::posix();
};

TEST_F(GgufTest, AFileThatChangesWhileOpenedIsAConflict) {
    GgufWriter writer;
    ASSERT_TRUE(open(writer).is_ok());
    ShrinkingEnv env;
    EXPECT_EQ(File::open(env, directory_ / "model.gguf").status().code(), Code::conflict);
}

}  // namespace
}  // namespace stet::gguf
