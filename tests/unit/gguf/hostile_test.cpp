// Damaged and hostile files: whatever the bytes, an answer and no harm. Run it with sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "gguf/shard.h"
#include "support/gguf_writer.h"

namespace stet::gguf {
namespace {

using test::GgufWriter;

// One of each: every kind of value, arrays, two tensors of different types.
GgufWriter small_model() {
    GgufWriter writer;
    writer.set_string("general.architecture", "llama").set_u32("general.alignment", 32);
    writer.set_u8("u8", 1).set_i16("i16", -1).set_f32("f32", 1.0f).set_bool("bool", true);
    writer.set_u64("u64", 5).set_f64("f64", 2.0);
    writer.set_strings("tokens", {"a", "", "bcd"}).set_f32s("scores", {1.0f, 2.0f});
    writer.set_i32s("types", {1, 2, 3}).set_bools("flags", {0, 1});
    const std::vector<float> values(12, 0.5f);
    writer.add_f32("a.weight", {3, 4}, values);
    writer.add_tensor("b.weight", TensorType::q4_0, {32, 2}, std::vector<std::byte>(36));
    return writer;
}

Status parse(std::span<const std::byte> bytes) {
    // In a heap block of exactly this size, so that a sanitizer sees one byte too many.
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    const auto shard = parse_shard(exact, "test", 0);
    if (!shard.is_ok()) return shard.status();
    for (const Tensor& tensor : shard->tensors) {
        EXPECT_LE(tensor.offset_bytes, exact.size());
        EXPECT_LE(tensor.size_bytes, exact.size() - tensor.offset_bytes);
    }
    return {};
}

TEST(Hostile, TheSmallModelIsFine) {
    EXPECT_TRUE(parse(small_model().bytes()).is_ok());
}

TEST(Hostile, EveryTruncationIsCorruption) {
    const std::vector<std::byte> bytes = small_model().bytes();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const Status status = parse(std::span(bytes).first(size));
        ASSERT_EQ(status.code(), Code::corruption) << size << ": " << status.to_string();
    }
}

TEST(Hostile, EveryFlippedByteOfTheHeaderIsAnswered) {
    GgufWriter writer = small_model();
    const std::vector<std::byte> bytes = writer.bytes();
    std::size_t refused = 0;
    for (std::size_t i = 0; i < writer.header_bytes(); ++i) {
        for (int flip = 1; flip < 256; ++flip) {
            std::vector<std::byte> damaged = bytes;
            damaged[i] ^= std::byte(flip);
            const Status status = parse(damaged);
            if (status.is_ok()) continue;  // a letter of a name, a value
            ++refused;
            ASSERT_TRUE(status.code() == Code::corruption || status.code() == Code::incompatible)
                << i << ": " << status.to_string();
        }
    }
    EXPECT_GT(refused, writer.header_bytes() * 255 / 4);
}

std::uint64_t read_field(const std::vector<std::byte>& bytes, const GgufWriter::Field& field) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + field.offset_bytes, field.size_bytes);
    return value;
}

// Fields of which another value may make another valid file, as the format has no redundancy: one
// tensor fewer, a name that takes in the bytes after it.
bool may_stay_valid(const std::string& name) {
    for (const char* part :
         {"shape", "type", "dimensions", "array length", "version", "tensor count", "key length"}) {
        if (name.find(part) != std::string::npos) return true;
    }
    return false;
}

TEST(Hostile, EveryCountSizeTypeAndOffsetIsAttacked) {
    GgufWriter writer = small_model();
    const std::vector<std::byte> bytes = writer.bytes();
    std::size_t attacks = 0;
    for (const GgufWriter::Field& field : writer.fields()) {
        const std::uint64_t good = read_field(bytes, field);
        std::vector<std::uint64_t> values = {
            good - 1,
            good + 1,
            good * 2,
            bytes.size(),
            bytes.size() - field.offset_bytes,
            bytes.size() - field.offset_bytes - field.size_bytes + 1};
        for (int shift = 0; shift < 64; ++shift) {
            const std::uint64_t power = std::uint64_t{1} << shift;
            values.insert(values.end(), {power, power - 1, 0 - power});
        }
        for (const std::uint64_t value : values) {
            std::vector<std::byte> attacked = bytes;
            std::memcpy(attacked.data() + field.offset_bytes, &value, field.size_bytes);
            if (attacked == bytes) continue;
            ++attacks;
            const Status status = parse(attacked);
            if (status.is_ok()) {
                EXPECT_TRUE(may_stay_valid(field.name)) << field.name << " = " << value;
            } else {
                EXPECT_TRUE(status.code() == Code::corruption ||
                            status.code() == Code::incompatible)
                    << status.to_string();
            }
        }
    }
    EXPECT_GT(attacks, 5000u);
}

// The limits hold before anything is reserved: these claim far more than the file has.
TEST(Hostile, HugeCountsAllocateNothing) {
    GgufWriter writer = small_model();
    const std::vector<std::byte> bytes = writer.bytes();
    for (const GgufWriter::Field& field : writer.fields()) {
        const bool is_count = field.name.ends_with("count") || field.name.ends_with("length");
        if (!is_count) continue;
        for (const std::uint64_t value :
             {std::uint64_t{1} << 31, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 61,
              std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
            std::vector<std::byte> attacked = bytes;
            std::memcpy(attacked.data() + field.offset_bytes, &value, field.size_bytes);
            EXPECT_EQ(parse(attacked).code(), Code::corruption) << field.name << " = " << value;
        }
    }
}

// Below the fixed limits, so only the bytes left can refuse them: before the array is reserved.
TEST(Hostile, ArraysLongerThanTheFileAreRefusedBeforeTheyAreReserved) {
    GgufWriter writer = small_model();
    const std::vector<std::byte> bytes = writer.bytes();
    std::size_t arrays = 0;
    for (const GgufWriter::Field& field : writer.fields()) {
        if (!field.name.ends_with("array length") || field.name.starts_with("flags")) continue;
        ++arrays;
        std::vector<std::byte> attacked = bytes;
        const std::uint64_t value = 1 << 23;
        std::memcpy(attacked.data() + field.offset_bytes, &value, field.size_bytes);
        const Status status = parse(attacked);
        EXPECT_EQ(status.code(), Code::corruption);
        EXPECT_NE(status.to_string().find("claims 8388608 elements"), std::string::npos)
            << field.name << ": " << status.to_string();
    }
    EXPECT_EQ(arrays, 3u);
}

TEST(Hostile, MessagesAreOneLineWhateverAKeyIs) {
    GgufWriter writer = small_model();
    writer.set_u32s("odd\nkey", {1, 2}).set_strings("odder\n", {"a"}).set_u32("last\n", 1);
    const std::vector<std::byte> bytes = writer.bytes();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const Status status = parse({bytes.begin(), bytes.begin() + static_cast<long>(size)});
        if (status) continue;
        EXPECT_EQ(status.to_string().find('\n'), std::string::npos) << status.to_string();
    }
}

TEST(Hostile, OverlappingTensorsAreRefused) {
    GgufWriter writer = small_model();
    std::vector<std::byte> bytes = writer.bytes();
    const auto& fields = writer.fields();
    const auto offset = std::find_if(
        fields.begin(), fields.end(),
        [](const GgufWriter::Field& field) { return field.name == "b.weight: offset"; });
    ASSERT_NE(offset, fields.end());
    const std::uint64_t shared = 32;  // inside a.weight, which has 48 bytes
    std::memcpy(bytes.data() + offset->offset_bytes, &shared, sizeof(shared));
    const Status status = parse(bytes);
    EXPECT_EQ(status.code(), Code::corruption);
    EXPECT_NE(status.to_string().find("overlaps"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace stet::gguf
