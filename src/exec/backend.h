// The machine that runs graphs: ggml's CPU backend with one pool of threads that lives as long as
// the Backend. The only place that creates ggml backends.
//
// Thread rules: compute() by one thread at a time.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <memory>
#include <vector>

#include "stet/status.h"

namespace stet::exec {

class Backend {
  public:
    // `threads` 1..512; 0 asks for default_threads().
    static Result<std::unique_ptr<Backend>> create(int threads);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    // With `threads` threads, 1..threads().
    Status compute(ggml_cgraph* graph, int threads);

    int threads() const { return threads_; }
    ggml_backend_t handle() const { return backend_; }
    // Buffer types that hold weights in a layout of their own (repacked for this CPU), best first.
    // None of them is host memory as the file has it.
    const std::vector<ggml_backend_buffer_type_t>& weight_buffer_types() const {
        return weight_buffer_types_;
    }
    // True if products with `weight` (not yet allocated) run when it lies in a buffer of `type`.
    bool supports_product(ggml_tensor* weight, ggml_backend_buffer_type_t type) const;
    // The same for a product over chosen experts (ggml_mul_mat_id); weight [in, out, experts].
    bool supports_expert_product(ggml_tensor* weight, ggml_backend_buffer_type_t type) const;

    // Processors this process may run on, bounded by what helps.
    static int default_threads();

  private:
    Backend() = default;
    bool supports(ggml_tensor* weight, ggml_backend_buffer_type_t type, bool by_experts) const;

    int threads_ = 1;
    ggml_threadpool_t pool_ = nullptr;
    ggml_backend_t backend_ = nullptr;
    std::vector<ggml_backend_buffer_type_t> weight_buffer_types_;
};

}  // namespace stet::exec
