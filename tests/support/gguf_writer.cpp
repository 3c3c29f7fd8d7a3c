#include "support/gguf_writer.h"

#include "base/bytes.h"
#include "base/try.h"

namespace stet::test {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"

}  // namespace

template <typename T>
GgufWriter& GgufWriter::set_scalar(std::string_view key, GgufValue type, T value) {
    return set_raw(key, type, std::as_bytes(std::span(&value, 1)));
}

template <typename T>
GgufWriter& GgufWriter::set_array(std::string_view key, GgufValue type,
                                  const std::vector<T>& values) {
    return set_raw_array(key, type, values.size(), std::as_bytes(std::span(values)));
}

GgufWriter& GgufWriter::set_u8(std::string_view key, std::uint8_t value) {
    return set_scalar(key, GgufValue::u8, value);
}
GgufWriter& GgufWriter::set_i8(std::string_view key, std::int8_t value) {
    return set_scalar(key, GgufValue::i8, value);
}
GgufWriter& GgufWriter::set_u16(std::string_view key, std::uint16_t value) {
    return set_scalar(key, GgufValue::u16, value);
}
GgufWriter& GgufWriter::set_i16(std::string_view key, std::int16_t value) {
    return set_scalar(key, GgufValue::i16, value);
}
GgufWriter& GgufWriter::set_u32(std::string_view key, std::uint32_t value) {
    return set_scalar(key, GgufValue::u32, value);
}
GgufWriter& GgufWriter::set_i32(std::string_view key, std::int32_t value) {
    return set_scalar(key, GgufValue::i32, value);
}
GgufWriter& GgufWriter::set_u64(std::string_view key, std::uint64_t value) {
    return set_scalar(key, GgufValue::u64, value);
}
GgufWriter& GgufWriter::set_i64(std::string_view key, std::int64_t value) {
    return set_scalar(key, GgufValue::i64, value);
}
GgufWriter& GgufWriter::set_f32(std::string_view key, float value) {
    return set_scalar(key, GgufValue::f32, value);
}
GgufWriter& GgufWriter::set_f64(std::string_view key, double value) {
    return set_scalar(key, GgufValue::f64, value);
}
GgufWriter& GgufWriter::set_bool(std::string_view key, bool value) {
    return set_scalar(key, GgufValue::boolean, static_cast<std::uint8_t>(value));
}

GgufWriter& GgufWriter::set_string(std::string_view key, std::string_view value) {
    Writer writer;
    writer.write_string(value);
    return set_raw(key, GgufValue::string, writer.data());
}

GgufWriter& GgufWriter::set_u32s(std::string_view key, const std::vector<std::uint32_t>& values) {
    return set_array(key, GgufValue::u32, values);
}
GgufWriter& GgufWriter::set_i32s(std::string_view key, const std::vector<std::int32_t>& values) {
    return set_array(key, GgufValue::i32, values);
}
GgufWriter& GgufWriter::set_f32s(std::string_view key, const std::vector<float>& values) {
    return set_array(key, GgufValue::f32, values);
}
GgufWriter& GgufWriter::set_bools(std::string_view key, const std::vector<std::uint8_t>& values) {
    return set_array(key, GgufValue::boolean, values);
}

GgufWriter& GgufWriter::set_strings(std::string_view key, const std::vector<std::string>& values) {
    Writer writer;
    for (const std::string& value : values) writer.write_string(value);
    return set_raw_array(key, GgufValue::string, values.size(), writer.data());
}

GgufWriter& GgufWriter::set_raw(std::string_view key, GgufValue type,
                                std::span<const std::byte> bytes) {
    entries_.push_back({std::string(key), type, GgufValue::u8, 0, {bytes.begin(), bytes.end()}});
    return *this;
}

GgufWriter& GgufWriter::set_raw_array(std::string_view key, GgufValue type, std::uint64_t count,
                                      std::span<const std::byte> bytes) {
    entries_.push_back(
        {std::string(key), GgufValue::array, type, count, {bytes.begin(), bytes.end()}});
    return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, gguf::TensorType type,
                                   std::vector<std::uint64_t> shape, std::vector<std::byte> data) {
    tensors_.push_back({std::string(name), type, std::move(shape), std::move(data)});
    return *this;
}

GgufWriter& GgufWriter::add_f32(std::string_view name, std::vector<std::uint64_t> shape,
                                std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    return add_tensor(name, gguf::TensorType::f32, std::move(shape), {bytes.begin(), bytes.end()});
}

GgufWriter& GgufWriter::set_alignment(std::uint64_t alignment) {
    alignment_ = alignment;
    return *this;
}

GgufWriter& GgufWriter::set_version(std::uint32_t version) {
    version_ = version;
    return *this;
}

std::vector<std::byte> GgufWriter::bytes() {
    out_.clear();
    fields_.clear();
    put("magic", kMagic);
    put("version", version_);
    put("tensor count", static_cast<std::uint64_t>(tensors_.size()));
    put("metadata count", static_cast<std::uint64_t>(entries_.size()));
    for (const Entry& entry : entries_) {
        put_text(entry.key + ": key", entry.key);
        put(entry.key + ": type", entry.type);
        if (entry.type == GgufValue::array) {
            put(entry.key + ": array type", entry.element_type);
            put(entry.key + ": array length", entry.count);
        }
        if (entry.type == GgufValue::string || entry.element_type == GgufValue::string) {
            fields_.push_back({entry.key + ": string length", out_.size(), sizeof(std::uint64_t)});
        }
        put_bytes(entry.bytes);
    }
    std::uint64_t offset = 0;
    for (const TensorEntry& tensor : tensors_) {
        put_text(tensor.name + ": name", tensor.name);
        put(tensor.name + ": dimensions", static_cast<std::uint32_t>(tensor.shape.size()));
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            put(tensor.name + ": shape " + std::to_string(i), tensor.shape[i]);
        }
        put(tensor.name + ": type", tensor.type);
        put(tensor.name + ": offset", offset);
        offset += (tensor.data.size() + alignment_ - 1) / alignment_ * alignment_;
    }
    header_bytes_ = out_.size();
    for (const TensorEntry& tensor : tensors_) {
        pad();
        put_bytes(tensor.data);
    }
    return out_;
}

Status GgufWriter::save(const std::filesystem::path& path) {
    const std::vector<std::byte> data = bytes();
    STET_ASSIGN(const auto file, Env::posix().open(path, OpenMode::create));
    STET_TRY(file->truncate(0));
    STET_TRY(file->write_at(0, data));
    return file->close();
}

template <typename T>
void GgufWriter::put(const std::string& field, T value) {
    fields_.push_back({field, out_.size(), sizeof(T)});
    put_bytes(std::as_bytes(std::span(&value, 1)));
}

void GgufWriter::put_bytes(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void GgufWriter::put_text(const std::string& field, std::string_view text) {
    put(field + " length", static_cast<std::uint64_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
}

void GgufWriter::pad() {
    out_.resize((out_.size() + alignment_ - 1) / alignment_ * alignment_);
}

}  // namespace stet::test
