#include "model/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stet::model {
namespace {

// Collects facts; a number that is 0 means that there is no such thing.
class Teller {
  public:
    explicit Teller(std::string kind) { facts_.kind = std::move(kind); }

    Teller& add(std::string_view name, std::uint64_t value) {
        if (value != 0) facts_.values.emplace_back(name, value);
        return *this;
    }
    Teller& add(std::string_view name, float value, float usual) {
        if (value != usual) facts_.values.emplace_back(name, double{value});
        return *this;
    }
    Teller& add(std::string_view name, std::string value) {
        facts_.values.emplace_back(name, std::move(value));
        return *this;
    }
    Teller& add(const Rope& rope) {
        constexpr std::array<std::string_view, 5> kKinds = {"none", "norm", "neox", "mrope",
                                                            "imrope"};
        if (rope.kind == RopeKind::none) return *this;
        add("rope", std::string(kKinds.at(static_cast<std::size_t>(rope.kind))));
        add("rope_dimensions", std::uint64_t{rope.dimensions});
        add("rope_base", rope.base, 0.0F);
        add("rope_scale", rope.frequency_scale, 1.0F);
        if (rope.extrapolation_factor != 0.0F) {
            add("yarn_original_context", std::uint64_t{rope.original_context});
        }
        return *this;
    }
    Teller& add(exec::Window kind, std::uint32_t tokens) {
        if (kind == exec::Window::none) return *this;
        return add(kind == exec::Window::chunked ? "chunk" : "window", std::uint64_t{tokens});
    }
    Teller& add(const std::optional<PooledIndexerPlan>& indexer) {
        if (!indexer) return *this;
        if (!indexer->is_own) return add("pooled_keys", std::string("of an earlier layer"));
        add("indexer_heads", std::uint64_t{indexer->heads});
        add("indexer_key_size", std::uint64_t{indexer->key_size});
        add("tokens_a_pooled_key", std::uint64_t{indexer->ratio});
        return add("pooled_keys_chosen", std::uint64_t{indexer->pools_max});
    }
    Facts take() { return std::move(facts_); }

  private:
    Facts facts_;
};

Facts describe(const GqaPlan& plan) {
    Teller teller(plan.causal ? "attention" : "attention both ways");
    teller.add("heads", plan.heads).add("kv_heads", plan.kv_heads).add("key_size", plan.key_size);
    if (plan.value_size != plan.key_size) teller.add("value_size", plan.value_size);
    teller.add(plan.window_kind, plan.window).add(plan.rope);
    teller.add("softcap", plan.softcap, 0.0F).add("alibi", plan.alibi, 0.0F);
    if (plan.indexer) teller.add("indexer_heads", plan.indexer->heads);
    teller.add(plan.pooled_indexer);
    if (!plan.has_rows) teller.add("rows", std::string("of an earlier layer"));
    return teller.take();
}

Facts describe(const MlaPlan& plan) {
    Teller teller("latent attention");
    teller.add("heads", plan.heads).add("query_rank", plan.query_rank);
    teller.add("row_rank", plan.row_rank).add("key_size", plan.key_size);
    teller.add("value_size", plan.value_size).add(plan.window_kind, plan.window).add(plan.rope);
    if (plan.indexer) teller.add("rows_chosen", plan.indexer->rows_max);
    teller.add(plan.pooled_indexer);
    if (!plan.is_absorbed) teller.add("rows", std::string("opened"));
    return teller.take();
}

Facts describe(const CompressedPlan& plan) {
    Teller teller("compressed attention");
    teller.add("heads", plan.heads).add("head_size", plan.head_size);
    teller.add("query_rank", plan.query_rank).add("output_groups", plan.groups);
    teller.add("window", plan.window).add(plan.rope);
    if (plan.compressor) teller.add("ratio", plan.compressor->ratio);
    if (plan.indexer) teller.add("rows_chosen", plan.indexer->rows_max);
    return teller.take();
}

Facts describe(const ProjectionPlan& /*plan*/) {
    return Teller("projection").take();
}

Facts describe(const GatedConvPlan& plan) {
    return Teller("gated convolution").add("taps", plan.taps).take();
}

Facts describe(const MambaPlan& plan) {
    Teller teller("mamba");
    if (plan.by_head()) teller.add("heads", plan.heads);
    return teller.add("channels", plan.channels)
        .add("states", plan.states)
        .add("taps", plan.taps)
        .add("dt_rank", plan.rank)
        .take();
}

Facts describe(const Mamba2Plan& plan) {
    return Teller("mamba2")
        .add("heads", plan.heads)
        .add("head_size", plan.head_size)
        .add("states", plan.states)
        .add("groups", plan.groups)
        .add("taps", plan.taps)
        .take();
}

Facts describe(const Rwkv6Plan& plan) {
    return Teller(plan.is_gated ? "gated linear attention" : "rwkv6")
        .add("heads", plan.base.heads)
        .add("head_size", plan.base.head_size)
        .add("decay_rank", plan.decay_rank)
        .take();
}

Facts describe(const Rwkv7Plan& plan) {
    return Teller("rwkv7")
        .add("heads", plan.base.heads)
        .add("head_size", plan.base.head_size)
        .add("decay_rank", plan.decay_rank)
        .take();
}

Facts describe(const DeltaNetPlan& plan) {
    return Teller("gated delta rule")
        .add("heads", plan.heads)
        .add("key_heads", plan.key_heads)
        .add("head_size", plan.size)
        .add("taps", plan.taps)
        .take();
}

Facts describe(const KdaPlan& plan) {
    return Teller("kimi delta attention")
        .add("heads", plan.heads)
        .add("head_size", plan.size)
        .add("taps", plan.taps)
        .take();
}

Facts describe(const LightningPlan& plan) {
    return Teller("lightning attention")
        .add("heads", plan.heads)
        .add("head_size", plan.size)
        .take();
}

std::string activation_name(const ActivationPlan& plan) {
    constexpr std::array<std::string_view, 7> kNames = {"silu",       "gelu",  "relu", "relu2",
                                                        "swiglu_oai", "xielu", "situ"};
    return std::string(kNames.at(static_cast<std::size_t>(plan.kind)));
}

Facts describe(const NoFfn& /*plan*/) {
    return {};
}

Facts describe(const DensePlan& plan) {
    return Teller(plan.gated ? "gated feed-forward" : "feed-forward")
        .add("size", plan.size)
        .add("activation", activation_name(plan.activation))
        .take();
}

Facts describe(const MoePlan& plan) {
    Teller teller("experts");
    teller.add("experts", plan.experts).add("used", plan.used).add("size", plan.size);
    if (plan.groups > 1) teller.add("groups", plan.groups).add("groups_used", plan.groups_used);
    return teller.add("shared_size", plan.shared.size)
        .add("latent", plan.latent)
        .add("dense_size", plan.dense_branch == DenseBranch::none ? 0 : plan.dense.size)
        .add("activation", activation_name(plan.activation))
        .take();
}

Facts describe(const ChannelMixPlan& plan) {
    return Teller("channel mixing").add("size", plan.size).take();
}

Facts describe(const NgramPlan& plan) {
    return Teller("n-gram embeddings")
        .add("longest", plan.size)
        .add("rows_a_token", plan.heads.size())
        .add("row_size", plan.head_size)
        .add("taps", plan.taps)
        .take();
}

// T5's decoder layers have no plans of their own.
LayerFacts describe_decoder_layer(const EncoderDecoder& plan) {
    LayerFacts made;
    made.mixers.push_back(Teller("attention")
                              .add("heads", plan.heads)
                              .add("key_size", plan.size)
                              .add("distance_buckets", plan.buckets)
                              .take());
    made.mixers.push_back(Teller("attention to what was encoded")
                              .add("heads", plan.heads)
                              .add("key_size", plan.size)
                              .take());
    made.ffn = Teller("feed-forward").add("size", plan.ffn_size).take();
    return made;
}

// Groups with planes of executed layer `layer`.
std::vector<std::string> groups_of(const memory::Schema& schema, std::size_t layer) {
    std::vector<std::string> names;
    for (const memory::Group& group : schema.groups) {
        if (std::ranges::any_of(group.planes, [&](const memory::Plane& plane) {
                return plane.layer == static_cast<std::int32_t>(layer);
            })) {
            names.push_back(group.name);
        }
    }
    return names;
}

}  // namespace

std::vector<LayerFacts> describe_layers(const Config& config) {
    std::vector<LayerFacts> all;
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        LayerFacts made;
        if (config.encoder.encoder_layers != 0) made = describe_decoder_layer(config.encoder);
        made.first = made.last = i;
        if (config.layers[i].ngram) made.mixers.push_back(describe(*config.layers[i].ngram));
        for (const MixerPlan& mixer : config.layers[i].mixers) {
            made.mixers.push_back(
                std::visit([](const auto& plan) { return describe(plan); }, mixer));
        }
        if (!std::holds_alternative<NoFfn>(config.layers[i].ffn)) {
            made.ffn =
                std::visit([](const auto& plan) { return describe(plan); }, config.layers[i].ffn);
        }
        made.groups = groups_of(config.schema, i);
        if (!all.empty() && all.back().mixers == made.mixers && all.back().ffn == made.ffn &&
            all.back().groups == made.groups) {
            all.back().last = i;
        } else {
            all.push_back(std::move(made));
        }
    }
    return all;
}

Facts describe_encoder(const Config& config) {
    const EncoderDecoder& plan = config.encoder;
    if (plan.encoder_layers == 0) return {};
    return Teller("encoder, attention both ways")
        .add("layers", plan.encoder_layers)
        .add("heads", plan.heads)
        .add("key_size", plan.size)
        .add("distance_buckets", plan.buckets)
        .add("feed_forward_size", plan.ffn_size)
        .take();
}

std::string to_line(const Facts& facts) {
    std::string line = facts.kind;
    for (const auto& [name, value] : facts.values) {
        line += fmt::format(", {} ", name);
        std::visit([&](const auto& v) { line += fmt::format("{}", v); }, value);
    }
    return line;
}

}  // namespace stet::model
