#include "gguf/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/bytes.h"
#include "base/quote.h"
#include "base/try.h"

namespace stet::gguf {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kVersionMin = 2;
constexpr std::uint32_t kVersionMax = 3;
constexpr std::uint64_t kAlignmentDefault = 32;
constexpr std::uint32_t kDimensionsMax = 4;

// Far above any real model. Values grow when read (a byte of an array becomes 8, an empty string
// 32), so that the size of the file alone would not bound the memory that a hostile one takes.
constexpr std::uint64_t kNameBytesMax = 65535;
constexpr std::uint64_t kMetadataMax = 1 << 16;
constexpr std::uint64_t kTensorsMax = 1 << 20;
constexpr std::uint64_t kArrayElementsMax = 1 << 24;  // of all arrays together

// The least bytes an entry can take: its lengths, one character of name, the smallest value.
constexpr std::uint64_t kMetadataBytesMin = 8 + 1 + 4 + 1;
constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

enum class ValueType : std::uint32_t {
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

class Parser {
  public:
    Parser(std::span<const std::byte> bytes, const std::string& what, std::uint32_t file_index)
        : reader_(bytes, what), size_bytes_(bytes.size()), file_index_(file_index) {}

    Result<Shard> run() {
        STET_TRY(read_magic());
        STET_TRY(read_version());
        STET_ASSIGN(const auto tensor_count, reader_.read<std::uint64_t>("tensor count"));
        STET_ASSIGN(const auto metadata_count, reader_.read<std::uint64_t>("metadata count"));
        STET_TRY(check_count("metadata count", metadata_count, kMetadataMax, kMetadataBytesMin));
        STET_TRY(check_count("tensor count", tensor_count, kTensorsMax, kTensorBytesMin));
        for (std::uint64_t i = 0; i < metadata_count; ++i) STET_TRY(read_entry());
        shard_.tensors.reserve(tensor_count);
        for (std::uint64_t i = 0; i < tensor_count; ++i) STET_TRY(read_tensor());
        STET_TRY(place_tensors());
        return std::move(shard_);
    }

  private:
    Status read_magic();
    Status read_version();
    Status check_count(std::string_view field, std::uint64_t count, std::uint64_t max,
                       std::uint64_t element_bytes) const;
    Result<std::string> read_name(std::string_view field);
    Status read_entry();
    Result<Value> read_value(ValueType type, const std::string& key);
    Result<Value> read_array(const std::string& key);
    Result<Value> read_string_array(std::uint64_t count);
    template <typename T>
    Result<Value> read_int_array(std::uint64_t count, const std::string& subject);
    template <typename T>
    Result<Value> read_float_array(std::uint64_t count, const std::string& subject);
    Result<Value> read_bool_array(std::uint64_t count, const std::string& subject);
    Result<Value> read_bool(const std::string& key);
    Status read_tensor();
    Status measure(Tensor& tensor) const;
    Status place_tensors();
    Result<std::uint64_t> alignment() const;
    Status check_overlap() const;

    template <typename T, typename Wide>
    Result<Value> read_scalar() {
        STET_ASSIGN(const T value, reader_.read<T>("metadata value"));
        return Value(static_cast<Wide>(value));
    }

    Status fail(Code code, std::string_view subject, std::string_view why) const {
        return Status(code, fmt::format("{}: {}: {}", reader_.what(), subject, why));
    }
    Status corrupt(std::string_view subject, std::string_view why) const {
        return fail(Code::corruption, subject, why);
    }
    Status tensor_corrupt(const Tensor& tensor, std::string_view why) const {
        return corrupt("tensor " + quote_name(tensor.name), why);
    }

    Reader reader_;
    std::uint64_t size_bytes_;
    std::uint32_t file_index_;
    std::uint64_t array_elements_ = 0;
    Shard shard_;
};

Status Parser::read_magic() {
    STET_ASSIGN(const auto magic, reader_.read<std::uint32_t>("magic"));
    if (magic == kMagic) return {};
    if (magic == __builtin_bswap32(kMagic)) {
        return fail(Code::incompatible, "byte order", "big-endian, expected little-endian");
    }
    const std::string_view found(reinterpret_cast<const char*>(&magic), sizeof(magic));
    return corrupt("not a GGUF file",
                   fmt::format("expected magic \"GGUF\", found {}", quote_name(found)));
}

Status Parser::read_version() {
    STET_ASSIGN(const auto version, reader_.read<std::uint32_t>("version"));
    if (version >= kVersionMin && version <= kVersionMax) return {};
    if (version != 0 && (version & 0xffff) == 0) {
        return fail(Code::incompatible, "byte order",
                    fmt::format("big-endian (GGUF version {}), expected little-endian: convert "
                                "the model again",
                                __builtin_bswap32(version)));
    }
    if (version == 0) return corrupt("GGUF version", "0 does not exist");
    return fail(
        Code::incompatible, "GGUF version",
        fmt::format("found {}, this program reads {} to {}: {}", version, kVersionMin, kVersionMax,
                    version < kVersionMin ? "convert the model again" : "update stet"));
}

Status Parser::check_count(std::string_view field, std::uint64_t count, std::uint64_t max,
                           std::uint64_t element_bytes) const {
    STET_TRY(reader_.require(count, element_bytes, field));
    if (count <= max) return {};
    return corrupt(field, fmt::format("{} is more than the {} that are allowed", count, max));
}

Result<std::string> Parser::read_name(std::string_view field) {
    STET_ASSIGN(const auto size, reader_.read<std::uint64_t>(field));
    if (size == 0 || size > kNameBytesMax) {
        return reader_.corrupt(
            field, fmt::format("expected 1 to {} bytes, found {}", kNameBytesMax, size));
    }
    STET_ASSIGN(const auto bytes, reader_.read_bytes(size, field));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status Parser::read_entry() {
    STET_ASSIGN(std::string key, read_name("metadata key"));
    STET_ASSIGN(const auto type, reader_.read<std::uint32_t>("metadata type"));
    STET_ASSIGN(Value value, read_value(ValueType{type}, key));
    // Checked after reading, so that the key can be moved in one step.
    const auto [place, is_new] = shard_.metadata.try_emplace(std::move(key), std::move(value));
    if (is_new) return {};
    return corrupt("metadata key " + quote_name(place->first), "found twice");
}

Result<Value> Parser::read_value(ValueType type, const std::string& key) {
    switch (type) {
        case ValueType::u8:
            return read_scalar<std::uint8_t, std::uint64_t>();
        case ValueType::i8:
            return read_scalar<std::int8_t, std::int64_t>();
        case ValueType::u16:
            return read_scalar<std::uint16_t, std::uint64_t>();
        case ValueType::i16:
            return read_scalar<std::int16_t, std::int64_t>();
        case ValueType::u32:
            return read_scalar<std::uint32_t, std::uint64_t>();
        case ValueType::i32:
            return read_scalar<std::int32_t, std::int64_t>();
        case ValueType::f32:
            return read_scalar<float, double>();
        case ValueType::boolean:
            return read_bool(key);
        case ValueType::string: {
            STET_ASSIGN(std::string text, reader_.read_string("metadata string"));
            return Value(std::move(text));
        }
        case ValueType::array:
            return read_array(key);
        case ValueType::u64:
            return read_scalar<std::uint64_t, std::uint64_t>();
        case ValueType::i64:
            return read_scalar<std::int64_t, std::int64_t>();
        case ValueType::f64:
            return read_scalar<double, double>();
    }
    return corrupt("metadata key " + quote_name(key),
                   fmt::format("unknown value type {}", static_cast<std::uint32_t>(type)));
}

Result<Value> Parser::read_bool(const std::string& key) {
    STET_ASSIGN(const auto byte, reader_.read<std::uint8_t>("metadata bool"));
    if (byte <= 1) return Value(byte == 1);
    return corrupt("metadata key " + quote_name(key),
                   fmt::format("expected a bool (0 or 1), found {}", byte));
}

Result<Value> Parser::read_array(const std::string& key) {
    STET_ASSIGN(const auto type, reader_.read<std::uint32_t>("array type"));
    STET_ASSIGN(const auto count, reader_.read<std::uint64_t>("array length"));
    const std::string subject = "metadata key " + quote_name(key);
    if (count > kArrayElementsMax - array_elements_) {
        STET_TRY(reader_.require(count, 1, subject));  // names the truer cause where it is one
        return corrupt(subject, fmt::format("an array of {} elements, at most {} are allowed",
                                            count, kArrayElementsMax));
    }
    array_elements_ += count;
    switch (ValueType{type}) {
        case ValueType::u8:
            return read_int_array<std::uint8_t>(count, subject);
        case ValueType::i8:
            return read_int_array<std::int8_t>(count, subject);
        case ValueType::u16:
            return read_int_array<std::uint16_t>(count, subject);
        case ValueType::i16:
            return read_int_array<std::int16_t>(count, subject);
        case ValueType::u32:
            return read_int_array<std::uint32_t>(count, subject);
        case ValueType::i32:
            return read_int_array<std::int32_t>(count, subject);
        case ValueType::u64:
            return read_int_array<std::uint64_t>(count, subject);
        case ValueType::i64:
            return read_int_array<std::int64_t>(count, subject);
        case ValueType::f32:
            return read_float_array<float>(count, subject);
        case ValueType::f64:
            return read_float_array<double>(count, subject);
        case ValueType::boolean:
            return read_bool_array(count, subject);
        case ValueType::string:
            return read_string_array(count);
        case ValueType::array:
            return fail(Code::incompatible, subject, "arrays of arrays are not supported");
    }
    return corrupt(subject, fmt::format("unknown array type {}", type));
}

Result<Value> Parser::read_string_array(std::uint64_t count) {
    STET_TRY(reader_.require(count, sizeof(std::uint64_t), "array of strings"));
    StringArray array;
    array.values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        STET_ASSIGN(const auto size, reader_.read<std::uint64_t>("array string"));
        STET_ASSIGN(const auto bytes, reader_.read_bytes(size, "array string"));
        array.values.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return Value(std::move(array));
}

template <typename T>
Result<Value> Parser::read_int_array(std::uint64_t count, const std::string& subject) {
    STET_TRY(reader_.require(count, sizeof(T), subject));
    STET_ASSIGN(const auto bytes, reader_.read_bytes(count * sizeof(T), subject));
    IntArray array;
    array.values.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        if (!std::in_range<std::int64_t>(value)) {
            return fail(Code::incompatible, subject,
                        fmt::format("element {} is {}, at most 2^63-1 is supported", i, value));
        }
        array.values[i] = static_cast<std::int64_t>(value);
    }
    return Value(std::move(array));
}

template <typename T>
Result<Value> Parser::read_float_array(std::uint64_t count, const std::string& subject) {
    STET_TRY(reader_.require(count, sizeof(T), subject));
    STET_ASSIGN(const auto bytes, reader_.read_bytes(count * sizeof(T), subject));
    FloatArray array;
    array.values.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        array.values[i] = static_cast<double>(value);
    }
    return Value(std::move(array));
}

Result<Value> Parser::read_bool_array(std::uint64_t count, const std::string& subject) {
    STET_ASSIGN(const auto bytes, reader_.read_bytes(count, subject));
    IntArray array;
    array.values.reserve(count);
    for (const std::byte byte : bytes) {
        const auto value = std::to_integer<std::int64_t>(byte);
        if (value > 1) {
            return corrupt(subject, fmt::format("expected bools (0 or 1), found {}", value));
        }
        array.values.push_back(value);
    }
    return Value(std::move(array));
}

Status Parser::read_tensor() {
    Tensor tensor;
    tensor.file_index = file_index_;
    tensor.shape.fill(1);
    STET_ASSIGN(tensor.name, read_name("tensor name"));
    STET_ASSIGN(tensor.dimensions, reader_.read<std::uint32_t>("tensor dimensions"));
    if (tensor.dimensions < 1 || tensor.dimensions > kDimensionsMax) {
        return tensor_corrupt(tensor, fmt::format("expected 1 to {} dimensions, found {}",
                                                  kDimensionsMax, tensor.dimensions));
    }
    for (std::uint32_t i = 0; i < tensor.dimensions; ++i) {
        STET_ASSIGN(tensor.shape[i], reader_.read<std::uint64_t>("tensor shape"));
    }
    STET_ASSIGN(const auto type, reader_.read<std::uint32_t>("tensor type"));
    tensor.type = TensorType{type};
    STET_ASSIGN(tensor.offset_bytes, reader_.read<std::uint64_t>("tensor offset"));
    STET_TRY(measure(tensor));
    shard_.tensors.push_back(std::move(tensor));
    return {};
}

// Sets size_bytes.
Status Parser::measure(Tensor& tensor) const {
    const TypeTraits* traits = type_traits(tensor.type);
    if (traits == nullptr) {
        return fail(Code::incompatible, "tensor " + quote_name(tensor.name),
                    fmt::format("unknown type id {}: convert the model again, or update stet",
                                static_cast<std::uint32_t>(tensor.type)));
    }
    std::uint64_t elements = 1;
    for (const std::uint64_t length : tensor.shape) {
        if (length == 0) return tensor_corrupt(tensor, "a dimension is 0");
        if (__builtin_mul_overflow(elements, length, &elements)) {
            return tensor_corrupt(tensor, "more than 2^64 elements");
        }
    }
    if (tensor.shape[0] % traits->block_elements != 0) {
        return tensor_corrupt(tensor,
                              fmt::format("rows of {} elements, type {} needs a multiple of {}",
                                          tensor.shape[0], traits->name, traits->block_elements));
    }
    if (__builtin_mul_overflow(elements / traits->block_elements,
                               std::uint64_t{traits->block_bytes}, &tensor.size_bytes)) {
        return tensor_corrupt(tensor, "more than 2^64 bytes");
    }
    return {};
}

Result<std::uint64_t> Parser::alignment() const {
    const auto found = shard_.metadata.find("general.alignment");
    if (found == shard_.metadata.end()) return kAlignmentDefault;
    const std::optional<std::uint64_t> value = to_uint(found->second);
    if (!value || !std::has_single_bit(*value) ||
        *value > std::numeric_limits<std::uint32_t>::max()) {
        return corrupt("general.alignment",
                       value ? fmt::format("expected a power of two, found {}", *value)
                             : std::string("expected a power of two, found another kind of value"));
    }
    return *value;
}

// Offsets in the table count from the aligned end of the table; from here on, from the file start.
Status Parser::place_tensors() {
    STET_ASSIGN(const std::uint64_t align, alignment());
    // No overflow: a position is below 2^63, an alignment below 2^32.
    const std::uint64_t start = (reader_.position() + align - 1) / align * align;
    for (Tensor& tensor : shard_.tensors) {
        if (tensor.offset_bytes % align != 0) {
            return tensor_corrupt(tensor, fmt::format("offset {} is not a multiple of {}",
                                                      tensor.offset_bytes, align));
        }
        const std::uint64_t room = start <= size_bytes_ ? size_bytes_ - start : 0;
        if (tensor.offset_bytes > room || tensor.size_bytes > room - tensor.offset_bytes) {
            return tensor_corrupt(
                tensor, fmt::format("{} bytes at {} of the tensor data, which have {}: the file is "
                                    "cut short or damaged, copy it again",
                                    tensor.size_bytes, tensor.offset_bytes, room));
        }
        tensor.offset_bytes += start;
    }
    return check_overlap();
}

// Overlapping tensors would let a small file stand for a huge model.
Status Parser::check_overlap() const {
    std::vector<const Tensor*> order;
    order.reserve(shard_.tensors.size());
    for (const Tensor& tensor : shard_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const Tensor* a, const Tensor* b) { return a->offset_bytes < b->offset_bytes; });
    for (std::size_t i = 1; i < order.size(); ++i) {
        const Tensor& before = *order[i - 1];
        if (before.offset_bytes + before.size_bytes > order[i]->offset_bytes) {
            return tensor_corrupt(*order[i], "overlaps tensor " + quote_name(before.name));
        }
    }
    return {};
}

}  // namespace

Result<Shard> parse_shard(std::span<const std::byte> bytes, const std::string& what,
                          std::uint32_t file_index) {
    return Parser(bytes, what, file_index).run();
}

}  // namespace stet::gguf
