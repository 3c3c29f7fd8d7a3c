#include "exec/product/pack.h"

#include <array>
#include <cstring>

namespace stet::exec {
namespace {

constexpr std::size_t kQuads = kPackedColumns / 4;
constexpr std::size_t kWordBytes = 4;  // a quad of one row
constexpr std::uint32_t kLowHalves = 0x0F0F0F0FU;
constexpr std::uint32_t kLowPairs = 0x03030303U;

using Words = std::array<std::uint32_t, kQuads>;

std::uint32_t word_at(const std::uint8_t* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof(word));
    return word;
}

// A block of one row: its place in the file, and that of its row in the packed block.
struct RowBlock {
    const std::uint8_t* source;
    std::uint8_t* block;
    std::size_t row;

    void put_half(std::size_t number, const std::uint8_t* from) const {
        std::memcpy(block + (number * kPackedRows + row) * 2, from, 2);
    }
    // Byte `number` after `halves` f16 of each row.
    void put_byte(std::size_t halves, std::size_t number, int value) const {
        block[(2 * halves + number) * kPackedRows + row] = static_cast<std::uint8_t>(value);
    }
    // Words of four bytes, one after the other, from `at` on.
    template <std::size_t kCount>
    void put_words(std::uint8_t* at, const std::array<std::uint32_t, kCount>& words) const {
        for (std::size_t i = 0; i < kCount; ++i) {
            std::memcpy(at + (i * kPackedRows + row) * kWordBytes, &words[i], kWordBytes);
        }
    }
};

using FifthBits = std::array<std::uint32_t, kPackedRows>;  // of a part; bit c: column c

void put_fifth_bits(const FifthBits& bits, std::uint8_t* out) {
    for (std::size_t quad = 0; quad < kQuads; ++quad) {
        std::uint64_t mask = 0;
        for (std::size_t row = 0; row < kPackedRows; ++row) {
            mask |= std::uint64_t{(bits[row] >> (4 * quad)) & 0xFU} << (4 * row);
        }
        std::memcpy(out + quad * sizeof(mask), &mask, sizeof(mask));
    }
}

// Sixteen bytes as they are.
std::array<std::uint32_t, 4> plain_words(const std::uint8_t* from) {
    return {word_at(from), word_at(from + 4), word_at(from + 8), word_at(from + 12)};
}

// 32 bytes whose low (or high) halves are the columns of a part, to bytes that hold columns c and
// c + 16.
std::array<std::uint32_t, 4> half_words(const std::uint8_t* from, bool high) {
    std::array<std::uint32_t, 4> words;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::uint32_t first = word_at(from + 4 * i);
        const std::uint32_t second = word_at(from + 16 + 4 * i);
        words[i] = high ? ((first >> 4) & kLowHalves) | (second & ~kLowHalves)
                        : (first & kLowHalves) | ((second & kLowHalves) << 4);
    }
    return words;
}

// Bit `bit` of each of 32 bytes.
std::uint32_t gather_bits(const std::uint8_t* from, std::size_t bit) {
    std::uint32_t result = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        std::uint64_t bytes;
        std::memcpy(&bytes, from + 8 * i, sizeof(bytes));
        // The product moves bit 0 of byte b to bit 56 + b.
        const std::uint64_t bits =
            ((bytes >> bit) & 0x0101010101010101U) * 0x0102040810204080U >> 56;
        result |= static_cast<std::uint32_t>(bits) << (8 * i);
    }
    return result;
}

// Formats with blocks of 32 columns: d, then perhaps m, then perhaps fifth bits, then the values.
template <PackedFormat kFormat>
void pack_small(const RowBlock& to, FifthBits* fifth) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr bool kHasMin = kLayout.scale_bytes > 2 * kPackedRows;
    constexpr std::size_t kHead = kHasMin ? 4 : 2;
    std::uint8_t* quads = to.block + kLayout.scale_bytes;
    to.put_half(0, to.source);
    if constexpr (kHasMin) to.put_half(1, to.source + 2);
    if constexpr (kLayout.upper_bytes != 0) fifth[0][to.row] = word_at(to.source + kHead);
    const std::uint8_t* values = to.source + kHead + (kLayout.upper_bytes != 0 ? 4 : 0);
    if constexpr (kFormat == PackedFormat::q8_0) {
        Words words;
        for (std::size_t i = 0; i < kQuads; ++i) words[i] = word_at(values + 4 * i) ^ 0x80808080U;
        to.put_words(quads, words);
    } else {
        to.put_words(quads, plain_words(values));
    }
}

// Scale and min of the parts of Q4_K and Q5_K, six bits each in twelve bytes.
void pack_scales_and_mins(const RowBlock& to, const std::uint8_t* from) {
    std::array<int, 8> scale;
    std::array<int, 8> min;
    for (std::size_t i = 0; i < 4; ++i) {
        scale[i] = from[i] & 63;
        min[i] = from[i + 4] & 63;
        scale[i + 4] = (from[i + 8] & 15) | (from[i] >> 6 << 4);
        min[i + 4] = (from[i + 8] >> 4) | (from[i + 4] >> 6 << 4);
    }
    constexpr std::size_t kHalves = 2;
    for (std::size_t part = 0; part < 8; ++part) {
        to.put_byte(kHalves, part, (scale[part] & 15) | (min[part] & 15) << 4);
    }
    for (std::size_t part = 0; part < 8; part += 2) {
        to.put_byte(kHalves, 8 + part / 2,
                    scale[part] >> 4 | min[part] >> 4 << 2 | scale[part + 1] >> 4 << 4 |
                        min[part + 1] >> 4 << 6);
    }
}

// Q4_K: d, dmin, 12 bytes of scales, values. Q5_K: fifth bits before the values.
template <PackedFormat kFormat>
void pack_with_mins(const RowBlock& to, FifthBits* fifth) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr bool kHasFifth = kLayout.upper_bytes != 0;
    to.put_half(0, to.source);
    to.put_half(1, to.source + 2);
    pack_scales_and_mins(to, to.source + 4);
    const std::uint8_t* bits = to.source + 16;
    const std::uint8_t* values = bits + (kHasFifth ? 32 : 0);
    for (std::size_t part = 0; part < kLayout.parts; ++part) {
        std::uint8_t* out = to.block + kLayout.scale_bytes + part * kLayout.part_bytes();
        to.put_words(out, half_words(values + part / 2 * 32, part % 2 != 0));
        if constexpr (kHasFifth) fifth[part][to.row] = gather_bits(bits, part);
    }
}

// Q6_K: 128 bytes of lower halves, 64 of upper bits, 16 scales, d. 128 columns share 32 bytes of
// upper bits: part p has bits 2p, 2p + 1.
void pack_six_bits(const RowBlock& to) {
    constexpr PackedLayout kLayout = packed_layout(PackedFormat::q6_k);
    constexpr std::size_t kPartsOfRun = 4;
    to.put_half(0, to.source + 208);
    for (std::size_t i = 0; i < 16; ++i) to.put_byte(1, i, to.source[192 + i]);
    for (std::size_t part = 0; part < kLayout.parts; ++part) {
        std::uint8_t* out = to.block + kLayout.scale_bytes + part * kLayout.part_bytes();
        const std::size_t run = part / kPartsOfRun;
        const std::size_t in_run = part % kPartsOfRun;
        const std::uint8_t* lower = to.source + 64 * run + 32 * (in_run % 2);
        to.put_words(out, half_words(lower, in_run >= 2));
        const std::uint8_t* upper = to.source + 128 + 32 * run;
        std::array<std::uint32_t, 2> words{};
        for (std::size_t quad = 0; quad < kQuads; ++quad) {
            const std::uint32_t pairs = (word_at(upper + 4 * quad) >> (2 * in_run)) & kLowPairs;
            words[quad / 4] |= pairs << (2 * (quad % 4));
        }
        to.put_words(out + kLayout.quad_bytes, words);
    }
}

// IQ4_XS: d, 16 bits with the upper two bits of each part's scale, 4 bytes with the lower four,
// values.
void pack_iq4_xs(const RowBlock& to) {
    constexpr PackedLayout kLayout = packed_layout(PackedFormat::iq4_xs);
    to.put_half(0, to.source);
    for (std::size_t i = 0; i < 4; ++i) to.put_byte(1, i, to.source[4 + i]);
    for (std::size_t i = 0; i < 2; ++i) to.put_byte(1, 4 + i, to.source[2 + i]);
    for (std::size_t part = 0; part < kLayout.parts; ++part) {
        to.put_words(to.block + kLayout.scale_bytes + part * kLayout.part_bytes(),
                     plain_words(to.source + 8 + 16 * part));
    }
}

template <PackedFormat kFormat>
void pack_row(const RowBlock& to, FifthBits* fifth) {
    if constexpr (kFormat == PackedFormat::q4_k || kFormat == PackedFormat::q5_k) {
        pack_with_mins<kFormat>(to, fifth);
    } else if constexpr (kFormat == PackedFormat::q6_k) {
        pack_six_bits(to);
    } else if constexpr (kFormat == PackedFormat::iq4_xs) {
        pack_iq4_xs(to);
    } else {
        pack_small<kFormat>(to, fifth);
    }
}

template <PackedFormat kFormat>
void pack_groups_of(const std::uint8_t* source, std::uint64_t blocks, std::uint64_t begin,
                    std::uint64_t end, std::uint8_t* out) {
    constexpr PackedLayout kLayout = packed_layout(kFormat);
    constexpr bool kHasFifth = kLayout.upper_bytes == kQuads * sizeof(std::uint64_t);
    const std::uint64_t row_bytes = blocks * kLayout.source_bytes;
    std::array<FifthBits, kLayout.parts> fifth{};
    for (std::uint64_t group = begin; group < end; ++group) {
        const std::uint8_t* in = source + group * kPackedRows * row_bytes;
        for (std::uint64_t b = 0; b < blocks; ++b) {
            std::uint8_t* block = out + (group * blocks + b) * kLayout.block_bytes();
            for (std::size_t row = 0; row < kPackedRows; ++row) {
                const std::uint8_t* from = in + row * row_bytes + b * kLayout.source_bytes;
                pack_row<kFormat>({from, block, row}, fifth.data());
            }
            for (std::size_t part = 0; kHasFifth && part < kLayout.parts; ++part) {
                put_fifth_bits(fifth[part], block + kLayout.scale_bytes +
                                                part * kLayout.part_bytes() + kLayout.quad_bytes);
            }
        }
    }
}

}  // namespace

void pack_groups(PackedFormat format, const std::uint8_t* source, std::uint64_t blocks,
                 std::uint64_t begin, std::uint64_t end, std::uint8_t* out) {
    const auto run = [&](auto function) { function(source, blocks, begin, end, out); };
    switch (format) {
        case PackedFormat::q4_0:
            return run(pack_groups_of<PackedFormat::q4_0>);
        case PackedFormat::q4_1:
            return run(pack_groups_of<PackedFormat::q4_1>);
        case PackedFormat::q5_0:
            return run(pack_groups_of<PackedFormat::q5_0>);
        case PackedFormat::q5_1:
            return run(pack_groups_of<PackedFormat::q5_1>);
        case PackedFormat::q8_0:
            return run(pack_groups_of<PackedFormat::q8_0>);
        case PackedFormat::iq4_nl:
            return run(pack_groups_of<PackedFormat::iq4_nl>);
        case PackedFormat::q4_k:
            return run(pack_groups_of<PackedFormat::q4_k>);
        case PackedFormat::q5_k:
            return run(pack_groups_of<PackedFormat::q5_k>);
        case PackedFormat::q6_k:
            return run(pack_groups_of<PackedFormat::q6_k>);
        case PackedFormat::iq4_xs:
            return run(pack_groups_of<PackedFormat::iq4_xs>);
    }
}

}  // namespace stet::exec
