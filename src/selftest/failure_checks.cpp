// Restores that fail, into contexts that are in use: nothing may change.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>

#include "base/try.h"
#include "selftest/columns.h"
#include "selftest/witness.h"

namespace stet::selftest {
namespace {

using Restore = std::function<Status(std::span<const std::byte>)>;

constexpr SequenceId kTarget = 1;
constexpr std::uint32_t kSavedTokens = 70;  // more than a page
// Bytes that flips may cost to read and hash, all together, unless everything is asked for.
constexpr std::uint64_t kFlipBudgetBytes = 400'000'000;
constexpr std::uint32_t kFlippedTokens = 3;

// State that would be good, of one sequence or of a whole context.
struct Good {
    Bytes bytes;
    std::vector<Part> parts;
};

Result<Good> make_good(Subject& subject, bool is_context) {
    Context other = subject.make_context(3);
    const std::uint32_t tokens = std::min(kSavedTokens, subject.length_max() / 2);
    STET_TRY(subject.feed(other, 0, subject.tokens(20, 0, tokens - 5)).status());
    STET_TRY(other.checkpoint(0));
    STET_TRY(subject.feed(other, 0, subject.tokens(20, tokens - 5, tokens)).status());
    Good good;
    if (!is_context) {
        STET_ASSIGN(const state::Snapshot snapshot, other.snapshot(0));
        STET_ASSIGN(good.bytes, save(other, 0));
        good.parts = parts_of(snapshot.saved(), good.bytes.size());
        return good;
    }
    STET_TRY(other.fork(0, 2));
    STET_TRY(subject.feed(other, 2, subject.tokens(21, 0, 4)).status());
    STET_ASSIGN(good.bytes, save_all(other));
    good.parts = parts_of(other.snapshot_all().saved(), good.bytes.size());
    return good;
}

std::string name_of(const Subject& subject, const Part& part) {
    const memory::Group& group = subject.schema().groups[part.group];
    const memory::Plane& plane = group.planes[part.plane];
    return fmt::format("group '{}', plane '{}' of layer {}", group.name, plane.name, plane.layer);
}

Status expect_flip_refused(Bytes& bytes, std::size_t at, const Restore& restore,
                           std::string_view what) {
    bytes[at] ^= static_cast<std::byte>(1U << at % 8);
    const Status status = restore(bytes);
    bytes[at] ^= static_cast<std::byte>(1U << at % 8);
    return expect_refused(status, {Code::corruption}, fmt::format("{} flipped at {}", what, at));
}

// Damage at the ends of every part and of header and manifest, cuts there, and bytes too many.
// Answers how many states were refused.
Result<std::size_t> restore_damaged(Good& good, const Restore& restore) {
    std::set<std::size_t> places = {0, 8, 12, 20, 33, 63, 64, 65, good.bytes.size() - 1};
    for (const Part& part : good.parts) {
        places.insert({part.begin - 1, part.begin, part.begin + part.size - 1});
    }
    for (const std::size_t at : places) {
        STET_TRY(expect_flip_refused(good.bytes, at, restore, "a byte"));
        STET_TRY(expect_refused(restore(std::span(good.bytes).first(at)), {Code::corruption},
                                fmt::format("cut to {} bytes", at)));
    }
    good.bytes.push_back(std::byte{0});
    const Status longer = restore(good.bytes);
    good.bytes.pop_back();
    STET_TRY(expect_refused(longer, {Code::corruption}, "a byte too many"));
    return 2 * places.size() + 1;
}

// A context of the same subject with something else about it: what it saves is foreign.
struct Foreign {
    std::string_view what;
    Code code;
    state::Identity identity;
    std::uint32_t tokens;
};

std::vector<Foreign> make_foreign(const Subject& subject, std::uint32_t tokens_max) {
    state::Identity model = subject.identity();
    model.fingerprint.bytes[0] ^= 1;
    state::Identity types = subject.identity();
    types.v_type = memory::ElementType::q8_0;
    return {{"another model", Code::incompatible, model, 9},
            {"another type of values", Code::incompatible, types, 9},
            {"a longer context", Code::resource_exhausted, subject.identity(), tokens_max + 1}};
}

// By every way, into `context`, which is left as it was.
Status restore_foreign(Subject& subject, Context& context, bool is_context) {
    const auto path = subject.directory() / "foreign";
    for (const Foreign& foreign : make_foreign(subject, context.limits().tokens_max)) {
        Context other(subject.pool(), foreign.identity, subject.limits(2));
        STET_TRY(subject.feed(other, 0, subject.tokens(30, 0, foreign.tokens)).status());
        std::array<Status, 3> answers;
        if (is_context) {
            STET_ASSIGN(const Bytes bytes, save_all(other));
            STET_TRY(other.save_all_file(Env::posix(), path).status());
            answers = {context.restore_all(bytes), context.restore_all(other.snapshot_all()),
                       context.restore_all_file(Env::posix(), path)};
        } else {
            STET_ASSIGN(const Bytes bytes, save(other, 0));
            STET_ASSIGN(const state::Snapshot snapshot, other.snapshot(0));
            STET_TRY(other.save_file(0, Env::posix(), path).status());
            answers = {context.restore(kTarget, bytes), context.restore(kTarget, snapshot),
                       context.restore_file(kTarget, Env::posix(), path)};
        }
        for (const Status& answer : answers) {
            STET_TRY(expect_refused(answer, {foreign.code}, foreign.what));
        }
    }
    return {};
}

Result<std::string> check_failures(Subject& subject, bool is_context) {
    state::Limits limits = subject.limits(4);
    limits.tokens_max = std::min<std::uint64_t>(kSavedTokens + 9, subject.length_max() - 1);
    Context context(subject.pool(), subject.identity(), limits);
    STET_TRY(fill(subject, context));
    STET_ASSIGN(Good good, make_good(subject, is_context));
    STET_ASSIGN(const Witness witness, Witness::take(subject, context));
    const auto path = subject.directory() / "keep";
    std::size_t tried = 0;
    std::string after;
    const auto from_bytes = [&](std::span<const std::byte> bytes) {
        return is_context ? context.restore_all(bytes) : context.restore(kTarget, bytes);
    };
    const auto from_file = [&](std::span<const std::byte> bytes) -> Status {
        STET_TRY(write_file(path, bytes));
        return is_context ? context.restore_all_file(Env::posix(), path)
                          : context.restore_file(kTarget, Env::posix(), path);
    };
    for (const Restore& restore : {Restore(from_bytes), Restore(from_file)}) {
        STET_ASSIGN(const std::size_t refused, restore_damaged(good, restore));
        tried += refused;
        STET_TRY(witness.expect_unchanged(context, "damaged state"));
    }
    STET_TRY(restore_foreign(subject, context, is_context));
    STET_TRY(witness.expect_unchanged(context, "foreign state"));
    const auto missing = subject.directory() / "missing";
    STET_TRY(expect_refused(is_context ? context.restore_all_file(Env::posix(), missing)
                                       : context.restore_file(kTarget, Env::posix(), missing),
                            {Code::not_found}, "a file that isn't there"));
    STET_TRY(witness.expect_unchanged(context, "a missing file"));
    STET_TRY(witness.expect_same_logits(subject, context));
    STET_TRY(from_bytes(good.bytes).with_context("undamaged state"));
    return fmt::format("{} damaged and 9 foreign states and a missing file refused, all as before",
                       tried);
}

// A context with `live` in it, and a pool of its own with so much room.
class SmallWorld {
  public:
    static Result<std::unique_ptr<SmallWorld>> make(const Subject& subject,
                                                    std::uint64_t limit_bytes, const Bytes& live) {
        std::unique_ptr<SmallWorld> world(new SmallWorld(subject, limit_bytes));
        STET_TRY(world->context.restore(kTarget, live));
        return world;
    }

  private:
    memory::PagePool pool_;

  public:
    Context context;

  private:
    SmallWorld(const Subject& subject, std::uint64_t limit_bytes)
        : pool_(subject.schema(), limit_bytes),
          context(pool_, subject.identity(), subject.limits(2)) {}
};

// With room for so many pages that the restore fails at the first, then at the second, and so on.
// Answers how many it needs.
Result<std::uint64_t> fail_each_page(const Subject& subject, const Good& good, const Bytes& live) {
    STET_ASSIGN(const auto ample, SmallWorld::make(subject, 1ULL << 40, live));
    const memory::PoolStats before = ample->context.pool().stats();
    STET_TRY(ample->context.restore(0, good.bytes));
    const memory::PoolStats after = ample->context.pool().stats();
    const std::uint64_t pages = after.pages_in_use - before.pages_in_use;
    for (std::uint64_t i = 0; i < pages; ++i) {
        const std::uint64_t limit_bytes =
            before.bytes_in_use + (after.bytes_in_use - before.bytes_in_use) * i / pages;
        STET_ASSIGN(const auto tight, SmallWorld::make(subject, limit_bytes, live));
        STET_TRY(expect_refused(tight->context.restore(kTarget, good.bytes),
                                {Code::resource_exhausted},
                                fmt::format("a pool of {} bytes", limit_bytes)));
        STET_ASSIGN(const Bytes kept, save(tight->context, kTarget));
        STET_TRY(expect_equal(live, kept, "the target after a restore without room"));
        if (tight->context.pool().stats().pages_in_use != before.pages_in_use) {
            return failure("a restore without room kept pages");
        }
    }
    return pages;
}

// Every byte where that is quick, else as many as the budget allows, spread evenly.
std::size_t flip_stride(std::size_t size_bytes, bool is_deep) {
    if (is_deep) return 1;
    const std::uint64_t flips = std::max<std::uint64_t>(kFlipBudgetBytes / size_bytes, 1);
    return std::max<std::size_t>(size_bytes / flips, 1);
}

}  // namespace

Result<std::string> check_failed_restore(Subject& subject, const CheckOptions& /*options*/) {
    return check_failures(subject, false);
}

Result<std::string> check_failed_context_restore(Subject& subject,
                                                 const CheckOptions& /*options*/) {
    return check_failures(subject, true);
}

Result<std::string> check_each_part(Subject& subject, const CheckOptions& /*options*/) {
    Context context = subject.make_context(4);
    STET_TRY(fill(subject, context));
    STET_ASSIGN(Good good, make_good(subject, false));
    STET_ASSIGN(const Witness witness, Witness::take(subject, context));
    for (const Part& part : good.parts) {
        const std::string name = name_of(subject, part);
        const std::size_t at = part.begin + part.size / 2;
        good.bytes[at] ^= std::byte{0x10};
        const Status status = context.restore(kTarget, good.bytes);
        good.bytes[at] ^= std::byte{0x10};
        STET_TRY(expect_refused(status, {Code::corruption}, name));
        const std::string& group = subject.schema().groups[part.group].name;
        if (status.to_string().find("'" + group + "'") == std::string::npos) {
            return failure(fmt::format("damage in {} is told as: {}", name, status.to_string()));
        }
        STET_TRY(witness.expect_unchanged(context, "damage in " + name));
    }
    STET_TRY(witness.expect_same_logits(subject, context));
    STET_ASSIGN(const Bytes live, save(context, kTarget));
    STET_ASSIGN(const std::uint64_t pages, fail_each_page(subject, good, live));
    return fmt::format("{} planes and {} allocations failed in turn", good.parts.size(), pages);
}

Result<std::string> check_flips_and_cuts(Subject& subject, const CheckOptions& options) {
    Context context = subject.make_context(3);
    STET_TRY(subject.feed(context, 0, subject.tokens(40, 0, kFlippedTokens)).status());
    STET_ASSIGN(Bytes bytes, save(context, 0));
    STET_ASSIGN(const state::Snapshot snapshot, context.snapshot(0));
    const auto parts = parts_of(snapshot.saved(), bytes.size());
    const std::size_t payload = parts.empty() ? bytes.size() : parts.front().begin;
    STET_TRY(subject.feed(context, kTarget, subject.tokens(41, 0, 5)).status());
    STET_ASSIGN(const Witness witness, Witness::take(subject, context));
    const Restore restore = [&](std::span<const std::byte> data) {
        return context.restore(kTarget, data);
    };
    const std::size_t stride = flip_stride(bytes.size(), options.is_deep);
    std::size_t flips = 0;
    for (std::size_t at = 0; at < bytes.size(); at += at < payload ? 1 : stride) {
        STET_TRY(expect_flip_refused(bytes, at, restore, "a byte"));
        ++flips;
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        STET_TRY(expect_refused(restore(std::span(bytes).first(size)), {Code::corruption},
                                fmt::format("cut to {} bytes", size)));
    }
    STET_TRY(witness.expect_unchanged(context, "flips and cuts"));
    STET_TRY(witness.expect_same_logits(subject, context));
    return fmt::format("{} of {} bytes flipped, {} lengths", flips, bytes.size(), bytes.size());
}

}  // namespace stet::selftest
