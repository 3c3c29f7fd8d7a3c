#include "server/kept.h"

#include <fmt/format.h>

#include <algorithm>

#include "state/checkpoint.h"

namespace stet::server {
namespace {

bool begins_with(const std::vector<Token>& whole, const std::vector<Token>& begin) {
    return whole.size() >= begin.size() && std::equal(begin.begin(), begin.end(), whole.begin());
}

}  // namespace

bool can_be_cut_anywhere(const memory::Schema& schema) {
    return std::all_of(schema.groups.begin(), schema.groups.end(), [](const memory::Group& group) {
        return group.lifetime == memory::Lifetime::tokens;
    });
}

std::uint64_t common_prefix(std::span<const Token> tokens, std::span<const Token> prompt) {
    if (prompt.empty()) return 0;
    const std::size_t count = std::min(tokens.size(), prompt.size() - 1);
    const auto first = tokens.begin();
    return static_cast<std::uint64_t>(
        std::mismatch(first, first + static_cast<std::ptrdiff_t>(count), prompt.begin()).first -
        first);
}

Prefix prefix_of(const memory::Schema& schema, const state::Sequence& sequence,
                 std::span<const Token> prompt) {
    Prefix prefix;
    prefix.matched = common_prefix(sequence.tokens, prompt);
    prefix.position = state::reachable_position(schema, sequence, prefix.matched);
    return prefix;
}

std::string reuse_reason(const memory::Schema& schema, const Prefix& prefix) {
    if (prefix.position == prefix.matched) return {};
    for (const memory::Group& group : schema.groups) {
        if (group.lifetime == memory::Lifetime::tokens) continue;
        return fmt::format(
            "{} tokens match, but the {} state '{}' is kept only at other positions; "
            "the nearest is {}",
            prefix.matched, memory::lifetime_name(group.lifetime), group.name, prefix.position);
    }
    return {};
}

KeptSequences::Found KeptSequences::find(std::string_view tenant, std::span<const Token> prompt) {
    Found best;
    auto best_at = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
        if ((*at)->tenant != tenant) continue;
        const Prefix prefix = prefix_of(schema_, (*at)->sequence, prompt);
        if (prefix.position > best.prefix.position ||
            (prefix.position == best.prefix.position && prefix.matched > best.prefix.matched)) {
            best = {prefix, *at};
            best_at = at;
        }
    }
    if (best_at != entries_.end()) entries_.splice(entries_.begin(), entries_, best_at);
    return best;
}

std::shared_ptr<const KeptSequence> KeptSequences::add(std::string_view tenant,
                                                       state::Sequence sequence) {
    const bool is_cuttable = can_be_cut_anywhere(schema_);
    entries_.remove_if([&](const auto& entry) {
        return entry->tenant == tenant && begins_with(sequence.tokens, entry->sequence.tokens) &&
               (is_cuttable || entry->sequence.position() == sequence.position());
    });
    auto kept = std::make_shared<const KeptSequence>(
        KeptSequence{std::string(tenant), std::move(sequence)});
    if (count_max_ == 0) return kept;
    entries_.push_front(kept);
    while (entries_.size() > count_max_) entries_.pop_back();
    return kept;
}

bool KeptSequences::drop_oldest() {
    if (entries_.empty()) return false;
    entries_.pop_back();
    return true;
}

void KeptSequences::drop(const std::shared_ptr<const KeptSequence>& kept) {
    entries_.remove(kept);
}

}  // namespace stet::server
