#include "model/keys.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"

namespace stet::model {

std::string Keys::full(std::string_view key) const {
    return fmt::format("{}.{}", prefix_, key);
}

Result<std::uint32_t> Keys::uint(std::string_view key, std::uint32_t min, std::uint32_t max) const {
    const auto value = file_->get_uint(full(key));
    if (!value) return missing(key);
    return limited(key, *value, min, max);
}

Result<std::uint32_t> Keys::uint_or(std::string_view key, std::uint32_t otherwise,
                                    std::uint32_t min, std::uint32_t max) const {
    const auto value = file_->get_uint(full(key));
    if (!value) return otherwise;
    return limited(key, *value, min, max);
}

Result<float> Keys::number(std::string_view key) const {
    const auto value = file_->get_float(full(key));
    if (!value) return missing(key);
    if (!std::isfinite(*value)) {
        return Status(Code::corruption, fmt::format("{}: {} is not a finite number",
                                                    file_->path().string(), full(key)));
    }
    return static_cast<float>(*value);
}

float Keys::number_or(std::string_view key, float otherwise) const {
    const auto value = file_->get_float(full(key));
    return value && std::isfinite(*value) ? static_cast<float>(*value) : otherwise;
}

bool Keys::flag_or(std::string_view key, bool otherwise) const {
    return file_->get_bool(full(key)).value_or(otherwise);
}

Result<std::vector<std::uint32_t>> Keys::per_layer(
    std::string_view key, std::uint32_t layers, std::optional<std::vector<std::uint32_t>> otherwise,
    std::uint32_t max) const {
    const std::string name = full(key);
    if (const auto* values = file_->get_ints(name)) {
        // block_count counts trailing prediction layers too, which `layers` may leave out.
        if (values->size() < layers) {
            return Status(Code::corruption,
                          fmt::format("{}: {} has {} entries for {} layers", file_->path().string(),
                                      name, values->size(), layers));
        }
        std::vector<std::uint32_t> result;
        for (std::uint32_t i = 0; i < layers; ++i) {
            const std::int64_t value = (*values)[i];
            if (value < 0) return out_of_range(key, std::to_string(value), 0, max);
            STET_ASSIGN(const auto checked,
                        limited(key, static_cast<std::uint64_t>(value), 0, max));
            result.push_back(checked);
        }
        return result;
    }
    if (!file_->has(name) && otherwise) return *std::move(otherwise);
    STET_ASSIGN(const auto value, uint(key, 0, max));
    return std::vector<std::uint32_t>(layers, value);
}

Result<std::vector<float>> Keys::numbers_per_layer(std::string_view key, std::uint32_t layers,
                                                   float otherwise) const {
    const auto* values = file_->get_floats(full(key));
    if (values == nullptr) return std::vector<float>(layers, number_or(key, otherwise));
    if (values->size() < layers) {
        return Status(Code::corruption,
                      fmt::format("{}: {} has {} entries for {} layers", file_->path().string(),
                                  full(key), values->size(), layers));
    }
    std::vector<float> result;
    for (std::uint32_t i = 0; i < layers; ++i) {
        if (!std::isfinite((*values)[i])) {
            return Status(Code::corruption, fmt::format("{}: {} has an entry that is not finite",
                                                        file_->path().string(), full(key)));
        }
        result.push_back(static_cast<float>((*values)[i]));
    }
    return result;
}

Result<std::optional<std::vector<bool>>> Keys::flags(std::string_view key,
                                                     std::uint32_t layers) const {
    const auto* values = file_->get_ints(full(key));
    if (values == nullptr) return std::optional<std::vector<bool>>();
    if (values->size() < layers) {
        return Status(Code::corruption,
                      fmt::format("{}: {} has {} entries for {} layers", file_->path().string(),
                                  full(key), values->size(), layers));
    }
    std::vector<bool> result(layers);
    for (std::uint32_t i = 0; i < layers; ++i) result[i] = (*values)[i] != 0;
    return std::optional(std::move(result));
}

Status Keys::missing(std::string_view key) const {
    return Status(Code::corruption,
                  fmt::format("{}: key {} is missing", file_->path().string(), full(key)));
}

Status Keys::out_of_range(std::string_view key, const std::string& value, std::uint32_t min,
                          std::uint32_t max) const {
    return Status(Code::corruption,
                  fmt::format("{}: {} is {}, expected {} to {}", file_->path().string(), full(key),
                              value, min, max));
}

Result<std::uint32_t> Keys::limited(std::string_view key, std::uint64_t value, std::uint32_t min,
                                    std::uint32_t max) const {
    if (value < min || value > max) return out_of_range(key, std::to_string(value), min, max);
    return static_cast<std::uint32_t>(value);
}

}  // namespace stet::model
