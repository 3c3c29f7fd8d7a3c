#include "exec/backend.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

namespace stet::exec {
namespace {

constexpr int kThreadsMax = 512;

// ggml reports through a global callback; only what a person should see passes.
void log_from_ggml(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device) {
    std::vector<ggml_backend_buffer_type_t> types;
    auto* registry = ggml_backend_dev_backend_reg(device);
    auto list = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
    if (list == nullptr) return types;
    for (auto* type = list(device); type != nullptr && *type != nullptr; ++type) {
        types.push_back(*type);
    }
    return types;
}

struct ContextDeleter {
    void operator()(ggml_context* context) const { ggml_free(context); }
};
struct BufferDeleter {
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};

}  // namespace

int Backend::default_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return std::clamp(CPU_COUNT(&set), 1, kThreadsMax);
    }
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
}

Result<std::unique_ptr<Backend>> Backend::create(int threads) {
    if (threads < 0 || threads > kThreadsMax) {
        return Status(Code::invalid_argument,
                      fmt::format("{} threads; expected 1 to {}", threads, kThreadsMax));
    }
    ggml_log_set(log_from_ggml, nullptr);
    std::unique_ptr<Backend> made(new Backend());
    made->threads_ = threads == 0 ? default_threads() : threads;
    made->backend_ = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    if (made->backend_ == nullptr) return Status(Code::internal, "ggml has no CPU backend");
    ggml_backend_cpu_set_n_threads(made->backend_, made->threads_);
    if (made->threads_ > 1) {
        ggml_threadpool_params params = ggml_threadpool_params_default(made->threads_);
        made->pool_ = ggml_threadpool_new(&params);
        if (made->pool_ == nullptr) {
            return Status(Code::resource_exhausted,
                          fmt::format("could not start {} threads", made->threads_));
        }
        ggml_backend_cpu_set_threadpool(made->backend_, made->pool_);
    }
    made->weight_buffer_types_ = extra_buffer_types(ggml_backend_get_device(made->backend_));
    return made;
}

Backend::~Backend() {
    if (backend_ != nullptr) ggml_backend_free(backend_);
    if (pool_ != nullptr) ggml_threadpool_free(pool_);
}

Status Backend::compute(ggml_cgraph* graph, int threads) {
    ggml_backend_cpu_set_n_threads(backend_, threads);
    const ggml_status status = ggml_backend_graph_compute(backend_, graph);
    if (status == GGML_STATUS_SUCCESS) return {};
    if (status == GGML_STATUS_ALLOC_FAILED) {
        return Status(Code::resource_exhausted, "no memory for the work buffer of a step");
    }
    return Status(Code::internal, fmt::format("a step failed: {}", ggml_status_to_string(status)));
}

bool Backend::supports_product(ggml_tensor* weight, ggml_backend_buffer_type_t type) const {
    return supports(weight, type, false);
}

bool Backend::supports_expert_product(ggml_tensor* weight, ggml_backend_buffer_type_t type) const {
    return supports(weight, type, true);
}

// Asks with a product of one column; the weight's buffer decides which kernel would run.
bool Backend::supports(ggml_tensor* weight, ggml_backend_buffer_type_t type,
                       bool by_experts) const {
    constexpr std::size_t kTensors = 8;
    const std::unique_ptr<ggml_context, ContextDeleter> context(
        ggml_init({kTensors * ggml_tensor_overhead(), nullptr, true}));
    const std::unique_ptr<ggml_backend_buffer, BufferDeleter> buffer(
        ggml_backend_buft_alloc_buffer(type, 0));
    if (!context || !buffer) return false;
    ggml_tensor* column = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, weight->ne[0], 1, 1);
    ggml_tensor* product =
        by_experts ? ggml_mul_mat_id(context.get(), weight, column,
                                     ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 1, 1))
                   : ggml_mul_mat(context.get(), weight, column);
    weight->buffer = buffer.get();
    const bool supported = ggml_backend_dev_supports_op(ggml_backend_get_device(backend_), product);
    weight->buffer = nullptr;
    return supported;
}

}  // namespace stet::exec
