#include "model/mixers/mixer.h"

#include "base/check.h"
#include "base/try.h"

namespace stet::model {
namespace {

template <typename Plan>
Result<MixerPlan> as_mixer(Result<Plan> plan) {
    if (!plan) return plan.status();
    return MixerPlan(*std::move(plan));
}

}  // namespace

Result<MixerPlan> resolve_mixer(const ResolveContext& context, Mixer mixer, std::size_t layer) {
    switch (mixer) {
        case Mixer::gqa:
            return as_mixer(resolve_gqa(context, layer));
        case Mixer::compressed:
            return as_mixer(resolve_compressed(context, layer));
        case Mixer::mla:
            return as_mixer(resolve_mla(context, layer));
        case Mixer::projection:
            return MixerPlan(ProjectionPlan());
        case Mixer::gated_conv:
            return as_mixer(resolve_gated_conv(context, layer));
        case Mixer::mamba:
            return as_mixer(resolve_mamba(context, layer));
        case Mixer::plamo2:
            return as_mixer(resolve_plamo2(context, layer));
        case Mixer::mamba2:
            return as_mixer(resolve_mamba2(context, layer));
        case Mixer::rwkv6:
            return as_mixer(resolve_rwkv6(context, layer));
        case Mixer::rwkv7:
            return as_mixer(resolve_rwkv7(context, layer));
        case Mixer::delta_net:
            return as_mixer(resolve_delta_net(context, layer));
        case Mixer::kda:
            return as_mixer(resolve_kda(context, layer));
        case Mixer::lightning:
            return as_mixer(resolve_lightning(context, layer));
        case Mixer::none:
            break;
    }
    return Status(Code::internal, "a layer without a mixer was asked for one");
}

Result<MixerWeights> load_mixer(Tensors& tensors, std::size_t layer, const MixerPlan& plan) {
    return std::visit(
        [&](const auto& chosen) -> Result<MixerWeights> {
            STET_ASSIGN(auto weights, load(tensors, layer, chosen));
            return MixerWeights(std::move(weights));
        },
        plan);
}

ggml_tensor* build_mixer(StepBuilder& builder, const MixerPlan& plan, const MixerWeights& weights,
                         ggml_tensor* x) {
    // Each plan type goes with the weights type at the same place of its variant.
    return std::visit(
        [&](const auto& chosen) -> ggml_tensor* {
            using Loaded = decltype(load(std::declval<Tensors&>(), std::size_t{}, chosen));
            using Its = std::decay_t<decltype(*std::declval<Loaded>())>;
            return build(builder, chosen, std::get<Its>(weights), x);
        },
        plan);
}

}  // namespace stet::model
