#include "engine/batch.h"

#include "base/try.h"

namespace stet::engine {
namespace {

// What the step sees of one group of a sequence.
exec::Segment segment_of(state::Append& append, std::size_t group, exec::Segment segment) {
    if (append.is_paged(group)) {
        segment.pages = append.block_table(group).data();
        segment.first_row = append.next().groups[group].first_row;
    } else {
        const auto base = append.base_block(group);
        segment.base_block = base.empty() ? nullptr : base.data();
        segment.new_block = append.new_block(group).data();
    }
    return segment;
}

}  // namespace

Status Batch::add(const Part& part) {
    STET_ASSIGN(auto append, state::Append::begin(*pool_, *part.sequence, part.tokens));
    // A model without memory sees only what is in the step: its whole history goes along.
    const bool has_memory = !pool_->schema().groups.empty();
    const std::vector<state::Token>& history = append.next().tokens;
    const std::uint64_t first = has_memory ? append.base_position() : 0;
    const RowRange wanted = part.wanted();
    for (std::uint64_t position = first; position < history.size(); ++position) {
        if (position >= append.base_position() + wanted.begin &&
            position < append.base_position() + wanted.end) {
            output_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
        }
        tokens_.push_back(history[position]);
        positions_.push_back(static_cast<std::int32_t>(position));
    }
    counts_.push_back(static_cast<std::uint32_t>(history.size() - first));
    encodes_ = part.encodes;
    hidden_ = part.hidden;
    sequences_.push_back(part.sequence);
    appends_.push_back(std::move(append));
    return {};
}

const exec::Step& Batch::step() {
    step_ = {};
    step_.tokens = tokens_;
    step_.positions = positions_;
    step_.output_rows = output_rows_;
    step_.encodes = encodes_;
    step_.hidden = hidden_;
    step_.segments.resize(pool_->schema().groups.size());
    std::uint32_t token_begin = 0;
    for (std::size_t i = 0; i < appends_.size(); ++i) {
        exec::Segment sequence;
        sequence.position = appends_[i].next().position() - counts_[i];
        sequence.token_begin = token_begin;
        sequence.token_count = counts_[i];
        step_.sequences.push_back(sequence);
        step_.histories.emplace_back(appends_[i].next().tokens);
        for (std::size_t g = 0; g < step_.segments.size(); ++g) {
            step_.segments[g].push_back(segment_of(appends_[i], g, sequence));
        }
        token_begin += counts_[i];
    }
    return step_;
}

void Batch::commit() {
    for (std::size_t i = 0; i < appends_.size(); ++i) {
        *sequences_[i] = std::move(appends_[i]).commit();
    }
    appends_.clear();
}

}  // namespace stet::engine
