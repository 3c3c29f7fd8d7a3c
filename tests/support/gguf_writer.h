// Builds small GGUF files in memory, valid or deliberately wrong. Entries keep the order in which
// they were added; nothing is checked. Not for real conversion work.
//
//     GgufWriter writer;
//     writer.set_string("general.architecture", "llama").set_u32("llama.block_count", 1);
//     writer.add_f32("token_embd.weight", {4, 8}, values);
//     ASSERT_TRUE(writer.save(path).is_ok());
//
// Thread rules: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::test {

// The format's value type ids.
enum class GgufValue : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
};

class GgufWriter {
  public:
    // An integer of the header as bytes() lays it out: what an attack would change.
    struct Field {
        std::string name;  // "tensor count", "a.b: type", "t.weight: shape 0"
        std::size_t offset_bytes;
        std::size_t size_bytes;
    };

    GgufWriter& set_u8(std::string_view key, std::uint8_t value);
    GgufWriter& set_i8(std::string_view key, std::int8_t value);
    GgufWriter& set_u16(std::string_view key, std::uint16_t value);
    GgufWriter& set_i16(std::string_view key, std::int16_t value);
    GgufWriter& set_u32(std::string_view key, std::uint32_t value);
    GgufWriter& set_i32(std::string_view key, std::int32_t value);
    GgufWriter& set_u64(std::string_view key, std::uint64_t value);
    GgufWriter& set_i64(std::string_view key, std::int64_t value);
    GgufWriter& set_f32(std::string_view key, float value);
    GgufWriter& set_f64(std::string_view key, double value);
    GgufWriter& set_bool(std::string_view key, bool value);
    GgufWriter& set_string(std::string_view key, std::string_view value);
    GgufWriter& set_u32s(std::string_view key, const std::vector<std::uint32_t>& values);
    GgufWriter& set_i32s(std::string_view key, const std::vector<std::int32_t>& values);
    GgufWriter& set_f32s(std::string_view key, const std::vector<float>& values);
    GgufWriter& set_bools(std::string_view key, const std::vector<std::uint8_t>& values);
    GgufWriter& set_strings(std::string_view key, const std::vector<std::string>& values);
    // The bytes of the value as they are to stand in the file.
    GgufWriter& set_raw(std::string_view key, GgufValue type, std::span<const std::byte> bytes);
    // Same, for any element type, `count` as claimed.
    GgufWriter& set_raw_array(std::string_view key, GgufValue type, std::uint64_t count,
                              std::span<const std::byte> bytes);

    // shape[0] is the contiguous one. Data are padded to the alignment after each tensor.
    GgufWriter& add_tensor(std::string_view name, gguf::TensorType type,
                           std::vector<std::uint64_t> shape, std::vector<std::byte> data);
    GgufWriter& add_f32(std::string_view name, std::vector<std::uint64_t> shape,
                        std::span<const float> values);

    // Of the layout only: tell readers with set_u32("general.alignment", value).
    GgufWriter& set_alignment(std::uint64_t alignment);
    GgufWriter& set_version(std::uint32_t version);

    // The file; the last tensor isn't padded. fields() then says where its integers are.
    std::vector<std::byte> bytes();
    const std::vector<Field>& fields() const { return fields_; }
    std::size_t header_bytes() const { return header_bytes_; }  // up to the tensor data
    Status save(const std::filesystem::path& path);

  private:
    struct Entry {
        std::string key;
        GgufValue type;
        GgufValue element_type;  // of an array
        std::uint64_t count;     // of an array
        std::vector<std::byte> bytes;
    };
    struct TensorEntry {
        std::string name;
        gguf::TensorType type;
        std::vector<std::uint64_t> shape;
        std::vector<std::byte> data;
    };
    template <typename T>
    GgufWriter& set_scalar(std::string_view key, GgufValue type, T value);
    template <typename T>
    GgufWriter& set_array(std::string_view key, GgufValue type, const std::vector<T>& values);
    template <typename T>
    void put(const std::string& field, T value);
    void put_bytes(std::span<const std::byte> bytes);
    void put_text(const std::string& field, std::string_view text);
    void pad();

    std::uint32_t version_ = 3;
    std::uint64_t alignment_ = 32;
    std::vector<Entry> entries_;
    std::vector<TensorEntry> tensors_;
    std::vector<std::byte> out_;
    std::vector<Field> fields_;
    std::size_t header_bytes_ = 0;
};

}  // namespace stet::test
