#include "selftest/witness.h"

#include <fmt/format.h>

#include "base/try.h"

namespace stet::selftest {
namespace {

// What each sequence would say after one more token, which it isn't given.
Result<std::vector<LogitRow>> next_logits(Subject& subject, const Context& context) {
    std::vector<LogitRow> rows;
    for (SequenceId id = 0; id < context.limits().sequences_max; ++id) {
        STET_ASSIGN(const state::Sequence* live, context.find(id));
        state::Sequence aside = *live;
        if (aside.position() >= subject.length_max())
            aside = state::Sequence::empty(subject.schema());
        STET_ASSIGN(rows.emplace_back(), subject.feed(aside, subject.tokens(id, 7, 8)));
    }
    return rows;
}

}  // namespace

Result<Witness> Witness::take(Subject& subject, const Context& context) {
    Witness witness;
    STET_ASSIGN(witness.logits_, next_logits(subject, context));
    STET_ASSIGN(witness.bytes_, save_all(context));
    witness.pages_ = subject.pool().stats().pages_in_use;
    return witness;
}

Status Witness::expect_unchanged(const Context& context, std::string_view after) const {
    STET_ASSIGN(const Bytes bytes, save_all(context));
    STET_TRY(expect_equal(bytes_, bytes, fmt::format("the context after {}", after)));
    const std::uint64_t pages = context.pool().stats().pages_in_use;
    if (pages == pages_) return {};
    return failure(fmt::format("{} pages in use after {}, {} before", pages, after, pages_));
}

Status Witness::expect_same_logits(Subject& subject, const Context& context) const {
    STET_ASSIGN(const auto rows, next_logits(subject, context));
    for (std::size_t id = 0; id < rows.size(); ++id) {
        STET_TRY(
            expect_equal(logits_[id], rows[id], fmt::format("next logits of sequence {}", id)));
    }
    return {};
}

Status fill(Subject& subject, Context& context) {
    STET_TRY(subject.feed(context, 0, subject.tokens(10, 0, 19)).status());
    STET_TRY(context.checkpoint(0));
    STET_TRY(subject.feed(context, 0, subject.tokens(10, 19, 27)).status());
    STET_TRY(subject.feed(context, 1, subject.tokens(11, 0, 19)).status());
    STET_TRY(context.fork(0, 2));
    return subject.feed(context, 2, subject.tokens(12, 0, 3)).status();
}

std::vector<Part> parts_of(const state::Saved& saved, std::size_t size_bytes) {
    std::vector<Part> parts;
    const state::PageTable table = state::PageTable::of(saved);
    std::size_t at = 0;
    for (const auto& use : table.uses()) {
        const std::size_t group = use.page.group();
        const auto& planes = saved.schema().groups[group].planes;
        for (std::size_t plane = 0; plane < planes.size(); ++plane) {
            const std::size_t size = planes[plane].row_bytes * use.rows;
            parts.push_back({group, plane, at, size});
            at += size;
        }
    }
    for (Part& part : parts) part.begin += size_bytes - at;  // payloads come last
    return parts;
}

}  // namespace stet::selftest
