// Attention over pages against ggml_flash_attn_ext on the same shapes.
//
// Every iteration takes the next of several copies of K and V, together larger than the caches, as
// the layers of a model do. `best` is the fastest iteration, the figure to compare on a shared
// machine: K and V bytes read per second for decode, operations per second for prompts. With one
// thread it counts processor time, which other programs disturb least.
#include <benchmark/benchmark.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "exec/attention.h"
#include "exec/kernel.h"

namespace {

using stet::exec::AttentionJob;
using stet::exec::AttentionShape;
using stet::exec::Segment;
using stet::exec::Window;
using stet::memory::ElementType;
using stet::memory::kPageRows;

constexpr std::size_t kCopyBytes = 96 << 20;

struct Setting {
    const char* name;
    std::uint32_t heads;
    std::uint32_t kv_heads;
    std::uint32_t size;
    std::uint32_t window;  // 0: none
    ElementType type;
    std::uint32_t depth;   // rows before the step
    std::uint32_t tokens;  // of the step
};

AttentionShape shape_of(const Setting& setting) {
    const std::uint64_t elements = std::uint64_t{setting.kv_heads} * setting.size;
    AttentionShape shape;
    shape.heads = setting.heads;
    shape.kv_heads = setting.kv_heads;
    shape.key_size = shape.value_size = shape.v_head_stride = setting.size;
    shape.k.type = shape.v.type = setting.type;
    shape.k.row_bytes = setting.type == ElementType::q8_0 ? elements / 32 * 34 : elements * 2;
    shape.v.row_bytes = shape.k.row_bytes;
    shape.v.offset_bytes = kPageRows * shape.k.row_bytes;
    shape.scale = 1.0F / std::sqrt(static_cast<float>(setting.size));
    shape.window_kind = setting.window != 0 ? Window::sliding : Window::none;
    shape.window = setting.window;
    return shape;
}

std::uint64_t visible_pairs(const Setting& setting) {
    std::uint64_t pairs = 0;
    for (std::uint64_t token = 0; token < setting.tokens; ++token) {
        const std::uint64_t rows = setting.depth + token + 1;
        pairs += setting.window != 0 ? std::min<std::uint64_t>(rows, setting.window) : rows;
    }
    return pairs;
}

std::vector<float> random_floats(std::size_t count) {
    std::vector<float> values(count);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : values) {
        value = normal(random);
    }
    return values;
}

// Runs a function on `threads` threads that are kept between calls.
class Team {
  public:
    explicit Team(int threads) {
        for (int thread = 1; thread < threads; ++thread) {
            others_.emplace_back([this, thread] { serve(thread); });
        }
    }
    ~Team() {
        stop_ = true;
        turn_.fetch_add(1);
        for (std::thread& other : others_) {
            other.join();
        }
    }
    template <class Work>
    void run(Work&& work) {
        work_ = work;
        left_ = static_cast<int>(others_.size());
        turn_.fetch_add(1);
        work(0);
        while (left_.load() > 0) {
            std::this_thread::yield();
        }
    }

  private:
    void serve(int thread) {
        for (int seen = 0;;) {
            while (turn_.load() == seen) {
                std::this_thread::yield();
            }
            ++seen;
            if (stop_) {
                return;
            }
            work_(thread);
            left_.fetch_sub(1);
        }
    }

    std::vector<std::thread> others_;
    std::function<void(int)> work_;
    std::atomic<int> turn_{0};
    std::atomic<int> left_{0};
    std::atomic<bool> stop_{false};
};

double seconds(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Times `step(copy)` and reports the best iteration.
template <class Step>
void measure(benchmark::State& state, const Setting& setting, std::size_t copies, int threads,
             Step&& step) {
    const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double best = 1e30;
    std::size_t copy = 0;
    for (auto _ : state) {
        const double start = seconds(clock);
        step(copy);
        best = std::min(best, seconds(clock) - start);
        copy = (copy + 1) % copies;
    }
    const AttentionShape shape = shape_of(setting);
    const auto pairs = static_cast<double>(visible_pairs(setting));
    const double work = setting.tokens == 1 ? pairs * static_cast<double>(2 * shape.k.row_bytes)
                                            : pairs * 4.0 * setting.heads * setting.size;
    state.counters[setting.tokens == 1 ? "best_GB/s" : "best_GFLOP/s"] = work / best / 1e9;
    state.counters["best_us"] = best * 1e6;
}

void stet_attention(benchmark::State& state, const Setting& setting, int threads) {
    const AttentionShape shape = shape_of(setting);
    const std::size_t rows = setting.depth + setting.tokens;
    const std::size_t pages = (rows + kPageRows - 1) / kPageRows;
    const std::size_t page_bytes = 2 * kPageRows * shape.k.row_bytes;
    const std::size_t copies = std::max<std::size_t>(1, kCopyBytes / (pages * page_bytes));
    const std::vector<float> row = random_floats(setting.kv_heads * setting.size);
    std::vector<std::byte> memory(copies * pages * page_bytes);
    std::vector<std::byte*> table;
    const auto store_row = stet::exec::kernels().store_row;
    for (std::size_t at = 0; at < memory.size(); at += shape.k.row_bytes) {
        store_row(row.data(), static_cast<std::uint32_t>(row.size()), setting.type, &memory[at]);
    }
    for (std::size_t page = 0; page < copies * pages; ++page) {
        table.push_back(&memory[page * page_bytes]);
    }
    const std::size_t q_stride = std::size_t{setting.heads} * setting.size;
    const std::vector<float> q = random_floats(setting.tokens * q_stride);
    std::vector<float> out(q.size());
    Team team(threads);
    AttentionJob job;
    stet::exec::AttentionScratch scratch;
    measure(state, setting, copies, threads, [&](std::size_t copy) {
        Segment segment;
        segment.pages = &table[copy * pages];
        segment.position = setting.depth;
        segment.token_count = setting.tokens;
        job.reset(shape, std::span(&segment, 1), threads, scratch);
        team.run([&](int thread) { job.compute(q.data(), q_stride, nullptr, out.data(), thread); });
    });
    state.SetLabel(stet::exec::kernel_path());
}

struct GgmlFree {
    void operator()(ggml_context* context) const { ggml_free(context); }
};

// One graph per copy: the same q and mask over that copy's K and V, rows of all heads together.
class GgmlGraphs {
  public:
    GgmlGraphs(const Setting& setting, std::size_t copies) {
        const std::int64_t size = setting.size;
        const std::int64_t kv_heads = setting.kv_heads;
        // ggml takes a window's rows as a cache of that length.
        const std::uint32_t rows_all = setting.depth + setting.tokens;
        const std::int64_t rows = setting.window != 0 && setting.tokens == 1
                                      ? std::min(rows_all, setting.window)
                                      : rows_all;
        const ggml_type type = setting.type == ElementType::q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
        const std::size_t plane_bytes = ggml_row_size(type, size * kv_heads) * std::size_t(rows);
        const std::size_t mask_bytes = 2 * std::size_t(rows) * setting.tokens;
        const std::size_t q_bytes = 4 * std::size_t(size) * setting.heads * setting.tokens;
        ggml_init_params params{};
        params.mem_size =
            copies * (2 * plane_bytes + q_bytes + (64 << 10)) + mask_bytes + q_bytes + (4 << 20);
        context_.reset(ggml_init(params));
        ggml_context* context = context_.get();
        ggml_tensor* q =
            ggml_new_tensor_3d(context, GGML_TYPE_F32, size, setting.tokens, setting.heads);
        const std::vector<float> values = random_floats(q_bytes / 4);
        std::memcpy(q->data, values.data(), q_bytes);
        ggml_tensor* mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, rows, setting.tokens);
        fill_mask(setting, mask);
        const std::vector<float> row = random_floats(std::size_t(size * kv_heads));
        for (std::size_t copy = 0; copy < copies; ++copy) {
            ggml_tensor* kv[2];
            for (ggml_tensor*& view : kv) {
                ggml_tensor* plane = ggml_new_tensor_2d(context, type, size * kv_heads, rows);
                for (std::int64_t r = 0; r < rows; ++r) {
                    ggml_quantize_chunk(type, row.data(),
                                        static_cast<char*>(plane->data) + r * plane->nb[1], 0, 1,
                                        size * kv_heads, nullptr);
                }
                view = ggml_view_3d(context, plane, size, rows, kv_heads, plane->nb[1],
                                    ggml_row_size(type, size), 0);
            }
            ggml_tensor* out =
                ggml_flash_attn_ext(context, q, kv[0], kv[1], mask,
                                    1.0F / std::sqrt(static_cast<float>(size)), 0.0F, 0.0F);
            graphs_.push_back(ggml_new_graph_custom(context, 8, false));
            ggml_build_forward_expand(graphs_.back(), out);
        }
    }

    ggml_cgraph* graph(std::size_t copy) const { return graphs_[copy]; }

  private:
    static void fill_mask(const Setting& setting, ggml_tensor* mask) {
        auto* at = static_cast<ggml_fp16_t*>(mask->data);
        const std::int64_t rows = mask->ne[0];
        for (std::int64_t token = 0; token < setting.tokens; ++token) {
            for (std::int64_t row = 0; row < rows; ++row) {
                const std::int64_t position = rows - setting.tokens + token;
                const bool hidden =
                    row > position ||
                    (setting.window != 0 && row + std::int64_t{setting.window} <= position);
                *at++ = ggml_fp32_to_fp16(hidden ? -INFINITY : 0.0F);
            }
        }
    }

    std::unique_ptr<ggml_context, GgmlFree> context_;
    std::vector<ggml_cgraph*> graphs_;
};

void ggml_attention(benchmark::State& state, const Setting& setting, int threads) {
    const AttentionShape shape = shape_of(setting);
    const std::size_t bytes = 2 * shape.k.row_bytes * (setting.depth + setting.tokens);
    const std::size_t copies = std::max<std::size_t>(1, kCopyBytes / bytes);
    const GgmlGraphs graphs(setting, copies);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, threads);
    measure(state, setting, copies, threads,
            [&](std::size_t copy) { ggml_backend_graph_compute(backend, graphs.graph(copy)); });
    ggml_backend_free(backend);
}

void add(const Setting& setting) {
    for (const int threads : {1, 2}) {
        const std::string name =
            std::string(setting.name) + "/depth:" + std::to_string(setting.depth) +
            "/tokens:" + std::to_string(setting.tokens) + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(("stet/" + name).c_str(), stet_attention, setting, threads)
            ->UseRealTime();
        benchmark::RegisterBenchmark(("ggml/" + name).c_str(), ggml_attention, setting, threads)
            ->UseRealTime();
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (const ElementType type : {ElementType::f16, ElementType::q8_0}) {
        const bool f16 = type == ElementType::f16;
        for (const std::uint32_t depth : {511U, 4095U, 16383U}) {
            add({f16 ? "9x64/3/f16" : "9x64/3/q8_0", 9, 3, 64, 0, type, depth, 1});
        }
        add({f16 ? "32x128/8/f16" : "32x128/8/q8_0", 32, 8, 128, 0, type, 4095, 1});
        add({f16 ? "4x256/1/window512/f16" : "4x256/1/window512/q8_0", 4, 1, 256, 512, type, 4095,
             1});
        for (const std::uint32_t tokens : {512U, 4096U}) {
            add({f16 ? "9x64/3/f16" : "9x64/3/q8_0", 9, 3, 64, 0, type, 0, tokens});
        }
        add({f16 ? "9x64/3/f16" : "9x64/3/q8_0", 9, 3, 64, 0, type, 3584, 512});
        add({f16 ? "4x256/1/window512/f16" : "4x256/1/window512/q8_0", 4, 1, 256, 512, type, 0,
             2048});
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
