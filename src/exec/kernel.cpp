// The code between the include of foreach_target.h and HWY_ONCE is compiled once for each target.
// SSSE3 adds nothing over SSE4 and the plain version; scalable vectors can't lie in arrays.
#define HWY_DISABLED_TARGETS \
    (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernel.cpp"

#include <algorithm>
#include <cstring>
#include <span>

#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "exec/kernel.h"

#include "exec/kernel_common-inl.h"
#include "exec/kernel_rows-inl.h"
#include "exec/kernel_store-inl.h"
#include "exec/kernel_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

std::uint64_t scratch_floats(const AttentionShape& shape, const Plan& plan) {
    return std::max<std::uint64_t>(rows_scratch_floats(shape, plan.sums_max),
                                   tile_scratch_floats(shape, plan.lanes_max));
}

void load_rows(const std::byte* from, std::uint64_t row_bytes, ElementType type,
               std::uint64_t count, std::uint32_t elements, float* to, std::uint64_t to_stride) {
    convert_rows(type, reinterpret_cast<const std::uint8_t*>(from), row_bytes, 0, count, elements,
                 to, to_stride);
}

Kernels target_kernels() {
    Kernels kernels;
    kernels.vector_lanes = static_cast<std::uint32_t>(kLanes);
    kernels.path = HWY_TARGET == HWY_AVX3 ? "avx512" : HWY_TARGET == HWY_AVX2 ? "avx2" : "portable";
    kernels.scratch_floats = scratch_floats;
    kernels.attend_rows = attend_rows;
    kernels.attend_tile = attend_tile;
    kernels.merge = merge;
    kernels.load_rows = load_rows;
    kernels.store_row = store_row;
    return kernels;
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stet::exec {

HWY_EXPORT(target_kernels);

Kernels kernels() {
    return HWY_DYNAMIC_DISPATCH(target_kernels)();
}

const char* kernel_path() {
    return kernels().path;
}

std::vector<std::string> kernel_targets() {
    std::vector<std::string> names;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        names.emplace_back(hwy::TargetName(target));
    }
    return names;
}

void force_kernel_target(const std::string& name) {
    hwy::SetSupportedTargetsForTest(0);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
        if (name == hwy::TargetName(target)) {
            hwy::SetSupportedTargetsForTest(target);
            break;
        }
    }
    hwy::GetChosenTarget().DeInit();
}

}  // namespace stet::exec
#endif  // HWY_ONCE
