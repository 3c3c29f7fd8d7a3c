#include "exec/recurrent/short_conv.h"

#include <algorithm>
#include <array>

namespace stet::exec {
namespace {

// Channels are computed in strips, with weights and history turned so that channels are contiguous.
constexpr std::uint32_t kStrip = 64;

struct Strip {
    std::uint32_t begin;  // channel
    std::uint32_t count;
    std::array<float, kShortConvTapsMax * kStrip> weight;   // [taps][kStrip]
    std::array<float, kShortConvKeptMax * kStrip> history;  // [kept][kStrip], oldest first
    std::array<float, kStrip> bias;
};

void turn_weights(const ShortConv& conv, Strip& strip) {
    for (std::uint32_t c = 0; c < strip.count; ++c) {
        const float* weight = conv.weight + std::uint64_t{strip.begin + c} * conv.taps;
        for (std::uint32_t k = 0; k < conv.taps; ++k) strip.weight[k * kStrip + c] = weight[k];
        strip.bias[c] = conv.bias == nullptr ? 0.0F : conv.bias[strip.begin + c];
    }
}

void read_history(const ShortConv& conv, const Segment& segment, Strip& strip) {
    const std::uint32_t kept = conv.kept();
    const float* rows = base_row(segment, conv.offset_bytes);
    if (rows == nullptr) {
        std::fill_n(strip.history.begin(), kept * kStrip, 0.0F);
        return;
    }
    rows += std::uint64_t{strip.begin} * kept;
    for (std::uint32_t c = 0; c < strip.count; ++c) {
        for (std::uint32_t k = 0; k < kept; ++k) strip.history[k * kStrip + c] = rows[c * kept + k];
    }
}

// Where the strip's values of token `t` are; t counts from -kept at the oldest of history.
const float* values_at(const ShortConv& conv, const Strip& strip, const ConstRows& x,
                       const Segment& segment, std::int64_t t) {
    if (t < 0) return strip.history.data() + (t + conv.kept()) * kStrip;
    return x.row(segment.token_begin + static_cast<std::uint64_t>(t)) + strip.begin;
}

void write_history(const ShortConv& conv, const Strip& strip, const ConstRows& x,
                   const Segment& segment) {
    const std::uint32_t kept = conv.kept();
    float* rows = new_row(segment, conv.offset_bytes) + std::uint64_t{strip.begin} * kept;
    for (std::uint32_t k = 0; k < kept; ++k) {
        const std::int64_t t = static_cast<std::int64_t>(segment.token_count) - kept + k;
        const float* values = values_at(conv, strip, x, segment, t);
        for (std::uint32_t c = 0; c < strip.count; ++c) rows[c * kept + k] = values[c];
    }
}

STET_INTO_CLONES void add_products(const float* __restrict weight, const float* __restrict values,
                                   std::uint32_t count, float* __restrict sum) {
    for (std::uint32_t c = 0; c < count; ++c) sum[c] += weight[c] * values[c];
}

STET_VECTOR_CLONES
void convolve(const ShortConv& conv, const Strip& strip, const ConstRows& x, const Rows& out,
              const Segment& segment) {
    for (std::uint32_t i = 0; i < segment.token_count; ++i) {
        float* sum = out.row(segment.token_begin + i) + strip.begin;
        std::copy_n(strip.bias.begin(), strip.count, sum);
        for (std::uint32_t k = 0; k < conv.taps; ++k) {
            const std::int64_t t =
                std::int64_t{i} - std::int64_t{conv.taps - 1 - k} * conv.dilation;
            add_products(strip.weight.data() + k * kStrip, values_at(conv, strip, x, segment, t),
                         strip.count, sum);
        }
    }
}

}  // namespace

void short_conv(const ShortConv& conv, const ConstRows& x, const Rows& out,
                std::span<const Segment> segments, int thread, int threads) {
    const Share share = share_of(conv.channels, kStrip, thread, threads);
    Strip strip;
    for (std::uint64_t begin = share.begin; begin < share.end; begin += kStrip) {
        strip.begin = static_cast<std::uint32_t>(begin);
        strip.count =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(kStrip, share.end - begin));
        turn_weights(conv, strip);
        for (const Segment& segment : segments) {
            read_history(conv, segment, strip);
            convolve(conv, strip, x, out, segment);
            write_history(conv, strip, x, segment);
        }
    }
}

}  // namespace stet::exec
