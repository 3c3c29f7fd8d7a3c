// Reading the hyper-parameters of one architecture ("llama.block_count") with their limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::model {

inline constexpr std::uint32_t kLayersMax = 4096;
inline constexpr std::uint32_t kHeadsMax = 4096;
inline constexpr std::uint32_t kHeadSizeMax = 8192;
inline constexpr std::uint32_t kWidthMax = 1U << 20;
inline constexpr std::uint32_t kVocabularyMax = 1U << 24;
inline constexpr std::uint32_t kExpertsMax = 1U << 14;
inline constexpr std::uint32_t kTokensMax = 0x7fffffffU;

// Keys are named without the architecture's prefix. Failures are corruption and name file, key,
// expected and found.
class Keys {
  public:
    Keys(const gguf::File& file, std::string_view prefix) : file_(&file), prefix_(prefix) {}

    std::string full(std::string_view key) const;
    bool has(std::string_view key) const { return file_->has(full(key)); }

    Result<std::uint32_t> uint(std::string_view key, std::uint32_t min, std::uint32_t max) const;
    Result<std::uint32_t> uint_or(std::string_view key, std::uint32_t otherwise, std::uint32_t min,
                                  std::uint32_t max) const;
    Result<float> number(std::string_view key) const;
    float number_or(std::string_view key, float otherwise) const;  // not finite: otherwise
    bool flag_or(std::string_view key, bool otherwise) const;
    // A scalar fills all layers; an array has an entry for each.
    Result<std::vector<std::uint32_t>> per_layer(
        std::string_view key, std::uint32_t layers,
        std::optional<std::vector<std::uint32_t>> otherwise, std::uint32_t max) const;
    // The same for numbers; otherwise where the key is missing.
    Result<std::vector<float>> numbers_per_layer(std::string_view key, std::uint32_t layers,
                                                 float otherwise) const;
    // An array with an entry for each layer, or nothing when the key isn't an array.
    Result<std::optional<std::vector<bool>>> flags(std::string_view key,
                                                   std::uint32_t layers) const;

    Status missing(std::string_view key) const;
    Status out_of_range(std::string_view key, const std::string& value, std::uint32_t min,
                        std::uint32_t max) const;
    const gguf::File& file() const { return *file_; }

  private:
    Result<std::uint32_t> limited(std::string_view key, std::uint64_t value, std::uint32_t min,
                                  std::uint32_t max) const;

    const gguf::File* file_;
    std::string_view prefix_;
};

}  // namespace stet::model
