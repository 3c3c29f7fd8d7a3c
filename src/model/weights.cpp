#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_set>

#include "base/try.h"

namespace stet::model {
namespace {

using Shape = std::initializer_list<std::uint64_t>;

// How a tensor is used decides whether it may be repacked.
enum class Use : std::uint8_t { product, other };

std::string shape_text(std::span<const std::uint64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Whole pages inside a tensor's data: the kernel may drop them, they come back from the file.
void let_go(std::span<const std::byte> data) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(data.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(data.data() + data.size()) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// Brings the weights that stay in the mapped file into memory now, with the load, and not one fault at
// a time during the first prompt. Only a hint: older kernels don't know it.
void fetch(std::span<const std::byte> data) {
#ifdef MADV_POPULATE_READ
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(data.data()) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(data.data() + data.size());
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
    static_cast<void>(data);
#endif
}

}  // namespace

class WeightLoader {
  public:
    WeightLoader(const gguf::File& file, const Config& config, const exec::Backend& backend)
        : file_(file), config_(config), backend_(backend), weights_(new Weights()) {}

    Result<std::unique_ptr<Weights>> load();

  private:
    struct Repack {
        ggml_tensor* tensor;
        const gguf::Tensor* source;
        ggml_backend_buffer_type_t type;
    };

    Status map_files();
    Status load_globals();
    Status load_layer(std::size_t index);
    Status load_attention(std::size_t index, LayerWeights& layer);
    Status repack();

    // Answers null when the tensor is not there and not required.
    Result<ggml_tensor*> find(const std::string& name, Shape shape, bool required, Use use);
    Status linear(Linear& linear, const std::string& base, std::uint64_t in, std::uint64_t out,
                  bool required);
    Status norm(Norm& norm, const std::string& base, std::uint64_t size, bool required);

    const gguf::File& file_;
    const Config& config_;
    const exec::Backend& backend_;
    std::unique_ptr<Weights> weights_;
    std::vector<ggml_backend_buffer_t> file_buffers_;
    std::vector<Repack> repacks_;
    std::unordered_set<std::string> used_;
};

Status WeightLoader::map_files() {
    for (std::uint32_t i = 0; i < file_.file_count(); ++i) {
        const auto bytes = file_.mapped(i);
        // The mapping is read-only and so is every use of weights; ggml's interface isn't const.
        ggml_backend_buffer_t buffer =
            ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size());
        if (buffer == nullptr) return Status(Code::resource_exhausted, "no memory for a weight buffer");
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        file_buffers_.push_back(buffer);
        weights_->buffers_.emplace_back(buffer);
    }
    // A tied head is a second tensor over the embedding's data.
    const std::size_t tensors = file_.tensors().size() + 1;
    weights_->context_.reset(ggml_init({tensors * ggml_tensor_overhead(), nullptr, true}));
    if (!weights_->context_) return Status(Code::resource_exhausted, "no memory for the tensor table");
    return {};
}

Result<ggml_tensor*> WeightLoader::find(const std::string& name, Shape shape, bool required,
                                        Use use) {
    const gguf::Tensor* found = file_.find_tensor(name);
    if (found == nullptr) {
        if (!required) return nullptr;
        return Status(Code::corruption,
                      fmt::format("{}: tensor {} {} is missing", file_.path().string(), name,
                                  shape_text(std::span(shape.begin(), shape.size()))));
    }
    std::array<std::uint64_t, 4> wanted = {1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), wanted.begin());
    if (found->shape != wanted) {
        return Status(Code::corruption,
                      fmt::format("{}: tensor {} has shape {}, expected {}", file_.path().string(),
                                  name, shape_text(std::span(found->shape).first(found->dimensions)),
                                  shape_text(std::span(shape.begin(), shape.size()))));
    }
    const auto type = static_cast<ggml_type>(found->type);
    if (static_cast<int>(type) >= GGML_TYPE_COUNT || ggml_type_size(type) == 0) {
        return Status(Code::unimplemented, fmt::format("{}: tensor {}: type {} is not supported",
                                                       file_.path().string(), name,
                                                       static_cast<std::uint32_t>(found->type)));
    }
    if (use == Use::other && shape.size() == 1 && type != GGML_TYPE_F32) {
        return Status(Code::unimplemented,
                      fmt::format("{}: tensor {} is {}, expected f32", file_.path().string(), name,
                                  ggml_type_name(type)));
    }
    const std::array<std::int64_t, 4> ne = {
        static_cast<std::int64_t>(wanted[0]), static_cast<std::int64_t>(wanted[1]),
        static_cast<std::int64_t>(wanted[2]), static_cast<std::int64_t>(wanted[3])};
    ggml_tensor* tensor = ggml_new_tensor(weights_->context_.get(), type,
                                          static_cast<int>(found->dimensions), ne.data());
    ggml_set_name(tensor, name.c_str());
    used_.insert(name);
    if (use == Use::product) {
        for (ggml_backend_buffer_type_t buffer_type : backend_.weight_buffer_types()) {
            if (backend_.supports_product(tensor, buffer_type)) {
                repacks_.push_back({tensor, found, buffer_type});
                return tensor;
            }
        }
    }
    auto* data = const_cast<std::byte*>(file_.data(*found).data());
    if (ggml_backend_tensor_alloc(file_buffers_[found->file_index], tensor, data) !=
        GGML_STATUS_SUCCESS) {
        return Status(Code::internal, fmt::format("tensor {} could not be placed", name));
    }
    fetch(file_.data(*found));
    return tensor;
}

Status WeightLoader::linear(Linear& linear, const std::string& base, std::uint64_t in,
                            std::uint64_t out, bool required) {
    STET_ASSIGN(linear.weight, find(base + ".weight", {in, out}, required, Use::product));
    if (linear.weight == nullptr) return {};
    STET_ASSIGN(linear.bias, find(base + ".bias", {out}, false, Use::other));
    return {};
}

Status WeightLoader::norm(Norm& norm, const std::string& base, std::uint64_t size, bool required) {
    STET_ASSIGN(norm.weight, find(base + ".weight", {size}, required, Use::other));
    if (norm.weight == nullptr) return {};
    STET_ASSIGN(norm.bias, find(base + ".bias", {size}, false, Use::other));
    return {};
}

Status WeightLoader::load_globals() {
    const std::uint64_t width = config_.width;
    const std::uint64_t vocabulary = config_.vocabulary;
    Weights& w = *weights_;
    STET_ASSIGN(w.embedding, find("token_embd.weight", {width, vocabulary}, true, Use::other));
    STET_TRY(norm(w.output_norm, "output_norm", width, true));
    STET_TRY(linear(w.head, "output", width, vocabulary, false));
    if (!w.head) {
        STET_ASSIGN(w.head.weight, find("token_embd.weight", {width, vocabulary}, true, Use::product));
    }
    STET_ASSIGN(w.rope_factors, find("rope_freqs.weight", {config_.layers[0].rope.dimensions / 2},
                                     false, Use::other));
    return {};
}

Status WeightLoader::load_attention(std::size_t index, LayerWeights& layer) {
    const LayerPlan& plan = config_.layers[index];
    const std::string base = fmt::format("blk.{}.", index);
    const std::uint64_t width = config_.width;
    const std::uint64_t q_size = std::uint64_t{plan.heads} * plan.key_size;
    const std::uint64_t k_size = std::uint64_t{plan.kv_heads} * plan.key_size;
    const std::uint64_t v_size = std::uint64_t{plan.kv_heads} * plan.value_size;
    STET_TRY(norm(layer.attention_norm, base + "attn_norm", width, true));
    STET_TRY(linear(layer.qkv, base + "attn_qkv", width, q_size + k_size + v_size, false));
    if (!layer.qkv) {
        STET_TRY(linear(layer.q, base + "attn_q", width, q_size, true));
        STET_TRY(linear(layer.k, base + "attn_k", width, k_size, true));
        STET_TRY(linear(layer.v, base + "attn_v", width, v_size, true));
    }
    STET_TRY(norm(layer.q_norm, base + "attn_q_norm", plan.key_size, false));
    STET_TRY(norm(layer.k_norm, base + "attn_k_norm", plan.key_size, false));
    STET_TRY(linear(layer.attention_out, base + "attn_output",
                    std::uint64_t{plan.heads} * plan.value_size, width, true));
    return norm(layer.attention_post_norm, base + "post_attention_norm", width, false);
}

Status WeightLoader::load_layer(std::size_t index) {
    LayerWeights& layer = weights_->layers[index];
    const std::string base = fmt::format("blk.{}.", index);
    const std::uint64_t width = config_.width;
    const std::uint64_t ffn = config_.layers[index].ffn_size;
    STET_TRY(load_attention(index, layer));
    STET_TRY(norm(layer.ffn_norm, base + "ffn_norm", width, true));
    STET_TRY(linear(layer.gate, base + "ffn_gate", width, ffn, false));
    STET_TRY(linear(layer.up, base + "ffn_up", width, ffn, true));
    STET_TRY(linear(layer.down, base + "ffn_down", ffn, width, true));
    return norm(layer.ffn_post_norm, base + "post_ffw_norm", width, false);
}

// Gives each repacked tensor room in a buffer of its kind and converts it there.
Status WeightLoader::repack() {
    for (const Repack& item : repacks_) {
        const std::size_t size = ggml_backend_buft_get_alloc_size(item.type, item.tensor);
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(item.type, size);
        if (buffer == nullptr) {
            return Status(Code::resource_exhausted,
                          fmt::format("no memory to repack tensor {} ({} bytes)",
                                      ggml_get_name(item.tensor), size));
        }
        weights_->buffers_.emplace_back(buffer);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        if (ggml_backend_tensor_alloc(buffer, item.tensor, ggml_backend_buffer_get_base(buffer)) !=
            GGML_STATUS_SUCCESS) {
            return Status(Code::internal, fmt::format("tensor {} could not be placed",
                                                      ggml_get_name(item.tensor)));
        }
        const auto data = file_.data(*item.source);
        ggml_backend_tensor_set(item.tensor, data.data(), 0, data.size());
        weights_->repacked_bytes_ += size;
        let_go(data);
    }
    return {};
}

Result<std::unique_ptr<Weights>> WeightLoader::load() {
    STET_TRY(map_files());
    STET_TRY(load_globals());
    weights_->layers.resize(config_.layers.size());
    for (std::size_t i = 0; i < config_.layers.size(); ++i) STET_TRY(load_layer(i));
    STET_TRY(repack());
    for (const gguf::Tensor& tensor : file_.tensors()) {
        if (!used_.contains(tensor.name)) weights_->unused_.push_back(tensor.name);
    }
    return std::move(weights_);
}

Weights::~Weights() = default;

Result<std::unique_ptr<Weights>> Weights::load(const gguf::File& file, const Config& config,
                                               const exec::Backend& backend) {
    return WeightLoader(file, config, backend).load();
}

}  // namespace stet::model
