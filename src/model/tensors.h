// Finds, checks and places a model's tensors. They stay in the mapped file; those that this CPU
// multiplies faster in another layout are repacked at load, and their pages of the file are let go.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exec/backend.h"
#include "exec/product/packed_matrix.h"
#include "gguf/gguf.h"
#include "stet/status.h"

namespace stet::model {

// y = s W x (+ b). Shapes are ggml's: weight [in, out], bias f32 [out], scale f32 [1]. Null weight:
// not in the model. StepBuilder::product() multiplies by what is packed, where it is.
struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    ggml_tensor* scale = nullptr;
    const exec::PackedMatrix* packed = nullptr;
    bool is_q8_rows = false;  // multiplied as it lies in the file (exec::multiply_q8_rows)
    explicit operator bool() const { return weight != nullptr; }
};

// Null weight: not in the model (the norm is then skipped, or weightless where the block says so).
struct Norm {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    explicit operator bool() const { return weight != nullptr; }
};

// One matrix for each expert: weight [in, out, experts], bias f32 [out, experts], scale f32
// [experts].
struct Experts {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
    ggml_tensor* scale = nullptr;
    explicit operator bool() const { return weight != nullptr; }
};

// The memory that tensors lie in. Lives as long as they are used.
struct TensorStorage {
    struct ContextDeleter {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    struct BufferDeleter {
        void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
    };
    std::unique_ptr<ggml_context, ContextDeleter> context;
    std::vector<std::unique_ptr<ggml_backend_buffer, BufferDeleter>> buffers;
    std::deque<exec::PackedMatrix> packed;  // stable addresses
    std::uint64_t repacked_bytes = 0;
};

class Tensors {
  public:
    using Shape = std::initializer_list<std::uint64_t>;
    // How a tensor is used decides whether it may be repacked: as the first operand of a matrix
    // product only, of a product over experts only, or in any other way. Of a lookup table, or of
    // what is used as a packed copy, so little is read that it stays in the file until then. Values
    // are added or multiplied element by element, and so must be f32.
    enum class Use : std::uint8_t { product, expert_product, lookup, values, indices, other };
    enum class Need : std::uint8_t { required, optional };

    // The file and the backend must outlive this; storage() outlives it.
    // `width` is that of the residual stream.
    static Result<std::unique_ptr<Tensors>> open(const gguf::File& file,
                                                 const exec::Backend& backend, std::uint32_t width);

    // By full name, with its shape (trailing ones may be left out). Null when it isn't there and is
    // optional; corruption names the tensor with expected and found shape. One-dimensional tensors
    // must be f32, and so must `values`; `indices` are i32.
    Result<ggml_tensor*> find(const std::string& name, Shape shape, Need need,
                              Use use = Use::other);
    bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

    // `name` without ".weight", ".bias" and ".scale". Bias and scale are optional; a norm's weight
    // may lack its suffix.
    Result<Linear> linear(const std::string& name, std::uint64_t in, std::uint64_t out, Need need);
    // An output head: large, and met by few tokens of a step.
    Result<Linear> head(const std::string& name, std::uint64_t in, std::uint64_t out, Need need);
    Result<Norm> norm(const std::string& name, std::uint64_t size, Need need);
    Result<Experts> experts(const std::string& name, std::uint64_t in, std::uint64_t out,
                            std::uint64_t count, Need need);

    // Converts what is to be repacked. Call once, after the last tensor was found.
    Status repack();
    // Tensors of the file that nothing asked for.
    std::vector<std::string> unused() const;
    const gguf::File& file() const { return file_; }
    std::uint64_t width() const { return width_; }
    std::shared_ptr<TensorStorage> storage() const { return storage_; }

  private:
    struct Repack {
        ggml_tensor* tensor;
        const gguf::Tensor* source;
        ggml_backend_buffer_type_t type;
    };

    Tensors(const gguf::File& file, const exec::Backend& backend, std::uint32_t width)
        : file_(file), backend_(backend), width_(width) {}
    struct Pack {
        exec::PackedMatrix* matrix;
        std::span<const std::byte> source;
    };

    Status map_files();
    void fill_packed();
    Status check_type(const gguf::Tensor& tensor, Use use, std::size_t dimensions) const;
    Status place(ggml_tensor* tensor, const gguf::Tensor& source, Use use);
    // Null when the format or the shape is not one that our own product takes.
    Result<const exec::PackedMatrix*> pack(const std::string& name, std::uint64_t in,
                                           std::uint64_t out);

    const gguf::File& file_;
    const exec::Backend& backend_;
    const std::uint64_t width_;
    std::shared_ptr<TensorStorage> storage_;
    std::vector<ggml_backend_buffer_t> file_buffers_;
    std::vector<Repack> repacks_;
    std::vector<Pack> packs_;
    std::unordered_set<std::string> used_;
};

}  // namespace stet::model
