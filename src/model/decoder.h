// Builds the graph of a step for a decoder model: one layer shell, with mixer and feed-forward
// chosen by the plan.
//
//   x  = embed(tokens) * embedding_scale
//   for each layer:  x += post_norm(mixer(norm(x)));  x += post_norm(ffn(norm(x)))
//   logits = softcap(head(norm(x)))
#pragma once

#include <cstddef>
#include <memory>

#include "exec/backend.h"
#include "exec/graph.h"
#include "model/config.h"
#include "model/weights.h"
#include "stet/status.h"

namespace stet::model {

// A graph for `tokens` columns of which `outputs` get logits (0: the step only fills the state), or
// with `hidden` the state after the last norm that logits are made of.
Result<std::unique_ptr<exec::Graph>> build_decoder(const Config& config, const Weights& weights,
                                                   exec::Backend& backend, std::uint32_t tokens,
                                                   std::uint32_t outputs, bool hidden);

}  // namespace stet::model
