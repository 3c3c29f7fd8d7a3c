// Joining the chunks of a unit, and f32 rows to the type of a plane.
#if defined(STET_EXEC_KERNEL_STORE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STET_EXEC_KERNEL_STORE_INL_H
#undef STET_EXEC_KERNEL_STORE_INL_H
#else
#define STET_EXEC_KERNEL_STORE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

HWY_INLINE float exp2_of(float x) {
    return hn::GetLane(exp2_negative(hn::Set(D(), x)));
}

// out = sum_c sums[c] * exp2(max[c] - top) / total weight, for sum number `index` of the unit.
inline void merge_sum(const MergeTask& task, std::size_t index, const float* sink, float* out) {
    const D d;
    const std::size_t sums = task.unit->sums();
    const std::size_t chunk_floats = partial_floats(sums, task.sum_stride);
    const float* maxima = task.partials + sums * task.sum_stride + index;
    float top = sink != nullptr ? *sink * kLog2E : kNoScore;
    for (std::size_t chunk = 0; chunk < task.unit->chunk_count; ++chunk) {
        top = std::max(top, maxima[chunk * chunk_floats]);
    }
    float total = sink != nullptr ? exp2_of(*sink * kLog2E - top) : 0.0F;
    for (std::size_t chunk = 0; chunk < task.unit->chunk_count; ++chunk) {
        const float* max = maxima + chunk * chunk_floats;
        total += max[sums] * exp2_of(max[0] - top);
    }
    // Every query sees itself: a total of 0 comes from NaN scores, and makes NaN of the result.
    const float scale = 1.0F / total;
    const std::size_t size = task.shape->value_size;
    for (std::size_t e = 0; e < size; e += kLanes) {
        V acc = hn::Zero(d);
        for (std::size_t chunk = 0; chunk < task.unit->chunk_count; ++chunk) {
            const float* from = task.partials + chunk * chunk_floats + index * task.sum_stride + e;
            const V weight = exp2_negative(hn::Set(d, maxima[chunk * chunk_floats] - top));
            acc = hn::MulAdd(weight, hn::LoadU(d, from), acc);
        }
        acc = hn::Mul(acc, hn::Set(d, scale));
        if (size - e >= kLanes) {
            hn::StoreU(acc, d, out + e);
        } else {
            HWY_ALIGN float buffer[kLanes];
            hn::Store(acc, d, buffer);
            std::copy(buffer, buffer + (size - e), out + e);
        }
    }
}

void merge(const MergeTask& task) {
    const AttentionShape& shape = *task.shape;
    const std::size_t group = shape.heads / shape.kv_heads;
    for (std::size_t index = 0; index < task.unit->sums(); ++index) {
        const std::size_t lane = task.unit->lane_begin + index % task.unit->lane_count;
        const std::size_t kv = task.unit->kv_begin + index / task.unit->lane_count;
        const std::size_t head = kv * group + lane % group;
        const std::size_t token = task.segment->token_begin + lane / group;
        merge_sum(task, index, task.sinks != nullptr ? task.sinks + head : nullptr,
                  task.out + (token * shape.heads + head) * shape.value_size);
    }
}

// Rounds to nearest, ties to even, as the conversion instructions do.
inline std::uint16_t half_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const std::uint32_t sign = bits >> 16 & 0x8000U;
    bits &= 0x7FFFFFFFU;
    std::uint32_t half;
    if (bits > 0x7F800000U) {
        half = 0x7E00U | (bits >> 13 & 0x3FFU);  // NaN
    } else if (bits >= 0x477FF000U) {
        half = 0x7C00U;  // rounds to infinity
    } else if (bits >= 0x38800000U) {
        const std::uint32_t odd = bits >> 13 & 1U;
        half = (bits + 0xFFFU + odd - (112U << 23)) >> 13;
    } else {
        // Subnormal: adding 0.5 leaves its multiple of 2^-24 in the low bits, rounded.
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof(magnitude));
        magnitude += 0.5F;
        std::memcpy(&bits, &magnitude, sizeof(bits));
        half = bits - 0x3F000000U;
    }
    return static_cast<std::uint16_t>(sign | half);
}

inline void store_f16(const float* from, std::size_t elements, std::byte* to) {
    std::size_t e = 0;
    // The narrow targets have no conversion instruction, and Highway's truncates.
    if constexpr (kLanes > 4) {
        for (; e + kLanes <= elements; e += kLanes) {
            const auto half = hn::DemoteTo(D16(), hn::LoadU(D(), from + e));
            hn::StoreU(hn::BitCast(DU16(), half), DU16(),
                       reinterpret_cast<std::uint16_t*>(to + 2 * e));
        }
    }
    for (; e < elements; ++e) {
        const std::uint16_t half = half_of(from[e]);
        std::memcpy(to + 2 * e, &half, sizeof(half));
    }
}

inline void store_q8(const float* from, std::size_t elements, std::byte* to) {
    const D d;
    for (std::size_t e = 0; e < elements; e += kBlock, to += kBlockBytes) {
        V largest = hn::Zero(d);
        for (std::size_t i = 0; i < kBlock; i += kLanes) {
            largest = hn::Max(largest, hn::Abs(hn::LoadU(d, from + e + i)));
        }
        const float scale = hn::GetLane(hn::MaxOfLanes(d, largest)) / 127.0F;
        const V inverse = hn::Set(d, scale > 0.0F ? 1.0F / scale : 0.0F);
        const std::uint16_t half = half_of(scale);
        std::memcpy(to, &half, sizeof(half));
        for (std::size_t i = 0; i < kBlock; i += kLanes) {
            const auto whole = hn::NearestInt(hn::Mul(hn::LoadU(d, from + e + i), inverse));
            hn::StoreU(hn::DemoteTo(D8(), whole), D8(), reinterpret_cast<std::int8_t*>(to + 2 + i));
        }
    }
}

void store_row(const float* from, std::uint32_t elements, ElementType type, std::byte* to) {
    switch (type) {
        case ElementType::f32:
            std::memcpy(to, from, elements * sizeof(float));
            break;
        case ElementType::f16:
            store_f16(from, elements, to);
            break;
        case ElementType::q8_0:
            store_q8(from, elements, to);
            break;
    }
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
