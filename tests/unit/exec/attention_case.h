// A made-up attention call with pages of its own, and the same call computed in double precision
// straight from the definition in exec/attention.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "exec/attention.h"
#include "exec/kernel.h"

namespace stet::exec::test {

using memory::ElementType;
using memory::kPageRows;

inline std::size_t bytes_of(ElementType type, std::size_t elements) {
    switch (type) {
        case ElementType::f32:
            return 4 * elements;
        case ElementType::f16:
            return 2 * elements;
        case ElementType::q8_0:
            return elements / 32 * 34;
    }
    return 0;
}

inline double half_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
        return mantissa != 0 ? std::nan("") : sign * INFINITY;
    }
    return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                         : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

inline double element_value(const std::byte* row, ElementType type, std::size_t element) {
    if (type == ElementType::f32) {
        float value;
        std::memcpy(&value, row + 4 * element, 4);
        return static_cast<double>(value);
    }
    std::uint16_t half;
    if (type == ElementType::f16) {
        std::memcpy(&half, row + 2 * element, 2);
        return half_value(half);
    }
    const std::byte* block = row + element / 32 * 34;
    std::memcpy(&half, block, 2);
    return half_value(half) * static_cast<std::int8_t>(block[2 + element % 32]);
}

struct Part {
    std::uint64_t position = 0;
    std::uint32_t count = 1;
};

struct Case {
    AttentionShape shape;
    ElementType type = ElementType::f16;
    bool shared_plane = false;  // MLA: V lies in K
    bool sinks = false;
    std::vector<Part> parts;
    std::uint32_t seed = 1;
};

inline Case make_case(std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t key_size,
                      std::uint32_t value_size, std::vector<Part> parts) {
    Case c;
    c.shape.heads = heads;
    c.shape.kv_heads = kv_heads;
    c.shape.key_size = key_size;
    c.shape.value_size = value_size;
    c.shape.v_head_stride = value_size;
    c.shape.scale = 1.0F / std::sqrt(static_cast<float>(key_size));
    c.parts = std::move(parts);
    return c;
}

class Call {
  public:
    explicit Call(const Case& c) : shape_(c.shape), random_(c.seed) {
        layout(c);
        for (const Part& part : c.parts) {
            add_segment(part, c);
        }
        fill(q_, std::size_t{tokens_} * q_token_stride());
        if (c.sinks) {
            fill(sinks_, shape_.heads);
        }
    }

    std::vector<float> run(int threads, AttentionJob& job) const {
        std::vector<float> out(std::size_t{tokens_} * shape_.heads * shape_.value_size, 1e30F);
        static AttentionScratch scratch;  // what earlier calls left in it must not matter
        job.reset(shape_, segments_, threads, scratch);
        std::vector<std::thread> others;
        for (int thread = 1; thread < threads; ++thread) {
            others.emplace_back([&, thread] {
                job.compute(q_.data(), q_token_stride(), sinks(), out.data(), thread);
            });
        }
        job.compute(q_.data(), q_token_stride(), sinks(), out.data(), 0);
        for (std::thread& other : others) {
            other.join();
        }
        return out;
    }

    std::vector<float> run(int threads = 1) const {
        AttentionJob job;
        return run(threads, job);
    }

    std::vector<double> expected(std::vector<double>* sizes = nullptr) const {
        std::vector<double> out;
        for (const Segment& segment : segments_) {
            for (std::uint32_t token = 0; token < segment.token_count; ++token) {
                for (std::uint32_t head = 0; head < shape_.heads; ++head) {
                    append_head(segment, token, head, out, sizes);
                }
            }
        }
        return out;
    }

    // The largest error of an element, relative to the sum of weight * |V| that it came from.
    double error(const std::vector<float>& got) const {
        std::vector<double> sizes;
        const std::vector<double> want = expected(&sizes);
        if (got.size() != want.size()) {
            return INFINITY;
        }
        double worst = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double here = std::abs(want[i] - static_cast<double>(got[i])) / sizes[i];
            worst = std::isnan(here) ? INFINITY : std::max(worst, here);
        }
        return worst;
    }

    const AttentionShape& shape() const { return shape_; }
    std::vector<Segment>& segments() { return segments_; }

  private:
    std::uint64_t q_token_stride() const { return shape_.heads * shape_.key_size + 5; }
    const float* sinks() const { return sinks_.empty() ? nullptr : sinks_.data(); }

    void layout(const Case& c) {
        shape_.k.type = shape_.v.type = c.type;
        shape_.k.offset_bytes = 128;  // something else lies before K
        shape_.k.row_bytes = bytes_of(c.type, std::size_t{shape_.kv_heads} * shape_.key_size);
        page_bytes_ = shape_.k.offset_bytes + kPageRows * shape_.k.row_bytes;
        if (c.shared_plane) {
            shape_.v = shape_.k;
            shape_.v_head_stride = 0;
            return;
        }
        shape_.v.offset_bytes = page_bytes_;
        shape_.v.row_bytes = bytes_of(c.type, std::size_t{shape_.kv_heads} * shape_.value_size);
        page_bytes_ += kPageRows * shape_.v.row_bytes;
    }

    bool is_visible(const Segment& segment, std::uint64_t token, std::uint64_t row) const {
        const std::uint64_t position = segment.position + token;
        if (row > position && shape_.causal) {
            return false;
        }
        if (shape_.window_kind == Window::sliding && row + shape_.window <= position) {
            return false;
        }
        return shape_.window_kind != Window::chunked ||
               row >= position / shape_.window * shape_.window;
    }

    bool is_needed(const Segment& segment, std::uint64_t row) const {
        for (std::uint32_t token = 0; token < segment.token_count; ++token) {
            if (is_visible(segment, token, row)) {
                return true;
            }
        }
        return false;
    }

    // Pages that no token of the segment sees stay null; rows that none sees stay NaN.
    void add_segment(const Part& part, const Case& c) {
        Segment segment;
        segment.position = part.position;
        segment.token_begin = tokens_;
        segment.token_count = part.count;
        const std::uint64_t rows = part.position + part.count;
        std::vector<std::byte*> table((rows + kPageRows - 1) / kPageRows + 1, nullptr);
        for (std::uint64_t row = 0; row < rows; ++row) {
            if (!is_needed(segment, row)) {
                continue;
            }
            std::byte*& page = table[row / kPageRows];
            if (page == nullptr) {
                storage_.push_back(std::make_unique<std::byte[]>(page_bytes_));
                page = storage_.back().get();
                std::memset(page, 0xFF, page_bytes_);
            }
            write_row(page, row, shape_.k, shape_.kv_heads * shape_.key_size);
            if (!c.shared_plane) {
                write_row(page, row, shape_.v, shape_.kv_heads * shape_.value_size);
            }
        }
        tables_.push_back(std::move(table));
        segment.pages = tables_.back().data();
        segments_.push_back(segment);
        tokens_ += part.count;
    }

    void write_row(std::byte* page, std::uint64_t row, const PlaneView& plane,
                   std::uint32_t elements) {
        std::vector<float> values;
        fill(values, elements);
        kernels().store_row(values.data(), elements, plane.type,
                            page + plane.offset_bytes + row % kPageRows * plane.row_bytes);
    }

    void fill(std::vector<float>& values, std::size_t count) {
        values.resize(count);
        std::normal_distribution<float> normal;
        for (float& value : values) {
            value = normal(random_);
        }
    }

    double slope(std::uint32_t head) const {
        if (shape_.max_alibi_bias <= 0.0F) {
            return 0;
        }
        std::uint32_t near = 1;
        while (near * 2 <= shape_.heads) {
            near *= 2;
        }
        const double bias = static_cast<double>(shape_.max_alibi_bias);
        return head < near ? std::pow(2.0, -bias / near * (head + 1))
                           : std::pow(2.0, -bias / 2 / near * (2 * (head - near) + 1));
    }

    double score(const Segment& segment, std::uint64_t token, std::uint32_t head,
                 std::uint64_t row) const {
        const std::byte* k = segment.pages[row / kPageRows] + shape_.k.offset_bytes +
                             row % kPageRows * shape_.k.row_bytes;
        const float* q = q_.data() + (segment.token_begin + token) * q_token_stride() +
                         std::size_t{head} * shape_.key_size;
        const std::uint32_t kv = head / (shape_.heads / shape_.kv_heads);
        double sum = 0;
        for (std::uint32_t e = 0; e < shape_.key_size; ++e) {
            sum += static_cast<double>(q[e]) *
                   element_value(k, shape_.k.type, std::size_t{kv} * shape_.key_size + e);
        }
        sum *= static_cast<double>(shape_.scale);
        if (shape_.softcap > 0) {
            const double cap = static_cast<double>(shape_.softcap);
            sum = cap * std::tanh(sum / cap);
        }
        const auto distance =
            static_cast<double>(segment.position + token) - static_cast<double>(row);
        return sum - slope(head) * std::abs(distance);
    }

    void append_head(const Segment& segment, std::uint64_t token, std::uint32_t head,
                     std::vector<double>& out, std::vector<double>* sizes) const {
        const std::uint64_t rows = segment.position + segment.token_count;
        std::vector<double> scores(rows, -INFINITY);
        double top = sinks_.empty() ? -INFINITY : static_cast<double>(sinks_[head]);
        for (std::uint64_t row = 0; row < rows; ++row) {
            if (is_visible(segment, token, row)) {
                scores[row] = score(segment, token, head, row);
                top = std::max(top, scores[row]);
            }
        }
        double total = sinks_.empty() ? 0 : std::exp(static_cast<double>(sinks_[head]) - top);
        std::vector<double> sums(shape_.value_size, 0.0);
        std::vector<double> absolute(shape_.value_size, 1e-30);
        const std::size_t kv = head / (shape_.heads / shape_.kv_heads);
        for (std::uint64_t row = 0; row < rows; ++row) {
            if (!is_visible(segment, token, row)) {
                continue;
            }
            const double weight = std::exp(scores[row] - top);
            total += weight;
            const std::byte* v = segment.pages[row / kPageRows] + shape_.v.offset_bytes +
                                 row % kPageRows * shape_.v.row_bytes;
            for (std::size_t e = 0; e < shape_.value_size; ++e) {
                const double value = element_value(v, shape_.v.type, kv * shape_.v_head_stride + e);
                sums[e] += weight * value;
                absolute[e] += weight * std::abs(value);
            }
        }
        for (std::size_t e = 0; e < sums.size(); ++e) {
            out.push_back(sums[e] / total);
            if (sizes != nullptr) {
                sizes->push_back(absolute[e] / total);
            }
        }
    }

    AttentionShape shape_;
    std::mt19937 random_;
    std::size_t page_bytes_ = 0;
    std::vector<std::unique_ptr<std::byte[]>> storage_;
    std::vector<std::vector<std::byte*>> tables_;
    std::vector<Segment> segments_;
    std::vector<float> q_;
    std::vector<float> sinks_;
    std::uint32_t tokens_ = 0;
};

}  // namespace stet::exec::test
