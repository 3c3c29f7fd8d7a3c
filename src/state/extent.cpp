#include "state/extent.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;
using memory::Lifetime;
using memory::PagePool;
using memory::Schema;

namespace {

constexpr std::uint64_t kPrefixStep = memory::kPageRows;  // tokens between kept prefix ids
static_assert(kPageRows == 64, "present_ keeps one 64-bit mask a page");

Hash256 extent_key(const Hash256& prefix, std::size_t group, std::uint64_t row_begin, bool fixed) {
    return Sha256().add(prefix).add(group).add(row_begin).add(fixed ? 1 : 0).finish();
}

// Tokens after which row `row` of the group is complete.
std::uint64_t tokens_for_rows(const Group& group, std::uint64_t rows) {
    return group.lifetime == Lifetime::every ? rows * group.parameter : rows;
}

std::uint64_t row_mask(std::uint64_t from, std::uint64_t to) {
    const std::uint64_t upper = to == kPageRows ? ~std::uint64_t{0} : (std::uint64_t{1} << to) - 1;
    return upper & ~((std::uint64_t{1} << from) - 1);
}

Status misfit(const Group& group, const Extent& extent, std::string why) {
    return Status(Code::corruption, fmt::format("group '{}', rows {} to {}: {}", group.name,
                                                extent.row_begin, extent.row_end, why));
}

Status misplaced(const Extent& extent, const Schema& schema) {
    return Status(Code::corruption,
                  fmt::format("group {} of {}", extent.group, schema.groups.size()));
}

Status check_block(const Group& shape, const Extent& extent, std::uint64_t payload_bytes) {
    if (payload_bytes == shape.page_bytes()) return {};
    return misfit(shape, extent,
                  fmt::format("block of {} bytes, expected {}", payload_bytes, shape.page_bytes()));
}

}  // namespace

Hash256 root_id(const Hash256& fingerprint, const Schema& schema, std::string_view tenant) {
    return Sha256().add("stet pages 1").add(fingerprint).add(schema.hash()).add(tenant).finish();
}

Hash256 PrefixIds::at(std::span<const Token> tokens, std::uint64_t n) {
    STET_CHECK(n <= tokens.size());
    const auto extend = [&](const Hash256& from, std::uint64_t begin, std::uint64_t end) {
        return Sha256()
            .add(from)
            .add_bytes(std::as_bytes(tokens.subspan(begin, end - begin)))
            .finish();
    };
    while ((chain_.size()) * kPrefixStep <= n) {
        const std::uint64_t begin = (chain_.size() - 1) * kPrefixStep;
        chain_.push_back(extend(chain_.back(), begin, begin + kPrefixStep));
    }
    const std::uint64_t whole = n / kPrefixStep;
    if (n % kPrefixStep == 0) return chain_[whole];
    return extend(chain_[whole], whole * kPrefixStep, n);
}

std::vector<Extent> extents_between(const Schema& schema, PrefixIds& ids,
                                    std::span<const Token> tokens, std::uint64_t token_begin,
                                    std::uint64_t token_end) {
    std::vector<Extent> extents;
    if (token_begin >= token_end) return extents;
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& group = schema.groups[g];
        if (!group.is_paged()) {
            extents.push_back(
                {g, 0, 0, group.page_bytes(), extent_key(ids.at(tokens, token_end), g, 0, true)});
            continue;
        }
        std::uint64_t row = group.rows_at(token_begin);
        const std::uint64_t row_end = group.rows_at(token_end);
        while (row < row_end) {
            const std::uint64_t end = std::min(row_end, (row / kPageRows + 1) * kPageRows);
            const Hash256 prefix = ids.at(tokens, tokens_for_rows(group, end));
            extents.push_back(
                {g, row, end, (end - row) * group.row_bytes(), extent_key(prefix, g, row, false)});
            row = end;
        }
    }
    return extents;
}

void gather(const Schema& schema, const Sequence& sequence, const Extent& extent,
            std::span<std::byte> payload) {
    const Group& shape = schema.groups[extent.group];
    const GroupState& group = sequence.groups[extent.group];
    STET_CHECK(payload.size() == extent.size_bytes);
    if (!shape.is_paged()) {
        std::memcpy(payload.data(), group.block.data().data(), payload.size());
        return;
    }
    STET_CHECK(extent.row_begin >= group.first_row && extent.row_end <= group.rows);
    const std::uint64_t page = (extent.row_begin - group.first_row) / kPageRows;
    const std::uint64_t row = extent.row_begin % kPageRows;
    const std::uint64_t rows = extent.row_end - extent.row_begin;
    const std::byte* source = group.pages[page].data().data();
    std::byte* to = payload.data();
    for (std::size_t p = 0; p < shape.planes.size(); ++p) {
        const std::uint64_t row_bytes = shape.planes[p].row_bytes;
        std::memcpy(to, source + shape.plane_offset(p) + row * row_bytes, rows * row_bytes);
        to += rows * row_bytes;
    }
}

Stage::Stage(PagePool& pool, std::vector<Token> tokens)
    : pool_(&pool), sequence_(Sequence::empty(pool.schema())) {
    const Schema& schema = pool.schema();
    sequence_.tokens = std::move(tokens);
    present_.resize(schema.groups.size());
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        if (!shape.is_paged()) continue;
        GroupState& group = sequence_.groups[g];
        group.rows = shape.rows_at(sequence_.position());
        group.first_row = memory::page_floor(shape.first_needed_row(sequence_.position()));
        group.first_row = std::min(group.first_row, memory::page_floor(group.rows));
        group.pages.resize(memory::page_count(group.rows - group.first_row));
        present_[g].resize(group.pages.size());
    }
}

bool Stage::needs(const Extent& extent) const {
    const Group& shape = pool_->schema().groups[extent.group];
    const GroupState& group = sequence_.groups[extent.group];
    if (!shape.is_paged()) return true;  // the caller offers the last turn's block only
    return extent.row_end > std::max(group.first_row, shape.first_needed_row(sequence_.position()));
}

Status Stage::put(const Extent& extent, std::span<const std::byte> payload) {
    const Schema& schema = pool_->schema();
    if (extent.group >= schema.groups.size()) {
        return misplaced(extent, schema);
    }
    return schema.groups[extent.group].is_paged() ? put_rows(extent, payload)
                                                  : put_block(extent, payload);
}

Result<std::span<std::byte>> Stage::place(const Extent& extent) {
    const Schema& schema = pool_->schema();
    if (extent.group >= schema.groups.size()) return misplaced(extent, schema);
    const Group& shape = schema.groups[extent.group];
    memory::PageRef* page = nullptr;
    if (!shape.is_paged()) {
        STET_TRY(check_block(shape, extent, extent.size_bytes));
        page = &sequence_.groups[extent.group].block;
        STET_ASSIGN(*page, pool_->allocate_unfilled(extent.group));
    } else {
        const bool is_whole_page =
            extent.row_begin % kPageRows == 0 && extent.row_end - extent.row_begin == kPageRows;
        if (!is_whole_page) return std::span<std::byte>();
        STET_ASSIGN(page, claim_rows(extent, extent.size_bytes));
    }
    return page->writable_data();
}

Status Stage::put_block(const Extent& extent, std::span<const std::byte> payload) {
    STET_TRY(check_block(pool_->schema().groups[extent.group], extent, payload.size()));
    memory::PageRef& block = sequence_.groups[extent.group].block;
    STET_ASSIGN(block, pool_->allocate_unfilled(extent.group));
    std::memcpy(block.writable_data().data(), payload.data(), payload.size());
    return {};
}

Result<memory::PageRef*> Stage::claim_rows(const Extent& extent, std::uint64_t payload_bytes) {
    const Group& shape = pool_->schema().groups[extent.group];
    GroupState& group = sequence_.groups[extent.group];
    if (extent.row_begin >= extent.row_end || extent.row_begin < group.first_row ||
        extent.row_end > group.rows ||
        extent.row_begin / kPageRows != (extent.row_end - 1) / kPageRows) {
        return misfit(
            shape, extent,
            fmt::format("not rows of one page between {} and {}", group.first_row, group.rows));
    }
    const std::uint64_t rows = extent.row_end - extent.row_begin;
    if (payload_bytes != rows * shape.row_bytes()) {
        return misfit(shape, extent,
                      fmt::format("payload of {} bytes, expected {}", payload_bytes,
                                  rows * shape.row_bytes()));
    }
    const std::uint64_t index = (extent.row_begin - group.first_row) / kPageRows;
    const std::uint64_t row = extent.row_begin % kPageRows;
    const std::uint64_t mask = row_mask(row, row + rows);
    if ((present_[extent.group][index] & mask) != 0) {
        return misfit(shape, extent, "rows come twice");
    }
    memory::PageRef& page = group.pages[index];
    if (!page) {
        STET_ASSIGN(page, rows == kPageRows ? pool_->allocate_unfilled(extent.group)
                                            : pool_->allocate(extent.group));
    }
    present_[extent.group][index] |= mask;
    return &page;
}

Status Stage::put_rows(const Extent& extent, std::span<const std::byte> payload) {
    STET_ASSIGN(memory::PageRef* const claimed, claim_rows(extent, payload.size()));
    memory::PageRef& page = *claimed;
    const Group& shape = pool_->schema().groups[extent.group];
    const std::uint64_t row = extent.row_begin % kPageRows;
    const std::uint64_t rows = extent.row_end - extent.row_begin;
    const std::byte* from = payload.data();
    for (std::size_t p = 0; p < shape.planes.size(); ++p) {
        const std::uint64_t row_bytes = shape.planes[p].row_bytes;
        std::byte* to = page.writable_data().data() + shape.plane_offset(p) + row * row_bytes;
        std::memcpy(to, from, rows * row_bytes);
        from += rows * row_bytes;
    }
    return {};
}

Result<Sequence> Stage::finish() && {
    const Schema& schema = pool_->schema();
    for (std::size_t g = 0; g < schema.groups.size(); ++g) {
        const Group& shape = schema.groups[g];
        GroupState& group = sequence_.groups[g];
        if (!shape.is_paged()) {
            if (sequence_.position() > 0 && !group.block) {
                return Status(Code::corruption,
                              fmt::format("group '{}': block is missing", shape.name));
            }
            continue;
        }
        const std::uint64_t first_needed = shape.first_needed_row(sequence_.position());
        for (std::size_t i = 0; i < group.pages.size(); ++i) {
            const std::uint64_t page_first = group.first_row + i * kPageRows;
            const std::uint64_t from = std::max(first_needed, page_first) - page_first;
            const std::uint64_t to = std::min<std::uint64_t>(group.rows - page_first, kPageRows);
            const std::uint64_t wanted = from < to ? row_mask(from, to) : 0;
            const std::uint64_t missing = wanted & ~present_[g][i];
            if (missing != 0) {
                return Status(Code::corruption,
                              fmt::format("group '{}': row {} is missing", shape.name,
                                          page_first + static_cast<std::uint64_t>(
                                                           std::countr_zero(missing))));
            }
            if (!group.pages[i]) {  // only a window's last page, of which nothing is needed
                STET_ASSIGN(group.pages[i], pool_->allocate(g));
            }
            STET_CHECK(group.pages[i].claim(0, static_cast<std::uint32_t>(to)));
        }
    }
    STET_TRY(validate(schema, sequence_));
    return std::move(sequence_);
}

}  // namespace stet::state
