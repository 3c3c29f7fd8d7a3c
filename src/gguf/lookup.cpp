// Look-ups in an opened file, and the conversions of its values.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "gguf/shard.h"

namespace stet::gguf {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;
constexpr double kTwo64 = 18446744073709551616.0;

const Value* find(const std::map<std::string, Value, std::less<>>& metadata, std::string_view key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : &found->second;
}

std::optional<double> to_float(const Value& value) {
    if (const auto* f = std::get_if<double>(&value)) return *f;
    if (const auto* u = std::get_if<std::uint64_t>(&value)) {
        const auto converted = static_cast<double>(*u);
        if (converted < kTwo64 && static_cast<std::uint64_t>(converted) == *u) return converted;
    }
    if (const auto* i = std::get_if<std::int64_t>(&value)) {
        const auto converted = static_cast<double>(*i);
        if (converted < kTwo63 && static_cast<std::int64_t>(converted) == *i) return converted;
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> to_uint(const Value& value) {
    if (const auto* u = std::get_if<std::uint64_t>(&value)) return *u;
    if (const auto* i = std::get_if<std::int64_t>(&value)) {
        if (*i >= 0) return static_cast<std::uint64_t>(*i);
    }
    if (const auto* f = std::get_if<double>(&value)) {
        if (*f >= 0 && *f < kTwo64 && std::trunc(*f) == *f) return static_cast<std::uint64_t>(*f);
    }
    return std::nullopt;
}

std::optional<std::int64_t> to_int(const Value& value) {
    if (const auto* i = std::get_if<std::int64_t>(&value)) return *i;
    if (const auto* u = std::get_if<std::uint64_t>(&value)) {
        if (std::in_range<std::int64_t>(*u)) return static_cast<std::int64_t>(*u);
    }
    if (const auto* f = std::get_if<double>(&value)) {
        if (*f >= -kTwo63 && *f < kTwo63 && std::trunc(*f) == *f) {
            return static_cast<std::int64_t>(*f);
        }
    }
    return std::nullopt;
}

const std::filesystem::path& File::path(std::uint32_t file_index) const {
    STET_CHECK(file_index < paths_.size());
    return paths_[file_index];
}

const FileInfo& File::info(std::uint32_t file_index) const {
    STET_CHECK(file_index < infos_.size());
    return infos_[file_index];
}

std::uint64_t File::size_bytes() const {
    std::uint64_t total = 0;
    for (const auto& mapping : mappings_) total += mapping->bytes().size();
    return total;
}

const Tensor* File::find_tensor(std::string_view name) const {
    const auto found = tensor_index_.find(std::string(name));
    return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> File::data(const Tensor& tensor) const {
    const std::span<const std::byte> bytes = mapped(tensor.file_index);
    STET_CHECK(tensor.offset_bytes <= bytes.size() &&
               tensor.size_bytes <= bytes.size() - tensor.offset_bytes);
    return bytes.subspan(tensor.offset_bytes, tensor.size_bytes);
}

std::span<const std::byte> File::mapped(std::uint32_t file_index) const {
    STET_CHECK(file_index < mappings_.size());
    return mappings_[file_index]->bytes();
}

bool File::has(std::string_view key) const {
    return find(metadata_, key) != nullptr;
}

std::optional<std::string_view> File::get_string(std::string_view key) const {
    const Value* value = find(metadata_, key);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return text == nullptr ? std::nullopt : std::optional<std::string_view>(*text);
}

std::optional<std::uint64_t> File::get_uint(std::string_view key) const {
    const Value* value = find(metadata_, key);
    return value == nullptr ? std::nullopt : to_uint(*value);
}

std::optional<std::int64_t> File::get_int(std::string_view key) const {
    const Value* value = find(metadata_, key);
    return value == nullptr ? std::nullopt : to_int(*value);
}

std::optional<double> File::get_float(std::string_view key) const {
    const Value* value = find(metadata_, key);
    return value == nullptr ? std::nullopt : to_float(*value);
}

std::optional<bool> File::get_bool(std::string_view key) const {
    const Value* value = find(metadata_, key);
    const auto* flag = value == nullptr ? nullptr : std::get_if<bool>(value);
    return flag == nullptr ? std::nullopt : std::optional<bool>(*flag);
}

const std::vector<std::string>* File::get_strings(std::string_view key) const {
    const Value* value = find(metadata_, key);
    const auto* array = value == nullptr ? nullptr : std::get_if<StringArray>(value);
    return array == nullptr ? nullptr : &array->values;
}

const std::vector<std::int64_t>* File::get_ints(std::string_view key) const {
    const Value* value = find(metadata_, key);
    const auto* array = value == nullptr ? nullptr : std::get_if<IntArray>(value);
    return array == nullptr ? nullptr : &array->values;
}

const std::vector<double>* File::get_floats(std::string_view key) const {
    const Value* value = find(metadata_, key);
    const auto* array = value == nullptr ? nullptr : std::get_if<FloatArray>(value);
    return array == nullptr ? nullptr : &array->values;
}

}  // namespace stet::gguf
