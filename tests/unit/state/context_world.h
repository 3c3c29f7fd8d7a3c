// Contexts beside what the tests know of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "state/context.h"
#include "state/encode.h"
#include "unit/state/plain_model.h"

namespace stet::state_test {

using state::Context;
using state::Identity;
using state::Limits;
using state::SequenceId;
using Bytes = std::vector<std::byte>;

inline Hash256 fingerprint_of(std::uint64_t model) {
    return Sha256().add(model).finish();
}

inline Identity identity_of(const Schema& schema, std::uint64_t model = 1) {
    return Identity::of(fingerprint_of(model), schema, ElementType::f32, ElementType::f32, "tiny");
}

inline Limits limits_of(std::uint64_t tokens_max, std::uint32_t sequences_max) {
    Limits limits;
    limits.tokens_max = tokens_max;
    limits.sequences_max = sequences_max;
    return limits;
}

// A context with a pool of its own, whose freed and new pages are poisoned.
struct World {
    explicit World(const Schema& schema, std::uint64_t tokens_max = 4096,
                   std::uint32_t sequences_max = 4, std::uint64_t pool_bytes = 1U << 26)
        : pool(schema, pool_bytes),
          context(pool, identity_of(schema), limits_of(tokens_max, sequences_max)) {
        pool.set_poison(std::byte{0x3e});
    }
    const Schema& schema() const { return pool.schema(); }
    const Sequence& at(SequenceId id) const { return **context.find(id); }
    void feed(SequenceId id, std::size_t count, Token first = 1) {
        const Status status = context.put(id, extended(pool, at(id), some_tokens(count, first)));
        EXPECT_TRUE(status) << status.to_string();
    }
    // Gives the value everything that a value can have.
    void dress(SequenceId id) {
        Sequence sequence = at(id);
        const auto position = static_cast<std::int32_t>(sequence.position());
        sequence.sampler =
            std::make_shared<const Bytes>(static_cast<std::size_t>(position % 5 + 1), std::byte{9});
        sequence.logits = std::make_shared<const std::vector<float>>(12, 1.5F);
        sequence.extensions.clear();
        for (std::int32_t i = 0; i < position; ++i) sequence.extensions.push_back({i / 2, i, 7});
        const Status status = context.put(id, std::move(sequence));
        EXPECT_TRUE(status) << status.to_string();
    }
    Bytes saved(SequenceId id) const {
        Bytes bytes(context.encoded_size(id).value());
        const auto written = context.save(id, bytes);
        EXPECT_TRUE(written) << written.status().to_string();
        EXPECT_EQ(written.value(), bytes.size());
        return bytes;
    }
    Bytes saved_all() const {
        Bytes bytes(context.encoded_size_all());
        const auto written = context.save_all(bytes);
        EXPECT_TRUE(written) << written.status().to_string();
        return bytes;
    }

    PagePool pool;
    Context context;
};

// All that a context refers to: its values, and the bytes of every page, unneeded ones included.
class Photo {
  public:
    explicit Photo(const World& world) : world_(&world), pages_(world.pool.stats().pages_in_use) {
        for (SequenceId id = 0; id < world.context.limits().sequences_max; ++id) {
            sequences_.push_back(world.at(id));
            for (const GroupState& group : world.at(id).groups) keep(group);
            for (const auto& kept : world.at(id).checkpoints) {
                for (const GroupState& group : kept->groups) keep(group);
            }
        }
    }
    // Empty if the context is, bit by bit, what it was.
    std::string difference() const {
        if (world_->pool.stats().pages_in_use != pages_) return "pages in use";
        if (const std::string changed = value_difference(); !changed.empty()) return changed;
        for (const auto& [page, bytes] : bytes_) {
            if (!std::equal(bytes.begin(), bytes.end(), page.data().begin())) {
                return "bytes of a page";
            }
        }
        return "";
    }
    // The same of the values alone: rows beyond their counts may have changed.
    std::string value_difference() const {
        for (SequenceId id = 0; id < sequences_.size(); ++id) {
            if (!is_same(sequences_[id], world_->at(id))) {
                return "sequence " + std::to_string(id) + " is another value";
            }
        }
        return "";
    }

  private:
    static bool is_same(const GroupState& a, const GroupState& b) {
        return a.first_row == b.first_row && a.rows == b.rows && a.pages == b.pages &&
               a.block == b.block;
    }
    static bool is_same(const Sequence& a, const Sequence& b) {
        return a.tokens == b.tokens && a.extensions == b.extensions && a.sampler == b.sampler &&
               a.logits == b.logits && a.checkpoints == b.checkpoints &&
               std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                          [](const auto& x, const auto& y) { return is_same(x, y); });
    }
    void keep(const GroupState& group) {
        for (const auto& page : group.pages) keep(page);
        if (group.block) keep(group.block);
    }
    void keep(const memory::PageRef& page) {
        bytes_.emplace_back(page, Bytes(page.data().begin(), page.data().end()));
    }

    const World* world_;
    std::uint64_t pages_;
    std::vector<Sequence> sequences_;
    std::vector<std::pair<memory::PageRef, Bytes>> bytes_;
};

// Empty if two values hold the same, whatever pages they hold it in.
inline std::string difference(const Schema& schema, const Sequence& a, const Sequence& b) {
    if (a.tokens != b.tokens) return "tokens";
    if (a.extensions != b.extensions) return "extensions";
    if (bool(a.sampler) != bool(b.sampler) || (a.sampler && *a.sampler != *b.sampler))
        return "sampler";
    if (bool(a.logits) != bool(b.logits) || (a.logits && *a.logits != *b.logits)) return "logits";
    if (a.checkpoints.size() != b.checkpoints.size()) return "number of checkpoints";
    for (std::size_t i = 0; i < a.checkpoints.size(); ++i) {
        const auto& x = *a.checkpoints[i];
        const auto& y = *b.checkpoints[i];
        if (x.position != y.position || x.is_asked_for != y.is_asked_for) return "checkpoint";
        if (bool(x.sampler) != bool(y.sampler) || (x.sampler && *x.sampler != *y.sampler)) {
            return "sampler of a checkpoint";
        }
    }
    const std::string wrong = first_wrong_row(schema, a);
    return wrong.empty() ? first_wrong_row(schema, b) : wrong;
}

}  // namespace stet::state_test
