// Weight products: packed weights (exec/product) against ggml_mul_mat on the same weights, both as
// the file has them and in ggml's own repacked layout where it has one; and packing itself.
//
// One thread. Every iteration takes the next of several copies of the weights, together larger than
// the caches, as the layers of a model do; rounding the activations is part of the time on both
// sides. `best` is the fastest iteration, the figure to compare on a shared machine.
#include <benchmark/benchmark.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "exec/product/product.h"

namespace {

using stet::exec::kPackedColumns;
using stet::exec::PackedFormat;
using stet::exec::PackedMatrix;
using stet::exec::RoundedBlock;

constexpr std::int64_t kColumns = 1536;
constexpr std::int64_t kRows = 1536;
constexpr std::size_t kCopies = 40;  // 53 MB of Q4_K

struct Format {
    PackedFormat packed;
    ggml_type type;
};
constexpr Format kFormats[] = {
    {PackedFormat::q4_0, GGML_TYPE_Q4_0},     {PackedFormat::q4_1, GGML_TYPE_Q4_1},
    {PackedFormat::q5_0, GGML_TYPE_Q5_0},     {PackedFormat::q8_0, GGML_TYPE_Q8_0},
    {PackedFormat::iq4_nl, GGML_TYPE_IQ4_NL}, {PackedFormat::q4_k, GGML_TYPE_Q4_K},
    {PackedFormat::q5_k, GGML_TYPE_Q5_K},     {PackedFormat::q6_k, GGML_TYPE_Q6_K},
    {PackedFormat::iq4_xs, GGML_TYPE_IQ4_XS},
};

std::vector<float> random_floats(std::size_t count) {
    std::vector<float> values(count);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    return values;
}

std::vector<std::byte> weights_of(ggml_type type) {
    const std::vector<float> values = random_floats(kRows * kColumns);
    std::vector<std::byte> bytes(kRows * ggml_row_size(type, kColumns));
    if (ggml_is_quantized(type)) {
        ggml_quantize_chunk(type, values.data(), bytes.data(), 0, kRows, kColumns, nullptr);
    } else {
        ggml_cpu_fp32_to_fp16(values.data(), reinterpret_cast<ggml_fp16_t*>(bytes.data()),
                              kRows * kColumns);
    }
    return bytes;
}

template <class Step>
void measure(benchmark::State& state, double operations, double bytes, Step&& step) {
    double best = 1e30;
    std::size_t copy = 0;
    for (auto _ : state) {
        const stet::ThreadStopwatch stopwatch;
        step(copy);
        best = std::min(best, stopwatch.seconds());
        copy = (copy + 1) % kCopies;
    }
    if (operations > 0) state.counters["best_GOP/s"] = operations / best / 1e9;
    state.counters["best_GB/s"] = bytes / best / 1e9;
    state.counters["best_us"] = best * 1e6;
}

double operations(std::int64_t tokens) {
    return 2.0 * kRows * kColumns * static_cast<double>(tokens);
}

void stet_product(benchmark::State& state, const Format& format, std::int64_t tokens) {
    const std::vector<std::byte> bytes = weights_of(format.type);
    std::vector<PackedMatrix> weights;
    for (std::size_t i = 0; i < kCopies; ++i) {
        auto packed = PackedMatrix::create(format.packed, kRows, kColumns);
        if (!packed) return state.SkipWithError("no memory");
        packed->fill(bytes, 0, packed->groups());
        weights.push_back(std::move(packed).value());
    }
    const std::vector<float> x = random_floats(static_cast<std::size_t>(tokens * kColumns));
    std::vector<RoundedBlock> rounded(x.size() / kPackedColumns);
    std::vector<float> y(static_cast<std::size_t>(tokens * kRows));
    measure(state, operations(tokens), static_cast<double>(bytes.size()), [&](std::size_t copy) {
        stet::exec::round_activations(x.data(), rounded.size(), rounded.data());
        stet::exec::multiply(weights[copy], rounded.data(), static_cast<std::size_t>(tokens), 0,
                             weights[copy].groups(), nullptr, y.data(), kRows);
    });
}

struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};

// The first buffer type of the CPU device that keeps weights in a layout of its own.
ggml_backend_buffer_type_t repacked_type() {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    auto* get =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    ggml_backend_buffer_type_t* types = get == nullptr ? nullptr : get(device);
    for (; types != nullptr && *types != nullptr; ++types) {
        if (std::string(ggml_backend_buft_name(*types)) == "CPU_REPACK") return *types;
    }
    return nullptr;
}

void ggml_product(benchmark::State& state, ggml_type type, std::int64_t tokens, bool repacked) {
    const std::vector<std::byte> bytes = weights_of(type);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    ggml_backend_buffer_type_t buffer_type =
        repacked ? repacked_type() : ggml_backend_cpu_buffer_type();
    constexpr std::size_t kTensors = 8 * kCopies;
    const auto new_context = [&] {
        return std::unique_ptr<ggml_context, Free>(ggml_init(
            {kTensors * ggml_tensor_overhead() + kCopies * ggml_graph_overhead_custom(8, false),
             nullptr, true}));
    };
    const auto weights_context = new_context();
    const auto context = new_context();
    std::vector<ggml_tensor*> weights;
    for (std::size_t i = 0; i < kCopies; ++i) {
        weights.push_back(ggml_new_tensor_2d(weights_context.get(), type, kColumns, kRows));
    }
    const std::unique_ptr<ggml_backend_buffer, Free> buffer(
        buffer_type == nullptr
            ? nullptr
            : ggml_backend_alloc_ctx_tensors_from_buft(weights_context.get(), buffer_type));
    if (!buffer || (repacked && weights[0]->extra == nullptr)) {
        ggml_backend_free(backend);
        return state.SkipWithError("ggml has no layout of its own for it");
    }
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kColumns, tokens);
    std::vector<ggml_cgraph*> graphs;
    for (ggml_tensor* weight : weights) {
        ggml_backend_tensor_set(weight, bytes.data(), 0, bytes.size());
        graphs.push_back(ggml_new_graph_custom(context.get(), 8, false));
        ggml_build_forward_expand(graphs.back(), ggml_mul_mat(context.get(), weight, x));
    }
    const std::unique_ptr<ggml_backend_buffer, Free> values(
        ggml_backend_alloc_ctx_tensors(context.get(), backend));
    const std::vector<float> floats = random_floats(static_cast<std::size_t>(tokens * kColumns));
    ggml_backend_tensor_set(x, floats.data(), 0, floats.size() * sizeof(float));
    measure(state, operations(tokens), static_cast<double>(bytes.size()),
            [&](std::size_t copy) { ggml_backend_graph_compute(backend, graphs[copy]); });
    ggml_backend_free(backend);
}

void stet_pack(benchmark::State& state, const Format& format) {
    const std::vector<std::byte> bytes = weights_of(format.type);
    auto packed = PackedMatrix::create(format.packed, kRows, kColumns);
    if (!packed) return state.SkipWithError("no memory");
    measure(state, 0, static_cast<double>(bytes.size()),
            [&](std::size_t) { packed->fill(bytes, 0, packed->groups()); });
}

void add(ggml_type type, const Format* format) {
    const std::string name = ggml_type_name(type);
    for (const std::int64_t tokens : {1, 8, 256}) {
        const std::string at = name + "/tokens:" + std::to_string(tokens);
        if (format != nullptr) {
            benchmark::RegisterBenchmark(("stet/" + at).c_str(), stet_product, *format, tokens);
        }
        benchmark::RegisterBenchmark(("ggml/" + at).c_str(), ggml_product, type, tokens, false);
        benchmark::RegisterBenchmark(("ggml_repacked/" + at).c_str(), ggml_product, type, tokens,
                                     true);
    }
    if (format != nullptr) {
        benchmark::RegisterBenchmark(("stet/pack/" + name).c_str(), stet_pack, *format);
    }
}

}  // namespace

int main(int argc, char** argv) {
    ggml_cpu_init();
    for (const Format& format : kFormats) add(format.type, &format);
    add(GGML_TYPE_F16, nullptr);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
