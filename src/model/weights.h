// The tensors of a model, by role. They stay in the mapped file; those that this CPU multiplies
// faster in another layout are repacked at load, and their pages of the file are let go.
//
// Read-only after load: any thread may use them.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <memory>
#include <vector>

#include "exec/backend.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "stet/status.h"

namespace stet::model {

// y = W x (+ b). Shapes are ggml's: weight [in, out], bias [out]. Null weight: not in the model.
struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    explicit operator bool() const { return weight != nullptr; }
};

// Null weight: not in the model (the norm is then skipped, or weightless where the block says so).
struct Norm {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    explicit operator bool() const { return weight != nullptr; }
};

struct LayerWeights {
    Norm attention_norm;
    Linear qkv;  // fused, or q, k, v
    Linear q, k, v;
    Norm q_norm, k_norm;  // over a head
    Linear attention_out;
    Norm attention_post_norm;
    Norm ffn_norm;
    Linear gate, up, down;  // no gate: a plain feed-forward
    Norm ffn_post_norm;
};

class Weights {
  public:
    // Checks every tensor's presence and shape against the plan: corruption names the tensor with
    // expected and found shape. Tensors that no block uses are named by unused().
    static Result<std::unique_ptr<Weights>> load(const gguf::File& file, const Config& config,
                                                 const exec::Backend& backend);
    ~Weights();

    ggml_tensor* embedding = nullptr;  // [width, vocabulary], for look-ups
    Linear head;                       // [width, vocabulary]; the embedding's when tied
    Norm output_norm;
    ggml_tensor* rope_factors = nullptr;  // f32 [dimensions / 2] divisors, or null
    std::vector<LayerWeights> layers;

    std::uint64_t repacked_bytes() const { return repacked_bytes_; }
    const std::vector<std::string>& unused() const { return unused_; }

  private:
    friend class WeightLoader;
    Weights() = default;

    struct ContextDeleter {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    struct BufferDeleter {
        void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
    };
    std::unique_ptr<ggml_context, ContextDeleter> context_;
    std::vector<std::unique_ptr<ggml_backend_buffer, BufferDeleter>> buffers_;
    std::uint64_t repacked_bytes_ = 0;
    std::vector<std::string> unused_;
};

}  // namespace stet::model
