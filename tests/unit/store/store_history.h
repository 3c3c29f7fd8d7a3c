// A store beside a plain model of it in memory. Operations go to both; the model follows only what
// the store acknowledged.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/store/store_world.h"

namespace stet::store_test {

struct Operation {
    enum class Kind { create, commit, fork, rollback, rename, remove, reopen, collect };
    Kind kind = Kind::commit;
    std::uint64_t a = 0;  // which session, turn, size: taken modulo what there is
    std::uint64_t b = 0;
    std::uint64_t c = 0;
};
inline constexpr std::uint64_t kOperationKinds = 8;

class History {
  public:
    explicit History(World& world) : world_(world) {}

    // What the store answered. An operation on a session when there is none creates one.
    Status apply(const Operation& operation) {
        using Kind = Operation::Kind;
        if (operation.kind == Kind::reopen) return world_.open();
        if (operation.kind == Kind::collect) return world_.store->collect_garbage().status();
        if (operation.kind == Kind::create || sessions_.empty()) return create(operation);
        auto& [name, turns] = *std::next(
            sessions_.begin(), static_cast<std::ptrdiff_t>(operation.a % sessions_.size()));
        switch (operation.kind) {
            case Kind::commit:
                return commit(name, turns, operation);
            case Kind::fork:
                return fork(name, turns, operation);
            case Kind::rollback:
                return rollback(name, turns, operation);
            case Kind::rename:
                return rename(name, operation);
            default:
                break;
        }
        const std::string gone = name;
        const Status removed = world_.store->remove(gone);
        if (removed) sessions_.erase(gone);
        return removed;
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
                const std::string wrong =
                    world_.wrong_session(name, turns[i].value.tokens, turns[i].id);
                if (!wrong.empty()) {
                    return fmt::format("session '{}', turn {}: {}", name, i + 1, wrong);
                }
            }
        }
        return {};
    }

    std::size_t session_count() const { return sessions_.size(); }

  private:
    struct Step {
        store::TurnId id;
        std::string content;
        Sequence value;
    };
    using Steps = std::vector<Step>;

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
        // Few seeds and sizes, so that sessions meet on equal prefixes.
        constexpr std::array<std::size_t, 7> kSizes = {1, 5, 59, 64, 65, 128, 200};
        const std::uint64_t seed = operation.c % 3;
        const auto turn = world_.commit(name, value, kSizes[operation.b % kSizes.size()], seed);
        if (turn) turns.push_back({turn->id, turn->content, std::move(value)});
        return turn.status();
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
        return {};
    }

    World& world_;
    std::map<std::string, Steps> sessions_;
};

}  // namespace stet::store_test
