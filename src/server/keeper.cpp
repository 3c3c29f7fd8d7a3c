#include "server/keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/stopwatch.h"
#include "base/try.h"
#include "server/http_text.h"
#include "server/kept.h"

namespace stet::server {
namespace {

constexpr std::size_t kTasksMax = 1024;

bool begins_with(std::span<const Token> whole, std::span<const Token> begin) {
    return whole.size() >= begin.size() && std::equal(begin.begin(), begin.end(), whole.begin());
}

}  // namespace

bool is_unnamed(std::string_view name) {
    return name.starts_with(kAutoPrefix) || name.starts_with(kResponsePrefix);
}

Result<std::unique_ptr<Keeper>> Keeper::create(const Options& options, engine::Engine& engine,
                                               const Hash256& fingerprint) {
    std::unique_ptr<Keeper> keeper(new Keeper(engine, fingerprint, options));
    for (const std::string& tenant : options.tenants) STET_TRY(keeper->open(tenant));
    keeper->thread_ = std::thread([raw = keeper.get()] { raw->work(); });
    return Result<std::unique_ptr<Keeper>>(std::move(keeper));
}

Keeper::~Keeper() {
    stop();
}

void Keeper::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Status Keeper::open(const std::string& tenant) {
    constexpr std::size_t kNameDigits = 16;
    const auto directory = tenant.empty()
                               ? options_.directory
                               : options_.directory / "tenants" / tenant.substr(0, kNameDigits);
    store::StoreOptions options = options_.store;
    options.tenant = tenant;
    STET_ASSIGN(auto store, store::Store::open(Env::posix(), directory, options));
    Tenant& entry = tenants_[tenant];
    entry.store = std::move(store);
    STET_ASSIGN(const auto sessions, entry.store->list());
    for (const store::SessionInfo& session : sessions) refresh(tenant, session.name);
    return {};
}

// A session that can't be read, or belongs to another model, is not in the index.
void Keeper::refresh(const std::string& tenant_id, const std::string& session) {
    const auto tenant = tenants_.find(tenant_id);
    if (tenant == tenants_.end()) return;
    store::Store& store = *tenant->second.store;
    std::optional<Stored> stored;
    const auto info = store.find(session);
    if (info && info->fingerprint == fingerprint_ && info->schema_hash == engine_.schema().hash() &&
        info->head != store::kNoTurn) {
        auto tokens = store.tokens(session);
        const auto turns = store.turns(session);
        if (tokens && turns) {
            stored.emplace();
            stored->tokens = std::move(tokens).value();
            stored->used_ns = info->used_ns;
            for (const store::Turn& turn : *turns) {
                stored->turns.push_back({turn.id, turn.token_end});
                const auto content = engine::decode_turn_content(turn.content);
                if (content) stored->messages += content->messages.size();
            }
        }
    }
    tenant->second.may_have_garbage = true;
    const std::lock_guard lock(mutex_);
    if (stored) {
        tenant->second.index[session] = std::move(*stored);
    } else {
        tenant->second.index.erase(session);
    }
}

// Under the mutex.
void Keeper::set_lacking(Tenant& tenant, std::string_view session) {
    const auto stored = tenant.index.find(session);
    if (stored != tenant.index.end()) stored->second.is_lacking = true;
}

void Keeper::push(Task task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
}

void Keeper::work() {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds kBetweenUpkeep(1);
    auto upkeep_at = Clock::now() + kBetweenUpkeep;
    std::unique_lock lock(mutex_);
    while (true) {
        const bool is_wanted =
            wake_.wait_until(lock, upkeep_at, [this] { return is_stopping_ || !tasks_.empty(); });
        if (!is_wanted) {
            lock.unlock();
            keep_up();
            upkeep_at = Clock::now() + kBetweenUpkeep;
            lock.lock();
            continue;
        }
        if (tasks_.empty()) return;
        if (std::holds_alternative<Waiting>(tasks_.front())) {
            std::vector<Waiting> commits = take_commits();
            lock.unlock();
            commit_all(std::move(commits));
            lock.lock();
            continue;
        }
        const auto task = std::move(std::get<std::function<void()>>(tasks_.front()));
        tasks_.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

// The commits of one tenant that wait at the front; under the mutex.
std::vector<Keeper::Waiting> Keeper::take_commits() {
    constexpr std::size_t kTogetherMax = 64;
    std::vector<Waiting> commits;
    while (!tasks_.empty() && commits.size() < kTogetherMax) {
        auto* waiting = std::get_if<Waiting>(&tasks_.front());
        if (waiting == nullptr) break;
        if (!commits.empty() && commits.front().commit.tenant != waiting->commit.tenant) break;
        commits.push_back(std::move(*waiting));
        tasks_.pop_front();
    }
    return commits;
}

std::optional<StoredPrefix> Keeper::find(std::string_view tenant_id,
                                         std::span<const Token> prompt) const {
    const std::lock_guard lock(mutex_);
    const auto tenant = tenants_.find(tenant_id);
    if (tenant == tenants_.end()) return std::nullopt;
    const bool is_cuttable = can_be_cut_anywhere(engine_.schema());
    std::optional<StoredPrefix> best;
    for (const auto& [name, stored] : tenant->second.index) {
        if (stored.is_lacking) continue;
        StoredPrefix prefix;
        prefix.session = name;
        prefix.matched = common_prefix(stored.tokens, prompt);
        if (prefix.matched == 0 || (best && prefix.matched <= best->position)) continue;
        // The first turn that reaches the match can be cut back to it; else the last one before.
        for (const StoredTurn& turn : stored.turns) {
            if (turn.token_end <= prefix.matched) {
                prefix.turn = turn.id;
                prefix.position = turn.token_end;
            } else if (is_cuttable && prefix.position < prefix.matched) {
                prefix.turn = turn.id;
                prefix.position = prefix.matched;
                break;
            }
        }
        if (prefix.position > 0 && (!best || prefix.position > best->position)) best = prefix;
    }
    return best;
}

void Keeper::load(std::string tenant, StoredPrefix prefix,
                  std::function<void(Result<state::Sequence>)> done) {
    push(Task(
        [this, tenant = std::move(tenant), prefix = std::move(prefix), done = std::move(done)] {
            const auto at = tenants_.find(tenant);
            if (at == tenants_.end()) return done(Status(Code::not_found, "no store for this key"));
            const Stopwatch watch;
            auto loaded =
                at->second.store->load(prefix.session, fingerprint_, engine_.pool(), prefix.turn);
            {
                const std::lock_guard lock(mutex_);
                ++(loaded ? stats_.loads : stats_.load_failures);
                stats_.load_seconds += watch.seconds();
                if (loaded) stats_.bytes_read += loaded->bytes_read;
                // What can't be read is not offered again; its tokens are still in the store.
                if (!loaded && loaded.status().code() != Code::resource_exhausted) {
                    set_lacking(at->second, prefix.session);
                }
            }
            if (!loaded) return done(loaded.status());
            done(std::move(loaded->sequence));
        }));
}

Status Keeper::run(std::string tenant, std::function<void(Keeper&, store::Store&)> call) {
    const auto at = tenants_.find(tenant);
    if (at == tenants_.end()) return Status(Code::not_found, "no store for this key");
    {
        const std::lock_guard lock(mutex_);
        if (is_stopping_ || tasks_.size() >= kTasksMax) {
            return Status(Code::unavailable, "the store is busy; try again later");
        }
        tasks_.emplace_back([this, store = at->second.store.get(), call = std::move(call)] {
            call(*this, *store);
        });
    }
    wake_.notify_one();
    return {};
}

void Keeper::commit(NewCommit commit, std::function<void(Result<Committed>)> done) {
    push(Waiting{std::move(commit), std::move(done), {}, {}, false, 0});
}

// The longest unnamed session that the sequence goes on with; else a new one.
Result<std::string> Keeper::choose_session(Tenant& tenant, const NewCommit& commit) const {
    std::string session = commit.session;
    {
        const std::lock_guard lock(mutex_);
        std::size_t longest = 0;
        for (const auto& [name, stored] : tenant.index) {
            if (!commit.session.empty() || !name.starts_with(kAutoPrefix)) continue;
            if (stored.tokens.size() > longest &&
                begins_with(commit.sequence.tokens, stored.tokens)) {
                longest = stored.tokens.size();
                session = name;
            }
        }
    }
    constexpr std::size_t kNameBytes = 8;
    if (session.empty()) session = std::string(kAutoPrefix) + random_hex(kNameBytes);
    return session;
}

// Which session it goes into, and what of it is new there.
Status Keeper::plan(Tenant& tenant, Waiting& waiting) const {
    const NewCommit& commit = waiting.commit;
    STET_ASSIGN(waiting.committed.session, choose_session(tenant, commit));
    const std::string& session = waiting.committed.session;
    const auto found = tenant.store->find(session);
    if (!found && found.status().code() != Code::not_found) return found.status();
    waiting.is_new_session = !found;
    if (found && found->fingerprint != fingerprint_) {
        return Status(Code::incompatible,
                      fmt::format("session '{}' was made with model '{}', fingerprint {}; this "
                                  "server has another one",
                                  session, found->model_name, found->fingerprint.hex()));
    }
    std::size_t known_messages = 0;
    std::size_t known_tokens = 0;
    {
        const std::lock_guard lock(mutex_);
        if (const auto stored = tenant.index.find(session); stored != tenant.index.end()) {
            known_messages = std::min(stored->second.messages, commit.messages.size());
            known_tokens = stored->second.tokens.size();
            waiting.committed.turn = stored->second.turns.back().id;
            waiting.committed.turn_number = stored->second.turns.size();
        }
    }
    // The same request again: the store has it all.
    waiting.new_messages = 0;
    waiting.turn = {};
    if (known_tokens >= commit.sequence.tokens.size()) return {};
    engine::TurnContent content;
    content.key = commit.key;
    content.messages.assign(commit.messages.begin() + static_cast<std::ptrdiff_t>(known_messages),
                            commit.messages.end());
    for (std::size_t i = known_tokens; i < commit.sequence.tokens.size(); ++i) {
        content.text += engine_.tokenizer().piece(commit.sequence.tokens[i], true);
    }
    waiting.new_messages = content.messages.size();
    waiting.turn = {engine::encode_turn_content(content), commit.sampler};
    return {};
}

bool Keeper::prepare(Tenant& tenant, Waiting& waiting) {
    const Stopwatch watch;
    const Status planned = plan(tenant, waiting);
    if (planned && !waiting.turn.content.empty()) return true;
    finish(waiting, planned ? Result<Committed>(waiting.committed) : Result<Committed>(planned),
           watch.seconds());
    return false;
}

void Keeper::commit_all(std::vector<Waiting> commits) {
    const auto at = tenants_.find(commits.front().commit.tenant);
    if (at == tenants_.end()) {
        const Status status(Code::not_found, "no store for this key");
        for (Waiting& waiting : commits) finish(waiting, status, 0.0);
        return;
    }
    // Those that go into a session together with an earlier one wait until that is known.
    while (!commits.empty()) {
        std::vector<Waiting> batch;
        std::vector<Waiting> later;
        std::set<std::string> sessions;
        for (Waiting& waiting : commits) {
            if (!prepare(at->second, waiting)) continue;
            const bool is_first = sessions.insert(waiting.committed.session).second;
            (is_first ? batch : later).push_back(std::move(waiting));
        }
        if (!batch.empty()) commit_together(at->second, batch);
        commits = std::move(later);
    }
}

void Keeper::commit_together(Tenant& tenant, std::span<Waiting> batch) {
    const Stopwatch watch;
    const model::Model& model = engine_.model();
    std::vector<store::Commit> commits;
    for (const Waiting& waiting : batch) {
        store::Commit& commit = commits.emplace_back();
        commit.session = waiting.committed.session;
        commit.sequence = &waiting.commit.sequence;
        commit.turn = waiting.turn;
        if (!waiting.is_new_session) continue;
        commit.created = {fingerprint_, model.config.name, model.file->path().string()};
    }
    const auto turns = tenant.store->commit_turns(engine_.schema(), commits);
    const double seconds = watch.seconds();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        Waiting& waiting = batch[i];
        if (!turns[i]) {
            finish(waiting, turns[i].status(), seconds);
            continue;
        }
        waiting.committed.turn = turns[i]->id;
        waiting.committed.turn_number = turns[i]->number;
        {
            const std::lock_guard lock(mutex_);
            Stored& stored = tenant.index[waiting.committed.session];
            stored.tokens = waiting.commit.sequence.tokens;
            stored.turns.push_back({turns[i]->id, turns[i]->token_end});
            stored.messages += waiting.new_messages;
            stored.used_ns = turns[i]->created_ns;
            stored.is_lacking = false;  // the store wrote anew what it lacked
        }
        finish(waiting, waiting.committed, seconds);
        if (waiting.is_new_session) drop_oldest_auto(tenant);
    }
}

void Keeper::finish(Waiting& waiting, Result<Committed> committed, double seconds) {
    if (committed) committed->ms = seconds * 1000.0;
    {
        const std::lock_guard lock(mutex_);
        ++(committed ? stats_.commits : stats_.commit_failures);
        stats_.commit_seconds += seconds;
    }
    waiting.done(std::move(committed));
}

void Keeper::drop_oldest_auto(Tenant& tenant) {
    std::string oldest;
    {
        const std::lock_guard lock(mutex_);
        std::size_t count = 0;
        std::int64_t used_ns = 0;
        for (const auto& [name, stored] : tenant.index) {
            if (!is_unnamed(name)) continue;
            ++count;
            if (oldest.empty() || stored.used_ns < used_ns) {
                oldest = name;
                used_ns = stored.used_ns;
            }
        }
        if (count <= options_.auto_sessions_max || oldest.empty()) return;
        tenant.index.erase(oldest);
    }
    // A failure leaves a session too many, which is no harm.
    if (tenant.store->remove(oldest)) tenant.may_have_garbage = true;
}

std::uint64_t Keeper::shared_tokens(std::string_view tenant_id, std::string_view session) const {
    const std::lock_guard lock(mutex_);
    const auto tenant = tenants_.find(tenant_id);
    if (tenant == tenants_.end()) return 0;
    const auto own = tenant->second.index.find(session);
    if (own == tenant->second.index.end()) return 0;
    const std::vector<Token>& tokens = own->second.tokens;
    std::ptrdiff_t shared = 0;
    for (const auto& [name, other] : tenant->second.index) {
        if (name == session) continue;
        const auto end =
            std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
        shared = std::max(shared, end.first - tokens.begin());
    }
    return static_cast<std::uint64_t>(shared);
}

KeeperStats Keeper::stats() const {
    const std::lock_guard lock(mutex_);
    KeeperStats stats = stats_;
    stats.waiting = tasks_.size();
    for (const auto& [id, tenant] : tenants_) stats.sessions += tenant.index.size();
    return stats;
}

}  // namespace stet::server
