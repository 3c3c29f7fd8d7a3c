#include "model/mixers/projection.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/step_builder.h"

namespace stet::model {

Result<ProjectionWeights> load(Tensors& tensors, std::size_t layer, const ProjectionPlan&) {
    ProjectionWeights weights;
    STET_ASSIGN(weights.out,
                tensors.linear(fmt::format("blk.{}.attn_output", layer), tensors.width(),
                               tensors.width(), Tensors::Need::required));
    return weights;
}

ggml_tensor* build(StepBuilder& builder, const ProjectionPlan&, const ProjectionWeights& weights,
                   ggml_tensor* x) {
    return builder.product(x, weights.out);
}

}  // namespace stet::model
