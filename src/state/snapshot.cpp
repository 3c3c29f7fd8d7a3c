#include "state/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/quote.h"
#include "base/try.h"

namespace stet::state {

using memory::ElementType;
using memory::kPageRows;
using memory::PagePool;
using memory::PageRef;
using memory::Schema;

namespace {

// Replaces every page and block of a value.
void replace_pages(GroupState& group, const std::function<PageRef(const PageRef&)>& replacement) {
    for (PageRef& page : group.pages) page = replacement(page);
    if (group.block) group.block = replacement(group.block);
}

void replace_pages(Sequence& sequence, const std::function<PageRef(const PageRef&)>& replacement) {
    for (GroupState& group : sequence.groups) replace_pages(group, replacement);
    for (auto& kept : sequence.checkpoints) {
        auto copy = std::make_shared<Checkpoint>(*kept);
        for (GroupState& group : copy->groups) replace_pages(group, replacement);
        kept = std::move(copy);
    }
}

Status check_capacity(const Limits& limits, const Saved::Entry& entry) {
    if (entry.id >= limits.sequences_max) {
        return Status(
            Code::resource_exhausted,
            fmt::format("the state holds a sequence with id {}, the context has room for {} "
                        "sequences",
                        entry.id, limits.sequences_max));
    }
    if (entry.sequence.position() > limits.tokens_max) {
        return Status(Code::resource_exhausted,
                      fmt::format("the state has {} tokens, the context room for {}: use a longer "
                                  "context",
                                  entry.sequence.position(), limits.tokens_max));
    }
    return {};
}

}  // namespace

Identity Identity::of(const Hash256& fingerprint, const Schema& schema, ElementType k_type,
                      ElementType v_type, std::string model_name) {
    return {fingerprint, schema.hash(), k_type, v_type, std::move(model_name)};
}

Status check_identity(const Identity& expected, const Identity& found) {
    if (found.fingerprint != expected.fingerprint) {
        return Status(Code::incompatible,
                      fmt::format("made with another model: {}, fingerprint {}; expected {}, {}",
                                  quote_name(found.model_name), found.fingerprint.hex(),
                                  quote_name(expected.model_name), expected.fingerprint.hex()));
    }
    if (found.k_type != expected.k_type || found.v_type != expected.v_type) {
        return Status(
            Code::incompatible,
            fmt::format("made with K/V types {}/{}, expected {}/{}: use the types that it "
                        "was made with",
                        memory::element_type_name(found.k_type),
                        memory::element_type_name(found.v_type),
                        memory::element_type_name(expected.k_type),
                        memory::element_type_name(expected.v_type)));
    }
    if (found.schema_hash != expected.schema_hash) {
        return Status(Code::incompatible,
                      fmt::format("made with schema {}, expected {}", found.schema_hash.hex(),
                                  expected.schema_hash.hex()));
    }
    return {};
}

Status check_fits(const Identity& identity, const Limits& limits, const Saved& saved) {
    STET_TRY(check_identity(identity, saved.identity));
    for (const Saved::Entry& entry : saved.entries) {
        STET_TRY(check_capacity(limits, entry));
        STET_TRY(validate(saved.schema(), entry.sequence));
        if (limits.check_sampler && entry.sequence.sampler) {
            STET_TRY(limits.check_sampler(*entry.sequence.sampler));
        }
    }
    return {};
}

Result<Saved> adopt(PagePool& pool, const Saved& saved) {
    Saved adopted = saved;
    if (saved.pool == &pool) return adopted;
    adopted.pool = &pool;
    const PageTable table = PageTable::of(saved);
    std::vector<PageRef> copies;
    copies.reserve(table.uses().size());
    for (const PageTable::Use& use : table.uses()) {
        STET_ASSIGN(PageRef copy, pool.copy(use.page.group(), use.page, use.rows));
        copies.push_back(std::move(copy));
    }
    for (Saved::Entry& entry : adopted.entries) {
        replace_pages(entry.sequence,
                      [&](const PageRef& page) { return copies[table.index(page)]; });
    }
    return adopted;
}

PageTable PageTable::of(const Saved& saved) {
    PageTable table;
    for (const Saved::Entry& entry : saved.entries) {
        const Sequence& sequence = entry.sequence;
        for (const GroupState& group : sequence.groups) table.add(group, sequence.position());
        for (const auto& kept : sequence.checkpoints) {
            for (const GroupState& group : kept->groups) table.add(group, kept->position);
        }
    }
    return table;
}

void PageTable::add(const GroupState& group, std::uint64_t position) {
    if (group.block) add(group.block, position, 1);
    for (std::size_t i = 0; i < group.pages.size(); ++i) {
        const std::uint64_t at = group.first_row + i * kPageRows;
        const std::uint64_t rows = std::min<std::uint64_t>(group.rows - at, kPageRows);
        add(group.pages[i], at, static_cast<std::uint32_t>(rows));
    }
}

void PageTable::add(const PageRef& page, std::uint64_t at, std::uint32_t rows) {
    const auto [known, is_new] = index_.try_emplace(page.identity(), uses_.size());
    if (is_new) {
        uses_.push_back({page, at, rows});
        return;
    }
    Use& use = uses_[known->second];
    use.rows = std::max(use.rows, rows);
}

std::size_t PageTable::index(const PageRef& page) const {
    return index_.at(page.identity());
}

}  // namespace stet::state
