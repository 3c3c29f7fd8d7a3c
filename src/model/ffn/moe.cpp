#include "model/ffn/moe.h"

#include <fmt/format.h>

#include "base/try.h"
#include "model/config.h"

namespace stet::model {
namespace {

using Need = Tensors::Need;

Result<Gating> resolve_gating(const Keys& keys, Gating otherwise) {
    STET_ASSIGN(const auto gating, keys.uint_or("expert_gating_func", 0, 0, 4));
    return gating == 0 ? otherwise : static_cast<Gating>(gating);
}

// Rows of a tensor of the layer: sizes that the keys give differently in each architecture.
std::uint32_t tensor_rows(const Keys& keys, std::size_t layer, const char* role) {
    const gguf::Tensor* tensor =
        keys.file().find_tensor(fmt::format("blk.{}.{}.weight", layer, role));
    return tensor == nullptr || tensor->shape[0] > kWidthMax
               ? 0
               : static_cast<std::uint32_t>(tensor->shape[0]);
}

Result<std::uint32_t> expert_size(const ResolveContext& context, const MoePlan& plan,
                                  std::size_t layer) {
    const Keys& keys = context.keys;
    if (keys.has("expert_feed_forward_length")) {
        STET_ASSIGN(const auto sizes,
                    keys.per_layer("expert_feed_forward_length", context.layers, {}, kWidthMax));
        if (sizes[layer] != 0) return sizes[layer];
    }
    // Older files: the layer's size, which some count over all used experts. The tensor tells.
    const std::uint32_t rows = tensor_rows(keys, layer, "ffn_down_exps");
    if (rows != 0) return rows;
    STET_ASSIGN(const auto sizes,
                keys.per_layer("feed_forward_length", context.layers, {}, kWidthMax));
    return sizes[layer] / plan.used;
}

Status resolve_counts(const ResolveContext& context, std::size_t layer, MoePlan& plan) {
    const Keys& keys = context.keys;
    STET_ASSIGN(plan.experts, keys.uint("expert_count", 1, kExpertsMax));
    STET_ASSIGN(const auto used,
                keys.per_layer("expert_used_count", context.layers, {}, plan.experts));
    plan.used = used[layer];
    if (plan.used == 0) return keys.out_of_range("expert_used_count", "0", 1, plan.experts);
    STET_ASSIGN(plan.groups, keys.uint_or("expert_group_count", 0, 0, plan.experts));
    STET_ASSIGN(plan.groups_used,
                keys.uint_or("expert_group_used_count", plan.groups, 0, plan.groups));
    if (plan.groups > 1 && (plan.groups_used == 0 || plan.experts % plan.groups != 0 ||
                            plan.experts / plan.groups < kGroupScoreExperts ||
                            plan.experts / plan.groups * plan.groups_used < plan.used)) {
        return Status(
            Code::corruption,
            fmt::format("{}: {} experts in {} groups, of which {} and {} experts are used",
                        keys.file().path().string(), plan.experts, plan.groups, plan.groups_used,
                        plan.used));
    }
    return {};
}

// What runs before, beside and after the experts.
Status resolve_branches(const ResolveContext& context, std::size_t layer, MoePlan& plan) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    plan.shared.size = tensor_rows(keys, layer, "ffn_down_shexp");
    plan.shared.gated = row.gated;
    STET_ASSIGN(plan.shared.activation,
                resolve_activation(keys, row, context.layers, layer, shared_clamp_key(keys, row)));
    plan.output_scale = row.moe_scale;
    plan.dense_branch = row.dense_branch;
    if (row.dense_branch != DenseBranch::none) {
        STET_ASSIGN(plan.dense, resolve_dense(context, layer));
        // Arctic's is as wide as the residual stream, whatever the key says.
        if (row.dense_branch == DenseBranch::residual) plan.dense.size = context.config.width;
        const bool optional = row.dense_branch == DenseBranch::average;
        if (optional && tensor_rows(keys, layer, "ffn_down") == 0) {
            plan.dense_branch = DenseBranch::none;
        }
    }
    if (!row.chunk_experts) return {};
    STET_ASSIGN(plan.chunk, keys.uint("experts_per_group", 1, plan.experts));
    if (plan.experts % plan.chunk != 0) {
        return keys.out_of_range("experts_per_group", std::to_string(plan.chunk), 1, plan.experts);
    }
    plan.chunk_size = tensor_rows(keys, layer, "ffn_down_chexps");
    STET_ASSIGN(plan.chunk_scale, keys.number("expert_group_scale"));
    return {};
}

// What latent projections are called: Nemotron 3 or Kimi K3.
std::string latent_name(const gguf::File& file, std::size_t layer) {
    for (const char* name : {"ffn_latent", "ffn_routed"}) {
        std::string full = fmt::format("blk.{}.{}", layer, name);
        if (file.find_tensor(full + "_down.weight") != nullptr) return full;
    }
    return {};
}

Status resolve_latent(const ResolveContext& context, std::size_t layer, MoePlan& plan) {
    const gguf::File& file = context.keys.file();
    const std::string name = latent_name(file, layer);
    if (name.empty()) return {};
    const std::uint64_t size = file.find_tensor(name + "_down.weight")->shape[1];
    if (size > kWidthMax) {
        return Status(Code::corruption,
                      fmt::format("{}: tensor {}_down.weight has {} rows, expected 1 to {}",
                                  file.path().string(), name, size, kWidthMax));
    }
    plan.latent = static_cast<std::uint32_t>(size);
    return {};
}

Status load_latent(Tensors& tensors, std::size_t layer, const MoePlan& plan, MoeWeights& weights) {
    if (plan.latent == 0) return {};
    const std::string name = latent_name(tensors.file(), layer);
    STET_ASSIGN(weights.latent_down,
                tensors.linear(name + "_down", tensors.width(), plan.latent, Need::required));
    STET_ASSIGN(weights.latent_up,
                tensors.linear(name + "_up", plan.latent, tensors.width(), Need::required));
    STET_ASSIGN(weights.latent_norm, tensors.norm(name + "_norm", plan.latent, Need::optional));
    return {};
}

// The table names experts, so each entry is checked.
Status load_token_experts(Tensors& tensors, const std::string& base, const MoePlan& plan,
                          MoeWeights& weights) {
    const std::string name = base + "ffn_gate_tid2eid.weight";
    STET_ASSIGN(weights.of_tokens, tensors.find(name, {plan.used, plan.token_table}, Need::required,
                                                Tensors::Use::indices));
    const std::string file = tensors.file().path().string();
    const auto* entries = static_cast<const std::int32_t*>(weights.of_tokens->data);
    for (std::int64_t i = 0; i < ggml_nelements(weights.of_tokens); ++i) {
        if (entries[i] < 0 || static_cast<std::uint32_t>(entries[i]) >= plan.experts) {
            return Status(Code::corruption,
                          fmt::format("{}: tensor {}: entry {} names expert {} of {}", file, name,
                                      i, entries[i], plan.experts));
        }
    }
    return {};
}

Status load_router(Tensors& tensors, const std::string& base, const MoePlan& plan,
                   MoeWeights& weights) {
    const std::uint64_t width = tensors.width();
    const std::string name = base + "ffn_gate_inp";
    STET_ASSIGN(weights.router.weight, tensors.find(name + ".weight", {width, plan.experts},
                                                    Need::required, Tensors::Use::product));
    STET_ASSIGN(weights.router.bias, tensors.find(name + ".bias", {plan.experts}, Need::optional));
    if (plan.router_input == RouterInput::scaled_norm) {
        STET_ASSIGN(weights.router_scale, tensors.find(name + ".scale", {width}, Need::required));
    }
    if (plan.token_table != 0) return load_token_experts(tensors, base, plan, weights);
    const std::string bias = base + "exp_probs_b";
    STET_ASSIGN(weights.selection_bias, tensors.find(tensors.has(bias) ? bias : bias + ".bias",
                                                     {plan.experts}, Need::optional));
    return {};
}

Status load_experts(Tensors& tensors, const std::string& base, const MoePlan& plan,
                    MoeWeights& weights) {
    const std::uint64_t width = plan.latent != 0 ? plan.latent : tensors.width();
    const std::uint64_t size = plan.size;
    weights.is_fused = tensors.has(base + "ffn_gate_up_exps.weight");
    if (weights.is_fused) {
        STET_ASSIGN(weights.up, tensors.experts(base + "ffn_gate_up_exps", width, 2 * size,
                                                plan.experts, Need::required));
    } else {
        STET_ASSIGN(weights.gate, tensors.experts(base + "ffn_gate_exps", width, size, plan.experts,
                                                  Need::optional));
        STET_ASSIGN(weights.up, tensors.experts(base + "ffn_up_exps", width, size, plan.experts,
                                                Need::required));
    }
    STET_ASSIGN(weights.down,
                tensors.experts(base + "ffn_down_exps", size, width, plan.experts, Need::required));
    if (plan.chunk == 0) return {};
    const std::uint64_t chunks = plan.experts / plan.chunk;
    STET_ASSIGN(weights.chunk_gate, tensors.experts(base + "ffn_gate_chexps", width,
                                                    plan.chunk_size, chunks, Need::required));
    STET_ASSIGN(weights.chunk_up, tensors.experts(base + "ffn_up_chexps", width, plan.chunk_size,
                                                  chunks, Need::required));
    STET_ASSIGN(weights.chunk_down, tensors.experts(base + "ffn_down_chexps", plan.chunk_size,
                                                    width, chunks, Need::required));
    return {};
}

}  // namespace

Result<MoePlan> resolve_moe(const ResolveContext& context, std::size_t layer) {
    const Keys& keys = context.keys;
    const Architecture& row = context.row;
    MoePlan plan;
    STET_TRY(resolve_counts(context, layer, plan));
    STET_ASSIGN(plan.size, expert_size(context, plan, layer));
    const bool sigmoid = row.sigmoid_gating_vocabulary != 0 &&
                         context.config.vocabulary == row.sigmoid_gating_vocabulary;
    STET_ASSIGN(plan.gating, resolve_gating(keys, sigmoid ? Gating::sigmoid : row.gating));
    plan.choice = row.expert_choice;
    if (row.token_experts) {
        STET_ASSIGN(const auto layers, keys.uint("hash_layer_count", 0, kLayersMax));
        if (layer < layers) plan.token_table = context.config.vocabulary;
    }
    plan.normalize = row.expert_norm == ExpertNorm::by_key
                         ? keys.flag_or("expert_weights_norm", false)
                         : row.expert_norm == ExpertNorm::yes;
    const float scale = keys.number_or("expert_weights_scale", 0.0F);
    plan.scale = scale == 0.0F ? 1.0F : scale;
    plan.weight_inputs = row.weight_inputs;
    plan.router_input = row.router_input;
    STET_ASSIGN(plan.activation,
                resolve_activation(keys, row, context.layers, layer, "swiglu_clamp_exp"));
    STET_TRY(resolve_branches(context, layer, plan));
    STET_TRY(resolve_latent(context, layer, plan));
    return plan;
}

Result<MoeWeights> load(Tensors& tensors, std::size_t layer, const MoePlan& plan) {
    const std::string base = fmt::format("blk.{}.", layer);
    MoeWeights weights;
    STET_TRY(load_router(tensors, base, plan, weights));
    STET_TRY(load_latent(tensors, layer, plan, weights));
    STET_TRY(load_experts(tensors, base, plan, weights));
    if (plan.shared.size != 0) {
        STET_ASSIGN(weights.shared, load_dense(tensors, layer, plan.shared, "_shexp"));
        STET_ASSIGN(weights.shared_gate, tensors.find(base + "ffn_gate_inp_shexp.weight",
                                                      {tensors.width()}, Need::optional));
    }
    const std::uint64_t width = tensors.width();
    if (plan.dense_branch != DenseBranch::none) {
        STET_ASSIGN(weights.dense, load_dense(tensors, layer, plan.dense, ""));
    }
    if (plan.dense_branch == DenseBranch::residual) {
        STET_ASSIGN(weights.norm, tensors.norm(base + "ffn_norm_exps", width, Need::required));
    }
    if (plan.dense_branch == DenseBranch::three_norms) {
        STET_ASSIGN(weights.norm, tensors.norm(base + "pre_ffw_norm_2", width, Need::required));
        STET_ASSIGN(weights.post_norm,
                    tensors.norm(base + "post_ffw_norm_2", width, Need::required));
        STET_ASSIGN(weights.dense_post_norm,
                    tensors.norm(base + "post_ffw_norm_1", width, Need::required));
    }
    return weights;
}

}  // namespace stet::model
