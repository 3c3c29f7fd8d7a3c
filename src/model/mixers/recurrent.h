// What recurrent mixers share: rows of the fixed group, and the nodes of short convolutions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "exec/recurrent/parts.h"
#include "exec/recurrent/ssm_scan.h"
#include "model/schema_builder.h"
#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

struct ResolveContext;
class StepBuilder;

// Declares a row of `elements` for the layer. corruption when no model is that large.
Result<PlaneSlot> add_state(const ResolveContext& context, std::string_view plane,
                            std::uint64_t elements);

// A tensor that a kernel of ours reads: f32 and nothing else.
Result<ggml_tensor*> find_f32(Tensors& tensors, const std::string& name, Tensors::Shape shape,
                              Tensors::Need need);

struct ShortConvWeights {
    ggml_tensor* weight = nullptr;  // f32 [taps, channels]
    ggml_tensor* bias = nullptr;    // f32 [channels], or null
};

// The number of taps from `key`, within what the kernel takes.
Result<std::uint32_t> resolve_taps(const ResolveContext& context, std::string_view key);
// Row "r" for the convolution's inputs: [channels][taps - 1].
Result<PlaneSlot> add_short_conv_state(const ResolveContext& context, std::uint32_t taps,
                                       std::uint64_t channels);
Result<ShortConvWeights> load_short_conv(Tensors& tensors, const std::string& name,
                                         std::uint32_t taps, std::uint64_t channels);
// x f32 [channels, tokens], possibly strided -> f32 [channels, tokens]
// (exec/recurrent/short_conv.h).
ggml_tensor* build_short_conv(StepBuilder& builder, const PlaneSlot& rows,
                              const ShortConvWeights& weights, ggml_tensor* x);

// The selective scan (exec/recurrent/ssm_scan.h) of x f32 [channels, tokens] over the rows `slot`;
// `inputs` are x, dt, B and C, `decay` is f32 and `scan` has all but its offset and decay.
ggml_tensor* build_ssm_scan(StepBuilder& builder, exec::SsmScan scan, const PlaneSlot& slot,
                            const ggml_tensor* decay, std::span<ggml_tensor* const> inputs);

// Features [offset, offset + size) of x f32 [features, tokens], as a strided view.
ggml_tensor* view_part(StepBuilder& builder, ggml_tensor* x, std::int64_t offset,
                       std::int64_t size);

// A node's tensors [features, tokens] as the kernels see them.
exec::ConstRows rows_of(const ggml_tensor* tensor);
exec::Rows mutable_rows_of(ggml_tensor* tensor);

}  // namespace stet::model
