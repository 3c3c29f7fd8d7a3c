// No mixing of tokens: y = W x, where a search replaced attention by one matrix (DeciLM,
// Nemotron-NAS: arXiv 2411.19146).
#pragma once

#include <cstddef>

#include "model/tensors.h"
#include "stet/status.h"

namespace stet::model {

class StepBuilder;

struct ProjectionPlan {};
struct ProjectionWeights {
    Linear out;
};

Result<ProjectionWeights> load(Tensors& tensors, std::size_t layer, const ProjectionPlan& plan);
ggml_tensor* build(StepBuilder& builder, const ProjectionPlan& plan,
                   const ProjectionWeights& weights, ggml_tensor* x);

}  // namespace stet::model
