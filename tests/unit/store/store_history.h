// A store beside a plain model of it in memory. Operations go to both; the model follows only what
// the store acknowledged.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "store/session_file.h"
#include "unit/store/store_world.h"

namespace stet::store_test {

struct Operation {
    enum class Kind {
        create,
        commit,
        commit_large,
        fork,
        rollback,
        rename,
        remove,
        reopen,
        collect,
        pin,
        verify,
        both,  // two sessions and a new one commit together
        carry  // exported and imported under another name
    };
    Kind kind = Kind::commit;
    std::uint64_t a = 0;  // which session, turn, size: taken modulo what there is
    std::uint64_t b = 0;
    std::uint64_t c = 0;
};

class History {
  public:
    explicit History(World& world) : world_(world) {}

    // With a limit, states of sessions that aren't pinned may be evicted; never their turns.
    // What the store answered. An operation on a session when there is none creates one.
    Status apply(const Operation& operation) {
        using Kind = Operation::Kind;
        if (operation.kind == Kind::reopen) return world_.open();
        if (operation.kind == Kind::collect) return world_.store->collect_garbage().status();
        if (operation.kind == Kind::verify) return verify();
        if (operation.kind == Kind::create || sessions_.empty()) return create(operation);
        auto& [name, turns] = *std::next(
            sessions_.begin(), static_cast<std::ptrdiff_t>(operation.a % sessions_.size()));
        switch (operation.kind) {
            case Kind::commit:
            case Kind::commit_large:
                return commit(name, turns, operation);
            case Kind::fork:
                return fork(name, turns, operation);
            case Kind::rollback:
                return rollback(name, turns, operation);
            case Kind::rename:
                return rename(name, operation);
            case Kind::pin:
                return pin(name, operation);
            case Kind::both:
                return commit_both(operation);
            case Kind::carry:
                return carry(name, turns, operation);
            default:
                break;
        }
        const std::string gone = name;
        const Status removed = world_.store->remove(gone);
        if (removed) forget(gone);
        return removed;
    }

    // Takes over what an operation did that was not acknowledged; `store` holds it whole.
    Status adopt(const Operation& operation) {
        if (sessions_.empty()) return Status(Code::not_found, "nothing to adopt");
        auto& [name, turns] = *std::next(
            sessions_.begin(), static_cast<std::ptrdiff_t>(operation.a % sessions_.size()));
        switch (operation.kind) {
            case Operation::Kind::commit: {
                STET_ASSIGN(const auto found, world_.store->turns(name));
                if (found.size() != turns.size() + 1) break;
                Sequence value =
                    turns.empty() ? Sequence::empty(world_.schema) : turns.back().value;
                value = extend(world_.pool, value, tokens_of(operation));
                turns.push_back({found.back().id, found.back().content, std::move(value)});
                return {};
            }
            case Operation::Kind::fork: {
                const std::size_t count = kept(turns, operation.c);
                const Steps steps(turns.begin(),
                                  turns.begin() + static_cast<std::ptrdiff_t>(count));
                sessions_[new_name(operation.b)] = steps;
                return {};
            }
            case Operation::Kind::rollback:
                turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(kept(turns, operation.c)),
                            turns.end());
                return {};
            case Operation::Kind::remove:
                forget(std::string(name));
                return {};
            case Operation::Kind::pin:
                flip(name);
                return {};
            case Operation::Kind::both:
                return adopt_both(operation);
            case Operation::Kind::carry: {
                const std::string to = new_name(operation.b);
                STET_ASSIGN(const auto found, world_.store->turns(to));
                if (found.size() != turns.size()) break;
                add_copy(to, turns, found);
                return {};
            }
            default:
                break;
        }
        return Status(Code::not_found, "nothing to adopt");
    }

    // Empty if the store has exactly the model's sessions, bit by bit, at every turn.
    std::string difference() {
        const auto list = world_.store->list();
        if (!list) return list.status().to_string();
        if (list->size() != sessions_.size()) {
            return fmt::format("{} sessions, expected {}", list->size(), sessions_.size());
        }
        for (const auto& [name, turns] : sessions_) {
            const auto found = world_.store->turns(name);
            if (!found) return found.status().to_string();
            if (world_.store->find(name)->is_pinned != pinned_.contains(name)) {
                return fmt::format("session '{}': another pin", name);
            }
            if (found->size() != turns.size()) {
                return fmt::format("session '{}' has {} turns, expected {}", name, found->size(),
                                   turns.size());
            }
            if (turns.empty()) {
                const std::string wrong = world_.wrong_session(name, {});
                if (!wrong.empty()) return fmt::format("session '{}': {}", name, wrong);
            }
            for (std::size_t i = 0; i < turns.size(); ++i) {
                if ((*found)[i].id != turns[i].id || (*found)[i].content != turns[i].content) {
                    return fmt::format("session '{}', turn {} is another one", name, i + 1);
                }
                const std::string wrong = wrong_turn(name, turns[i]);
                if (!wrong.empty()) {
                    return fmt::format("session '{}', turn {}: {}", name, i + 1, wrong);
                }
            }
        }
        return {};
    }

    // Sessions whose latest state is gone.
    std::size_t evicted_count() const {
        std::size_t count = 0;
        for (const auto& [name, turns] : sessions_) {
            const auto loaded = world_.store->load(name, world_.fingerprint, world_.pool);
            if (loaded.status().code() == Code::unavailable) ++count;
        }
        return count;
    }
    std::size_t session_count() const { return sessions_.size(); }

  private:
    struct Step {
        store::TurnId id;
        std::string content;
        Sequence value;
    };
    using Steps = std::vector<Step>;

    static std::uint64_t seed_of(const Operation& operation) {
        // Few seeds, so that sessions meet on equal prefixes.
        return operation.kind == Operation::Kind::commit ? operation.c % 3 : operation.c;
    }
    static std::size_t size_of(const Operation& operation) {
        constexpr std::array<std::size_t, 7> kSizes = {1, 5, 59, 64, 65, 128, 200};
        return operation.kind == Operation::Kind::commit ? kSizes[operation.b % kSizes.size()]
                                                         : 1500;
    }
    static std::vector<Token> tokens_of(const Operation& operation) {
        return make_tokens(size_of(operation), seed_of(operation));
    }

    std::string wrong_turn(const std::string& name, const Step& step) {
        const auto loaded = world_.store->load(name, world_.fingerprint, world_.pool, step.id);
        const bool may_be_gone = world_.options.disk_limit_bytes != 0 && !whole_.contains(name);
        if (loaded.status().code() == Code::unavailable && may_be_gone) {
            const auto tokens = world_.store->tokens(name);
            if (!tokens) return tokens.status().to_string();
            const auto& wanted = step.value.tokens;
            const bool begins = tokens->size() >= wanted.size() &&
                                std::equal(wanted.begin(), wanted.end(), tokens->begin());
            return begins ? "" : "the tokens of an evicted session differ";
        }
        return world_.wrong_session(name, step.value.tokens, step.id);
    }

    Status verify() {
        for (std::int64_t next = 0;;) {
            STET_ASSIGN(const store::Verified verified, world_.store->verify(next, 20000));
            if (!verified.damages.empty()) {
                return Status(Code::corruption, verified.damages.front());
            }
            next = verified.next;
            if (next == 0) return world_.store->usage().status();
        }
    }
    void flip(const std::string& name) {
        whole_.erase(name);
        if (!pinned_.insert(name).second) {
            pinned_.erase(name);
            return;
        }
        // What was evicted before it was pinned stays gone.
        for (const Step& step : sessions_[name]) {
            if (!world_.wrong_session(name, step.value.tokens, step.id).empty()) return;
        }
        whole_.insert(name);
    }
    void forget(const std::string& name) {
        sessions_.erase(name);
        pinned_.erase(name);
        whole_.erase(name);
    }
    Status pin(const std::string& name, const Operation&) {
        const Status done = world_.store->pin(name, !pinned_.contains(name));
        if (done) flip(name);
        return done;
    }

    std::string new_name(std::uint64_t seed) {
        std::string name = fmt::format("s{}", seed % 9);
        while (sessions_.contains(name)) name += "x";
        return name;
    }

    Status create(const Operation& operation) {
        const std::string name = new_name(operation.b);
        const Status created = world_.create(name);
        if (created) sessions_[name];
        return created;
    }

    Status commit(const std::string& name, Steps& turns, const Operation& operation) {
        Sequence value = turns.empty() ? Sequence::empty(world_.schema) : turns.back().value;
        const auto turn = world_.commit(name, value, size_of(operation), seed_of(operation));
        if (turn) turns.push_back({turn->id, turn->content, std::move(value)});
        return turn.status();
    }

    // Who takes part in commit_both(), and with what.
    std::vector<std::pair<std::string, Sequence>> members(const Operation& operation) {
        std::vector<std::pair<std::string, Sequence>> members;
        for (std::uint64_t i = 0; i < std::min<std::size_t>(2, sessions_.size()); ++i) {
            const auto& [name, turns] =
                *std::next(sessions_.begin(),
                           static_cast<std::ptrdiff_t>((operation.a + i) % sessions_.size()));
            const Sequence base =
                turns.empty() ? Sequence::empty(world_.schema) : turns.back().value;
            members.emplace_back(name, extend(world_.pool, base, tokens_of(operation)));
        }
        members.emplace_back(
            new_name(operation.b),
            extend(world_.pool, Sequence::empty(world_.schema), tokens_of(operation)));
        return members;
    }
    Status commit_both(const Operation& operation) {
        const auto wanted = members(operation);
        std::vector<store::Commit> commits;
        for (const auto& [name, value] : wanted) {
            commits.push_back({name, &value, World::new_turn(seed_of(operation)), std::nullopt});
        }
        commits.back().created = {world_.fingerprint, "tiny", "/models/tiny.gguf"};
        const auto answers = world_.store->commit_turns(world_.schema, commits);
        Status failure;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            if (!answers[i]) {
                failure = answers[i].status();
                continue;
            }
            sessions_[wanted[i].first].push_back(
                {answers[i]->id, answers[i]->content, wanted[i].second});
        }
        return failure;
    }
    Status adopt_both(const Operation& operation) {
        for (const auto& [name, value] : members(operation)) {
            STET_ASSIGN(const auto found, world_.store->turns(name));
            sessions_[name].push_back({found.back().id, found.back().content, value});
        }
        return {};
    }

    void add_copy(const std::string& to, const Steps& turns,
                  const std::vector<store::Turn>& found) {
        Steps copy = turns;
        for (std::size_t i = 0; i < copy.size(); ++i) copy[i].id = found[i].id;
        sessions_[to] = std::move(copy);
    }
    Status carry(const std::string& name, const Steps& turns, const Operation& operation) {
        auto file = store::collect_session(*world_.store, name);
        if (file.status().code() == Code::unavailable) return {};  // no turn, or evicted
        STET_TRY(file.status());
        std::vector<std::byte> bytes;
        state::CallbackSink sink([&](std::span<const std::byte> data) {
            bytes.insert(bytes.end(), data.begin(), data.end());
            return Status();
        });
        STET_TRY(store::write_session(*file, operation.c % 2 == 0, sink));
        state::SpanSource source(bytes);
        STET_ASSIGN(const auto read, store::read_session(source, 1U << 30));
        const std::string to = new_name(operation.b);
        STET_TRY(store::import_session(*world_.store, read, to).status());
        STET_ASSIGN(const auto found, world_.store->turns(to));
        add_copy(to, turns, found);
        return {};
    }

    // 0 of n turns kept, ..., n of n.
    static std::size_t kept(const Steps& turns, std::uint64_t seed) {
        return seed % (turns.size() + 1);
    }
    static store::TurnId id_of(const Steps& turns, std::size_t count) {
        return count == 0 ? store::kNoTurn : turns[count - 1].id;
    }

    Status fork(const std::string& name, const Steps& turns, const Operation& operation) {
        const std::string to = new_name(operation.b);
        const std::size_t count = kept(turns, operation.c);
        const auto forked = world_.store->fork(name, to, id_of(turns, count));
        if (!forked) return forked.status();
        sessions_[to] = Steps(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(count));
        return {};
    }

    Status rollback(const std::string& name, Steps& turns, const Operation& operation) {
        const std::size_t count = kept(turns, operation.c);
        const Status done = world_.store->rollback(name, id_of(turns, count));
        if (done) turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(count), turns.end());
        return done;
    }

    Status rename(const std::string& name, const Operation& operation) {
        const std::string from = name;
        const std::string to = new_name(operation.b);
        const Status done = world_.store->rename(from, to);
        if (!done) return done;
        auto node = sessions_.extract(from);
        node.key() = to;
        sessions_.insert(std::move(node));
        if (pinned_.erase(from) != 0) pinned_.insert(to);
        if (whole_.erase(from) != 0) whole_.insert(to);
        return {};
    }

    World& world_;
    std::set<std::string> pinned_;
    std::set<std::string> whole_;  // pinned, and every turn had its state then
    std::map<std::string, Steps> sessions_;
};

}  // namespace stet::store_test
