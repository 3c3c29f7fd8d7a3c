// The table behind PreTokenizer::make.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace stet::text {

enum PreFlag : std::uint8_t {
    kIgnoreMerges = 1,
    kAddBos = 2,
    kNoBos = 4,
    kRaw = 8,
    kEscapeSpaces = 16,
    kWholeNewlines = 32,
    kMetaspace = 64,
    kForceAddBos = 128,
};

struct PreName {
    std::string_view name;    // tokenizer.ggml.pre
    std::string_view family;  // of pre_families()
    unsigned flags = 0;
};

struct PreFamily {
    std::string_view name;
    // Patterns, or "@name" for a cut that no pattern makes in linear time.
    std::span<const std::string_view> stages;
};

std::span<const PreName> pre_names();
std::span<const PreFamily> pre_families();

}  // namespace stet::text
