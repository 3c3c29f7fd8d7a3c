// EngineLoop: what comes out of steps, the ends of jobs, and slots.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/engine_loop.h"
#include "state/checkpoint.h"

namespace stet::server {
namespace {

double ms_between(std::chrono::steady_clock::time_point from,
                  std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

// --- Passing on ---

Progress EngineLoop::unsent(Running& running) const {
    const engine::Generation& generation = *running.generation;
    Progress progress;
    progress.text = generation.text().substr(running.text_sent);
    const auto begin = static_cast<std::ptrdiff_t>(running.tokens_sent);
    progress.tokens.assign(generation.output().begin() + begin, generation.output().end());
    if (!generation.logprobs().empty()) {
        progress.logprobs.assign(generation.logprobs().begin() + begin,
                                 generation.logprobs().end());
    }
    running.text_sent = generation.text().size();
    running.tokens_sent = generation.output().size();
    return progress;
}

void EngineLoop::pass_on() {
    for (Running& running : running_) {
        const engine::Generation& generation = *running.generation;
        if (!running.has_kept_prompt && !generation.output().empty()) keep_prompt(running);
        if (generation.is_done() || !running.job->sink->can_take()) continue;
        const bool has_text = generation.text().size() > running.text_sent;
        if (!has_text && generation.output().size() == running.tokens_sent) continue;
        running.job->sink->progress(unsent(running));
    }
}

// Where a state can't be cut, the end of the prompt is a place that the next prompt will pass.
void EngineLoop::keep_prompt(Running& running) {
    running.has_kept_prompt = true;
    if (!can_be_cut_anywhere(engine_.schema()))
        kept_.add(running.job->tenant, running.generation->sequence());
}

void EngineLoop::end_done() {
    for (auto at = running_.begin(); at != running_.end();) {
        if (!at->generation->is_done()) {
            ++at;
            continue;
        }
        Status status = at->generation->failure();
        if (at->generation->stop() == engine::StopReason::cancelled) {
            status = at->job->is_cancelled.load(std::memory_order_relaxed)
                         ? Status(Code::cancelled, "the client left")
                         : Status(Code::deadline, "the answer took longer than --timeout");
        }
        end(*at, std::move(status));
        at = running_.erase(at);
    }
}

void EngineLoop::end(Running& running, Status status) {
    const engine::Generation& generation = *running.generation;
    Slot& slot = slots_[running.slot];
    slot.is_busy = false;
    slot.last_use = ++ticks_;
    has_freed_ = true;
    state::Sequence sequence = generation.sequence();
    state::checkpoint(engine_.schema(), sequence);  // the next turn may want to come back here
    if (sequence.position() > 0) {
        slot.kept = kept_.add(running.job->tenant, std::move(sequence));
    }
    counts_.prompt_tokens += running.job->prompt.size() - running.reuse.reused_tokens;
    counts_.predicted_tokens += generation.output().size();
    counts_.prompt_seconds += generation.timings().prompt / 1000.0;
    counts_.predict_seconds += generation.timings().decode / 1000.0;
    counts_.tokens_max = std::max(counts_.tokens_max, generation.sequence().position());
    if (!status) ++(status.code() == Code::cancelled ? counts_.cancelled : counts_.failures);

    Answer answer;
    answer.status = std::move(status);
    answer.rest = unsent(running);
    answer.text = generation.text();
    answer.tokens = generation.output();
    answer.logprobs = generation.logprobs();
    answer.stop = generation.stop();
    answer.stop_text = generation.stop_text();
    answer.timings = generation.timings();
    answer.prompt_tokens = running.job->prompt.size();
    answer.reuse = running.reuse;
    answer.slot = running.slot;
    answer.seed = generation.sampler().seed();
    answer.queue_ms = ms_between(running.submitted, running.began);
    commit_and_answer(running, running.job, std::move(answer));
}

void EngineLoop::commit_and_answer(const Running& running, std::shared_ptr<Job> job,
                                   Answer answer) {
    const bool commits = keeper_ != nullptr && answer.status.is_ok() && job->may_commit &&
                         options_.durability != Durability::none &&
                         running.generation->sequence().position() > 0;
    if (!commits) return job->sink->done(std::move(answer));
    NewCommit commit;
    commit.tenant = job->tenant;
    commit.session = job->session;
    commit.sequence = running.generation->sequence();
    commit.messages = job->messages;
    commit.key = job->key;
    if (!commit.messages.empty()) commit.messages.push_back({"assistant", answer.text});
    commit.sampler = running.generation->sampler().encode();
    // Somebody who named the session is told only when it is safe.
    if (options_.durability == Durability::idle && job->session.empty()) {
        keeper_->commit(std::move(commit), [](const Result<Committed>&) {});
        return job->sink->done(std::move(answer));
    }
    auto held = std::make_shared<Answer>(std::move(answer));
    keeper_->commit(std::move(commit), [job, held](const Result<Committed>& committed) {
        if (committed) {
            held->session = committed->session;
            held->turn_id = committed->turn;
            held->turn_number = committed->turn_number;
            held->is_durable = true;
            held->commit_ms = committed->ms;
        } else if (!job->session.empty()) {
            held->status = committed.status();
        }
        job->sink->done(std::move(*held));
    });
}

// --- Slots ---

std::vector<SlotInfo> EngineLoop::slots(std::string_view tenant) const {
    std::vector<SlotInfo> list;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        SlotInfo info;
        info.id = i;
        info.is_busy = slots_[i].is_busy;
        info.jobs = slots_[i].jobs;
        if (slots_[i].kept && slots_[i].kept->tenant == tenant) {
            info.state_tokens = slots_[i].kept->sequence.position();
        }
        for (const Running& running : running_) {
            if (running.slot != i || running.job->tenant != tenant) continue;
            info.prompt_tokens = running.job->prompt.size();
            info.reused_tokens = running.reuse.reused_tokens;
            info.decoded_tokens = running.generation->output().size();
            info.state_tokens = running.generation->sequence().position();
        }
        list.push_back(info);
    }
    return list;
}

Result<state::Sequence> EngineLoop::slot_sequence(std::uint32_t slot,
                                                  std::string_view tenant) const {
    if (slots_.at(slot).is_busy) {
        return Status(Code::conflict, fmt::format("slot {} is answering a request", slot));
    }
    const auto& kept = slots_[slot].kept;
    if (kept == nullptr || kept->tenant != tenant) return state::Sequence::empty(engine_.schema());
    return kept->sequence;
}

Status EngineLoop::set_slot_sequence(std::uint32_t slot, std::string_view tenant,
                                     state::Sequence sequence) {
    if (slots_.at(slot).is_busy) {
        return Status(Code::conflict, fmt::format("slot {} is answering a request", slot));
    }
    Slot& target = slots_[slot];
    if (target.kept != nullptr) kept_.drop(target.kept);
    target.kept = nullptr;
    target.last_use = ++ticks_;
    if (sequence.position() > 0) target.kept = kept_.add(tenant, std::move(sequence));
    return {};
}

}  // namespace stet::server
