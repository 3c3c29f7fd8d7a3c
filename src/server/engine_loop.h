// The one thread that computes. It takes jobs from a bounded queue, begins each with the longest
// state that its tenant has for the prompt, steps all of them together, and passes on what came
// out. Files are never touched here: the keeper's thread does that.
//
// The order of a turn of the loop: take what arrived, drop what was cancelled, begin what can
// begin, step, pass on, end what is done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "server/job.h"
#include "server/keeper.h"
#include "server/kept.h"

namespace stet::server {

enum class Durability : std::uint8_t { turn, idle, none };

struct LoopOptions {
    std::uint32_t slots = 4;
    std::size_t waiting_max = 256;
    std::size_t kept_max = 256;
    Durability durability = Durability::turn;
};

struct LoopStats {
    std::uint64_t prompt_tokens = 0, reused_tokens = 0, predicted_tokens = 0, steps = 0;
    std::uint64_t requests = 0, failures = 0, cancelled = 0, shed = 0, evictions = 0;
    std::uint64_t busy_slot_steps = 0, tokens_max = 0;
    double prompt_seconds = 0.0, predict_seconds = 0.0;
    std::map<std::string, std::uint64_t> reuse_by_source;
    std::size_t running = 0, waiting = 0, kept = 0;
};

struct SlotInfo {
    std::uint32_t id = 0;
    bool is_busy = false;
    std::uint64_t prompt_tokens = 0, reused_tokens = 0, decoded_tokens = 0, state_tokens = 0;
    std::uint64_t jobs = 0;  // that it ever ran
};

class EngineLoop {
  public:
    // `keeper` may be null: nothing is durable. It outlives the loop, but must have stopped before
    // the loop is destroyed: what it does may call back.
    EngineLoop(engine::Engine& engine, Keeper* keeper, const LoopOptions& options);
    ~EngineLoop();  // stop()

    // Any thread. unavailable: too many are waiting, or the server stops.
    Status submit(std::shared_ptr<Job> job);
    // A job whose flag is_cancelled was set is looked at soon.
    void wake();
    // Runs on the loop's thread, between steps. Dropped when the loop has stopped.
    void call(std::function<void()> call);
    // The same as soon as the slot answers no request.
    void call_when_idle(std::uint32_t slot, std::function<void()> call);
    // Lets what runs come to its end for `patience`, then cancels the rest.
    void stop(std::chrono::milliseconds patience);

    LoopStats stats() const;
    std::uint32_t slot_count() const { return options_.slots; }

    // On the loop's thread only, in call().
    std::vector<SlotInfo> slots(std::string_view tenant) const;
    // The sequence that the slot holds for this tenant; empty when none. conflict while it runs.
    Result<state::Sequence> slot_sequence(std::uint32_t slot, std::string_view tenant) const;
    Status set_slot_sequence(std::uint32_t slot, std::string_view tenant, state::Sequence sequence);

  private:
    using Clock = std::chrono::steady_clock;
    struct Running {
        std::shared_ptr<Job> job;
        std::unique_ptr<engine::Generation> generation;
        std::uint32_t slot = 0;
        ReuseReport reuse;
        std::size_t text_sent = 0;
        std::size_t tokens_sent = 0;
        bool has_kept_prompt = false;
        Clock::time_point began;
        Clock::time_point submitted;
    };
    struct Waiting {
        std::shared_ptr<Job> job;
        Clock::time_point submitted;
        bool has_tried_store = false;
        bool is_loading = false;
        std::string store_trouble;
    };
    struct Slot {
        bool is_busy = false;
        std::uint64_t jobs = 0;
        std::uint64_t last_use = 0;
        std::shared_ptr<const KeptSequence> kept;
    };
    // What a job can begin with.
    struct Start {
        state::Sequence sequence;
        ReuseReport reuse;
        std::shared_ptr<const KeptSequence> kept;
    };

    void run();
    bool take_arrivals();
    void drop_cancelled();
    void begin_waiting();
    enum class Begun : std::uint8_t { yes, no };
    Begun try_begin(std::list<Waiting>::iterator at);
    bool will_be_shared(const Job& job, std::uint64_t position) const;
    Start find_start(const Job& job, const std::string& trouble);
    bool load_from_store(std::list<Waiting>::iterator at, std::uint64_t position);
    std::optional<std::uint32_t> free_slot(const Job& job, const Start& start) const;
    void begin(const Waiting& waiting, Start start, std::uint32_t slot);
    void step();
    bool make_room();
    void pass_on();
    void keep_prompt(Running& running);
    void end_done();
    void end(Running& running, Status status);
    void commit_and_answer(const Running& running, std::shared_ptr<Job> job, Answer answer);
    Progress unsent(Running& running) const;
    void fail(const Waiting& waiting, Status status);
    void publish_stats();

    engine::Engine& engine_;
    Keeper* keeper_;
    LoopOptions options_;

    // The loop's own.
    KeptSequences kept_;
    std::list<Waiting> waiting_;
    std::list<Running> running_;
    std::vector<Slot> slots_;
    LoopStats counts_;
    std::uint64_t ticks_ = 0;
    bool has_freed_ = false;  // a slot, since the last look at who waits

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> arrivals_;
    std::deque<std::function<void()>> calls_;
    std::size_t waiting_count_ = 0;  // arrivals and waiting together
    bool has_news_ = false;
    bool is_closing_ = false;
    bool is_cancelling_ = false;
    LoopStats published_;
    std::thread thread_;
};

}  // namespace stet::server
