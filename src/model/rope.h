// Rotary embedding (arXiv 2104.09864) with linear and YaRN scaling (arXiv 2309.00071; the names are
// those of the paper).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/architectures.h"
#include "model/keys.h"
#include "stet/status.h"

namespace stet::model {

struct Rope {
    RopeKind kind = RopeKind::none;
    std::uint32_t dimensions = 0;  // of each head that rotate
    float base = 10000.0F;
    float frequency_scale = 1.0F;  // 1 / scaling factor
    float extrapolation_factor = 0.0F;
    float attention_factor = 1.0F;
    float beta_fast = 32.0F;
    float beta_slow = 1.0F;
    std::uint32_t original_context = 0;
    bool has_factors = true;           // rope_freqs.weight applies, if the model has it
    std::array<int, 4> sections = {};  // M-RoPE: dimension pairs of time, height, width, extra

    bool has_sections() const { return sections[0] > 0 && sections[1] > 0; }
};

// How much YaRN stretches the scores of a context `factor` times as long, `weight` of it.
float yarn_magnitude(float factor, float weight);

// From rope.* keys. A missing scaling type is linear, factor 0 or 1 is no scaling, and YaRN's
// attention factor is divided by what the rope kernel multiplies back. Fails too when the file's
// divisors of frequencies are too few.
Result<Rope> resolve_rope(const Keys& keys, RopeKind kind, std::uint32_t dimensions,
                          std::uint32_t context);

// The tensor that divides the rotary frequencies: rope_freqs, or rope_factors_long or _short by the
// trained context (rows of a state are rotated once, for ever). Empty: none.
std::string rope_factors_tensor(const Keys& keys, std::uint32_t context);

}  // namespace stet::model
