#include "server/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "state/checkpoint.h"

namespace stet::server {
namespace {

// Waiting for a sequence that is just being computed pays off from so many tokens on; so does
// reading one from the store.
constexpr std::uint64_t kWorthWaitingTokens = 32;

Status shutting_down() {
    return Status(Code::unavailable, "the server is shutting down; try again later");
}

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, Keeper* keeper, const LoopOptions& options)
    : engine_(engine),
      keeper_(keeper),
      options_(options),
      kept_(engine.schema(), options.kept_max),
      slots_(options.slots) {
    thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
    stop(std::chrono::milliseconds(0));
}

Status EngineLoop::submit(std::shared_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    if (is_closing_) return shutting_down();
    if (waiting_count_ >= options_.waiting_max) {
        ++counts_.shed;
        return Status(
            Code::unavailable,
            fmt::format("{} requests are waiting already; try again later", waiting_count_));
    }
    ++waiting_count_;
    arrivals_.push_back(std::move(job));
    has_news_ = true;
    wake_.notify_one();
    return {};
}

void EngineLoop::wake() {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
    wake_.notify_one();
}

void EngineLoop::call(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    has_news_ = true;
    wake_.notify_one();
}

void EngineLoop::call_when_idle(std::uint32_t slot, std::function<void()> wanted) {
    call([this, slot, wanted = std::move(wanted)] {
        if (!slots_.at(slot).is_busy) return wanted();
        call_when_idle(slot, wanted);
    });
}

void EngineLoop::stop(std::chrono::milliseconds patience) {
    {
        std::unique_lock lock(mutex_);
        is_closing_ = true;
        has_news_ = true;
        wake_.notify_all();
    }
    const auto deadline = Clock::now() + patience;
    const auto is_idle = [this] {
        const LoopStats now = stats();
        return now.running == 0 && now.waiting == 0;
    };
    while (Clock::now() < deadline && !is_idle()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    {
        const std::lock_guard lock(mutex_);
        is_cancelling_ = true;
        has_news_ = true;
        wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

LoopStats EngineLoop::stats() const {
    const std::lock_guard lock(mutex_);
    LoopStats stats = published_;
    stats.shed = counts_.shed;
    stats.waiting = waiting_count_;
    return stats;
}

void EngineLoop::publish_stats() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t shed = counts_.shed;
    counts_.running = running_.size();
    counts_.kept = kept_.size();
    if (std::exchange(has_freed_, false)) has_news_ = true;
    waiting_count_ = arrivals_.size() + waiting_.size();
    published_ = counts_;
    published_.shed = shed;
}

void EngineLoop::run() {
    while (take_arrivals()) {
        drop_cancelled();
        begin_waiting();
        step();
        pass_on();
        end_done();
        publish_stats();
    }
    for (Waiting& waiting : waiting_) fail(waiting, shutting_down());
    waiting_.clear();
    for (Running& running : running_) {
        engine_.withdraw(*running.generation);
        end(running, shutting_down());
    }
    running_.clear();
    slots_.clear();
    while (kept_.drop_oldest()) {
    }
    publish_stats();
}

// Sleeps while there is nothing to do. False when the loop has to end.
bool EngineLoop::take_arrivals() {
    std::unique_lock lock(mutex_);
    const auto is_stuck = [this] {  // all wait for the store, or for each other
        return running_.empty() && !has_news_ && !is_cancelling_;
    };
    while (is_stuck()) {
        constexpr std::chrono::milliseconds kLookAgain(500);  // for deadlines
        if (wake_.wait_for(lock, kLookAgain) == std::cv_status::timeout && !waiting_.empty()) break;
    }
    has_news_ = false;
    if (is_cancelling_) return false;
    const auto now = Clock::now();
    while (!arrivals_.empty()) {
        waiting_.push_back({std::move(arrivals_.front()), now, false, false, {}});
        arrivals_.pop_front();
    }
    // What these ask for is done in the next turn.
    const auto calls = std::exchange(calls_, {});
    lock.unlock();
    for (const auto& call : calls) call();
    return true;
}

void EngineLoop::drop_cancelled() {
    const auto now = Clock::now();
    waiting_.remove_if([&](const Waiting& waiting) {
        if (waiting.is_loading) return false;  // its answer from the store comes back to it
        if (waiting.job->is_cancelled.load(std::memory_order_relaxed)) {
            fail(waiting, Status(Code::cancelled, "the client left"));
            return true;
        }
        if (now < waiting.job->deadline) return false;
        fail(waiting, Status(Code::deadline, "the request waited too long"));
        return true;
    });
    for (Running& running : running_) {
        if (running.job->is_cancelled.load(std::memory_order_relaxed) ||
            now >= running.job->deadline) {
            running.generation->cancel();
        }
    }
}

void EngineLoop::fail(const Waiting& waiting, Status status) {
    ++(status.code() == Code::cancelled ? counts_.cancelled : counts_.failures);
    Answer answer;
    answer.status = std::move(status);
    answer.prompt_tokens = waiting.job->prompt.size();
    waiting.job->sink->done(std::move(answer));
}

// --- Beginning ---

// The tenant that has the fewest running goes first; of equals, who came first.
void EngineLoop::begin_waiting() {
    std::map<std::string_view, std::size_t> load;
    for (const Running& running : running_) ++load[running.job->tenant];
    std::vector<std::list<Waiting>::iterator> order;
    for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
        if (!at->is_loading) order.push_back(at);
    }
    while (!order.empty() && running_.size() < slots_.size()) {
        const auto next = std::min_element(order.begin(), order.end(), [&](auto a, auto b) {
            return load[a->job->tenant] < load[b->job->tenant];
        });
        const auto at = *next;
        order.erase(next);
        const std::string_view tenant = at->job->tenant;
        if (try_begin(at) == Begun::yes) {
            ++load[tenant];
            waiting_.erase(at);
        }
    }
}

EngineLoop::Begun EngineLoop::try_begin(std::list<Waiting>::iterator at) {
    const Job& job = *at->job;
    Start start = find_start(job, at->store_trouble);
    const std::uint64_t position = start.sequence.position();
    if (job.may_reuse && will_be_shared(job, position)) return Begun::no;
    if (job.may_reuse && load_from_store(at, position)) return Begun::no;
    const auto slot = free_slot(job, start);
    if (!slot) return Begun::no;
    begin(*at, std::move(start), *slot);
    return Begun::yes;
}

// Whether a sequence in the making is about to have much more of the prompt than there is now: then
// it is computed once for both.
bool EngineLoop::will_be_shared(const Job& job, std::uint64_t position) const {
    return std::any_of(running_.begin(), running_.end(), [&](const Running& running) {
        if (running.job->tenant != job.tenant) return false;
        if (!running.generation->output().empty()) return false;  // its prompt is done
        std::uint64_t common = common_prefix(running.job->prompt, job.prompt);
        // A state that can't be cut is of use where it is kept: at the prompt's end, at
        // checkpoints.
        if (!can_be_cut_anywhere(engine_.schema()) && common != running.job->prompt.size()) {
            common -= common % state::kCheckpointSpacing;
        }
        return common >= position + kWorthWaitingTokens &&
               running.generation->sequence().position() < common;
    });
}

EngineLoop::Start EngineLoop::find_start(const Job& job, const std::string& trouble) {
    Start start;
    start.sequence = state::Sequence::empty(engine_.schema());
    if (!job.may_reuse) {
        start.reuse.reason = "the request asked for none";
        return start;
    }
    const memory::Schema& schema = engine_.schema();
    const KeptSequences::Found found = kept_.find(job.tenant, job.prompt);
    Prefix best = found.prefix;
    const state::Sequence* source = found.kept ? &found.kept->sequence : nullptr;
    start.kept = found.kept;
    start.reuse.source = "kept";
    // What a slot holds is there even when there was no room to keep more.
    for (const Slot& slot : slots_) {
        if (slot.kept == nullptr || slot.kept->tenant != job.tenant) continue;
        const Prefix prefix = prefix_of(schema, slot.kept->sequence, job.prompt);
        if (prefix.position <= best.position) continue;
        best = prefix;
        source = &slot.kept->sequence;
        start.kept = slot.kept;
    }
    for (const Running& running : running_) {
        if (running.job->tenant != job.tenant) continue;
        const Prefix prefix = prefix_of(schema, running.generation->sequence(), job.prompt);
        if (prefix.position <= best.position) continue;
        best = prefix;
        source = &running.generation->sequence();
        start.kept = nullptr;
        start.reuse.source = "live";
    }
    start.reuse.matched_tokens = best.matched;
    start.reuse.reason = trouble.empty() ? reuse_reason(schema, best) : trouble;
    if (source == nullptr || best.position == 0) {
        start.reuse.source = "none";
        return start;
    }
    auto cut = state::truncate(schema, *source, best.position);
    if (!cut) {
        start.reuse.reason = cut.status().to_string();
        return start;
    }
    start.sequence = std::move(cut->sequence);
    start.reuse.reused_tokens = start.sequence.position();
    return start;
}

// Asks for a stored sequence when it has much more of the prompt than memory.
bool EngineLoop::load_from_store(std::list<Waiting>::iterator at, std::uint64_t position) {
    if (keeper_ == nullptr || at->has_tried_store) return false;
    at->has_tried_store = true;
    const auto stored = keeper_->find(at->job->tenant, at->job->prompt);
    if (!stored || stored->position < position + kWorthWaitingTokens) return false;
    at->is_loading = true;
    // The iterator stays valid: what is loading is never dropped.
    keeper_->load(at->job->tenant, *stored, [this, at](Result<state::Sequence> loaded) {
        auto shared = std::make_shared<Result<state::Sequence>>(std::move(loaded));
        call([this, at, shared] {
            at->is_loading = false;
            if (shared->is_ok()) {
                kept_.add(at->job->tenant, std::move(**shared));
            } else {
                at->store_trouble = "the store could not give it: " + shared->status().to_string();
            }
        });
    });
    return true;
}

std::optional<std::uint32_t> EngineLoop::free_slot(const Job& job, const Start& start) const {
    if (job.slot) {
        return slots_.at(*job.slot).is_busy ? std::nullopt : job.slot;
    }
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].is_busy) continue;
        if (start.kept != nullptr && slots_[i].kept == start.kept) return i;
        if (!best || slots_[i].last_use < slots_[*best].last_use) best = i;
    }
    return best;
}

void EngineLoop::begin(const Waiting& waiting, Start start, std::uint32_t slot) {
    const std::shared_ptr<Job>& job = waiting.job;
    const std::uint64_t position = start.sequence.position();
    std::vector<Token> rest(job->prompt.begin() + static_cast<std::ptrdiff_t>(position),
                            job->prompt.end());
    Running running;
    // Penalties look at the whole prompt, reused or not.
    engine::Sampler sampler(job->options.sampling);
    const std::uint64_t window = job->options.sampling.penalty_window;
    for (std::uint64_t i = position - std::min(position, window); i < position; ++i) {
        sampler.accept(job->prompt[i]);
    }
    running.generation = std::make_unique<engine::Generation>(std::move(start.sequence),
                                                              std::move(rest), job->options);
    running.generation->set_sampler(std::move(sampler));
    if (Status status = engine_.submit(*running.generation); !status) {
        return fail(waiting, std::move(status));
    }
    running.job = job;
    running.slot = slot;
    running.reuse = std::move(start.reuse);
    running.began = Clock::now();
    running.submitted = waiting.submitted;
    slots_[slot].is_busy = true;
    ++slots_[slot].jobs;
    ++counts_.requests;
    ++counts_.reuse_by_source[running.reuse.source];
    counts_.reused_tokens += running.reuse.reused_tokens;
    running_.push_back(std::move(running));
}

// --- Computing ---

void EngineLoop::step() {
    if (running_.empty()) return;
    Result<bool> stepped = engine_.step();
    while (!stepped && stepped.status().code() == Code::resource_exhausted && make_room()) {
        stepped = engine_.step();
    }
    ++counts_.steps;
    counts_.busy_slot_steps += running_.size();
    if (stepped) return;
    if (running_.empty()) return;
    // No room for all: who came last gives way. Any other failure is everybody's.
    const bool is_room = stepped.status().code() == Code::resource_exhausted;
    const auto give_up = [&](std::list<Running>::iterator at) {
        engine_.withdraw(*at->generation);
        end(*at, is_room ? Status(Code::unavailable,
                                  "no memory for another conversation now; "
                                  "try again later")
                         : stepped.status());
        running_.erase(at);
    };
    if (is_room) return give_up(std::prev(running_.end()));
    while (!running_.empty()) give_up(running_.begin());
}

// Finished sequences make room for those that run.
bool EngineLoop::make_room() {
    if (kept_.drop_oldest()) {
        ++counts_.evictions;
        return true;
    }
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
        if (slot.kept && (oldest == nullptr || slot.last_use < oldest->last_use)) oldest = &slot;
    }
    if (oldest == nullptr) return false;
    oldest->kept.reset();
    ++counts_.evictions;
    return true;
}

}  // namespace stet::server
