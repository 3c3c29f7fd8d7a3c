// Random histories of a context beside a plain model of it: a list of tokens a sequence. Whatever
// was appended, forked, cut, saved, restored, or failed to be, every row of every value is the one
// that its tokens make.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sstream>

#include "unit/state/context_world.h"

namespace stet::state {
namespace {

using namespace state_test;

constexpr SequenceId kSequences = 3;

enum class Kind : std::uint8_t {
    append,
    drop_append,
    fork,
    truncate,
    checkpoint,
    roll_back,
    save,
    restore,
    save_all,
    restore_all,
    fail,
    clear,
};
constexpr std::size_t kKinds = 12;
// How often each comes.
constexpr std::array kDice = {
    Kind::append,     Kind::append,      Kind::append,    Kind::append,   Kind::append,
    Kind::append,     Kind::drop_append, Kind::fork,      Kind::truncate, Kind::checkpoint,
    Kind::checkpoint, Kind::roll_back,   Kind::roll_back, Kind::save,     Kind::restore,
    Kind::save_all,   Kind::restore_all, Kind::fail,      Kind::fail,     Kind::clear,
};

struct Step {
    std::uint32_t kind = 0;
    std::uint32_t a = 0;  // taken modulo what there is
    std::uint32_t b = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
    return out << "{" << step.kind << ", " << step.a << ", " << step.b << "}";
}

Kind kind_of(const Step& step) {
    return kDice.at(step.kind % kDice.size());
}

class History {
  public:
    explicit History(const Schema& schema) : world_(schema, 2000, kSequences, 1U << 24) {}

    // Empty, or what is wrong after the step.
    std::string play(const Step& step) {
        did_something_ = true;
        const SequenceId id = step.a % kSequences;
        const SequenceId other = step.b % kSequences;
        switch (kind_of(step)) {
            case Kind::append:
                append(id, step);
                break;
            case Kind::drop_append:
                drop_append(id, step);
                break;
            case Kind::fork:
                fork(id, other);
                break;
            case Kind::truncate:
                truncate(id, step);
                break;
            case Kind::checkpoint:
                checkpoint(id);
                break;
            case Kind::roll_back:
                roll_back(id, step);
                break;
            case Kind::save:
                save(id);
                break;
            case Kind::restore:
                restore(id, step);
                break;
            case Kind::save_all:
                save_all();
                break;
            case Kind::restore_all:
                restore_all(step);
                break;
            case Kind::fail:
                fail(id, step);
                break;
            case Kind::clear:
                clear(id);
                break;
        }
        return wrong_.empty() ? compare() : wrong_;
    }

    bool has_changed() const { return did_something_; }

  private:
    // What the plain model knows of a sequence.
    struct Plain {
        std::vector<Token> tokens;
        std::vector<std::uint64_t> asked_for;  // checkpoints
    };
    struct Saved {
        Bytes bytes;
        Snapshot snapshot;
        Plain plain;
    };
    struct SavedAll {
        Bytes bytes;
        ContextSnapshot snapshot;
        std::array<Plain, kSequences> plain;
    };

    void skip() { did_something_ = false; }
    void expect(const Status& status, std::string_view what) {
        if (!status) wrong_ = std::string(what) + ": " + status.to_string();
    }
    static std::size_t count_of(const Step& step) {
        return step.b % 16 == 0 ? 512 : 1 + step.b / 16 % 90;
    }

    void append(SequenceId id, const Step& step) {
        std::vector<Token> tokens = some_tokens(count_of(step), static_cast<Token>(step.b % 7));
        Plain& plain = plain_[id];
        if (plain.tokens.size() + tokens.size() > 2000) return skip();
        expect(world_.context.put(id, extended(world_.pool, world_.at(id), tokens)), "append");
        plain.tokens.insert(plain.tokens.end(), tokens.begin(), tokens.end());
    }
    void drop_append(SequenceId id, const Step& step) {
        const Photo photo(world_);
        {
            Append append =
                Append::begin(world_.pool, world_.at(id), some_tokens(count_of(step))).value();
            if (step.b % 2 == 0) write_rows(world_.schema(), append);
        }
        // Rows past the counts may have been written; the values must be the same.
        if (photo.value_difference() != "") wrong_ = "a dropped step changed a value";
    }
    void fork(SequenceId id, SequenceId other) {
        expect(world_.context.fork(id, other), "fork");
        plain_[other] = plain_[id];
    }
    void cut_plain(SequenceId id, std::uint64_t position) {
        plain_[id].tokens.resize(position);
        std::erase_if(plain_[id].asked_for, [&](std::uint64_t at) { return at > position; });
    }
    void truncate(SequenceId id, const Step& step) {
        const std::uint64_t wanted = step.b % (plain_[id].tokens.size() + 1);
        const auto cut = world_.context.truncate(id, wanted);
        if (!cut) return expect(cut.status(), "truncate");
        if (cut->position + cut->recompute_tokens != wanted) wrong_ = "truncate miscounts";
        for (const std::uint64_t at : plain_[id].asked_for) {
            if (at <= wanted && at > cut->position) wrong_ = "truncate passed a checkpoint by";
        }
        cut_plain(id, cut->position);
    }
    void checkpoint(SequenceId id) {
        const std::uint64_t position = plain_[id].tokens.size();
        expect(world_.context.checkpoint(id), "checkpoint");
        auto& kept = plain_[id].asked_for;
        if (position != 0 && (kept.empty() || kept.back() != position)) kept.push_back(position);
    }
    void roll_back(SequenceId id, const Step& step) {
        const auto& kept = plain_[id].asked_for;
        if (kept.empty()) return skip();
        const std::uint64_t position = kept[step.b % kept.size()];
        expect(world_.context.rollback(id, position), "rollback");
        cut_plain(id, position);
    }
    void save(SequenceId id) {
        if (id % 2 == 0 && world_.at(id).position() != 0) world_.dress(id);
        saved_.push_back({world_.saved(id), world_.context.snapshot(id).value(), plain_[id]});
        if (saved_.size() > 3) saved_.erase(saved_.begin());
    }
    void restore(SequenceId id, const Step& step) {
        if (saved_.empty()) return skip();
        const Saved& saved = saved_[step.b / 2 % saved_.size()];
        expect(step.b % 2 == 0 ? world_.context.restore(id, saved.bytes)
                               : world_.context.restore(id, saved.snapshot),
               "restore");
        plain_[id] = saved.plain;
    }
    void save_all() {
        saved_all_.push_back({world_.saved_all(), world_.context.snapshot_all(), plain_});
        if (saved_all_.size() > 2) saved_all_.erase(saved_all_.begin());
    }
    void restore_all(const Step& step) {
        if (saved_all_.empty()) return skip();
        const SavedAll& saved = saved_all_[step.b / 2 % saved_all_.size()];
        expect(step.b % 2 == 0 ? world_.context.restore_all(saved.bytes)
                               : world_.context.restore_all(saved.snapshot),
               "restore all");
        plain_ = saved.plain;
    }
    // A restore of bytes that were damaged or cut: never was.
    void fail(SequenceId id, const Step& step) {
        const bool all = step.b % 2 == 0;
        if (all ? saved_all_.empty() : saved_.empty()) return skip();
        Bytes bytes = all ? saved_all_.back().bytes : saved_.back().bytes;
        const std::size_t at = step.b / 4 % bytes.size();
        if (step.b / 2 % 2 == 0) {
            bytes.resize(at);
        } else {
            bytes[at] ^= std::byte{0x10};
        }
        const Photo photo(world_);
        const Status status =
            all ? world_.context.restore_all(bytes) : world_.context.restore(id, bytes);
        if (status.code() != Code::corruption)
            wrong_ = "damage was not seen: " + status.to_string();
        if (const std::string d = photo.difference(); !d.empty()) wrong_ = "failed restore: " + d;
    }
    void clear(SequenceId id) {
        expect(world_.context.clear(id), "clear");
        plain_[id] = {};
    }

    std::string compare() const {
        for (SequenceId id = 0; id < kSequences; ++id) {
            const Sequence& sequence = world_.at(id);
            if (sequence.tokens != plain_[id].tokens) return "tokens of " + std::to_string(id);
            const std::string wrong = first_wrong_row(world_.schema(), sequence);
            if (!wrong.empty()) return wrong + " of sequence " + std::to_string(id);
        }
        return "";
    }

    World world_;
    std::array<Plain, kSequences> plain_;
    std::vector<Saved> saved_;
    std::vector<SavedAll> saved_all_;
    std::string wrong_;
    bool did_something_ = false;
};

constexpr int kFullSize = 100;  // of RapidCheck: ranges are used whole

rc::Gen<std::vector<Step>> steps(std::size_t count) {
    const auto number = rc::gen::inRange<std::uint32_t>(0, 1U << 20);
    const auto step = rc::gen::map(rc::gen::tuple(number, number, number), [](const auto& numbers) {
        return Step{std::get<0>(numbers), std::get<1>(numbers), std::get<2>(numbers)};
    });
    return rc::gen::resize(kFullSize, rc::gen::container<std::vector<Step>>(count, step));
}

TEST(History, TenThousandEqualAPlainModel) {
    rc::detail::TestParams params = rc::detail::configuration().testParams;
    params.maxSuccess = 10'000;
    std::array<std::uint64_t, kKinds> played{};
    const auto result = rc::detail::checkTestable(
        [&] {
            const auto up_to = [](std::uint32_t first, std::uint32_t end) {
                return *rc::gen::resize(kFullSize, rc::gen::inRange(first, end));
            };
            const std::uint32_t lifetimes = up_to(0, 16);
            const std::uint32_t window = up_to(1, 140);
            History history(some_lifetimes(lifetimes, window, up_to(1, 6)));
            for (const Step& step : *steps(up_to(1, 30))) {
                const std::string wrong = history.play(step);
                if (history.has_changed()) ++played.at(static_cast<std::size_t>(kind_of(step)));
                if (!wrong.empty()) RC_FAIL(wrong);
            }
        },
        rc::detail::TestMetadata{}, params);
    std::ostringstream message;
    rc::detail::printResultMessage(result, message);
    EXPECT_TRUE(result.template is<rc::detail::SuccessResult>()) << message.str();
    for (const std::uint64_t count : played) EXPECT_GT(count, 1000U) << "of each kind of step";
}

}  // namespace
}  // namespace stet::state
