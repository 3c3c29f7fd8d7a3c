// Pages of encoded state: each is referred to, and has just the rows that are counted.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/state/encoded_bytes.h"

namespace stet::state {
namespace {

using namespace state_test;
using format::kHeaderBytes;

// Records and the references to them, of two pages of one group: 64 and 7 rows.
class RecordTest : public testing::Test {
  protected:
    static constexpr std::size_t kRecordBytes = 32;

    RecordTest() : world_(some_lifetimes(1, 9, 4)) {
        world_.feed(0, 71);
        bytes_ = world_.saved(0);
        manifest_end_ = kHeaderBytes + manifest_size(bytes_);
        const auto& group = world_.schema().groups[0];
        std::size_t schema_bytes = 4 + 8 + group.name.size() + 12;
        for (const auto& plane : group.planes) schema_bytes += 8 + plane.name.size() + 20;
        count_at_ =
            kHeaderBytes + 64 + 8 + 8 + world_.context.identity().model_name.size() + schema_bytes;
    }
    // The message of the refusal.
    std::string refusal() {
        seal(bytes_, manifest_end_ - kHeaderBytes);
        const Status status = world_.context.restore(1, bytes_);
        EXPECT_EQ(status.code(), Code::corruption);
        return status.to_string();
    }

    World world_;
    Bytes bytes_;
    std::size_t count_at_ = 0;
    std::size_t manifest_end_ = 0;  // before it: the references of both pages, no checkpoints
};

TEST_F(RecordTest, ThatDoNotExistAreNamed) {
    write_at(bytes_, manifest_end_ - 8, std::uint32_t{2});
    EXPECT_NE(refusal().find("is 2 of 2"), std::string::npos);
}

TEST_F(RecordTest, ThatHaveTooFewRowsAreNamed) {
    write_at(bytes_, manifest_end_ - 8, std::uint32_t{1});
    write_at(bytes_, count_at_ + 4 + kRecordBytes + 4, std::uint32_t{6});
    EXPECT_NE(refusal().find("6 rows at 64; expected group 0, 7 rows at 64"), std::string::npos);
}

TEST_F(RecordTest, ThatHaveNoRowsOrMoreThanAPageAreNamed) {
    for (const std::uint32_t rows : {0U, 65U, ~0U}) {
        write_at(bytes_, count_at_ + 4 + kRecordBytes + 4, rows);
        const std::string why = refusal();
        EXPECT_NE(why.find("rows of a record"), std::string::npos) << why;
    }
}

TEST_F(RecordTest, ThatNothingRefersToAreRefused) {
    // A third record, the same as the second, with its payload.
    const std::uint64_t payload = world_.schema().groups[0].row_bytes() * 7;
    const auto second = bytes_.begin() + static_cast<std::ptrdiff_t>(count_at_ + 4 + kRecordBytes);
    const Bytes record(second, second + kRecordBytes);
    const Bytes rows(bytes_.end() - static_cast<std::ptrdiff_t>(payload), bytes_.end());
    bytes_.insert(second + kRecordBytes, record.begin(), record.end());
    bytes_.insert(bytes_.end(), rows.begin(), rows.end());
    manifest_end_ += kRecordBytes;
    write_at(bytes_, count_at_, std::uint32_t{3});
    EXPECT_NE(refusal().find("record 2 has 7 rows, 0 belong to a sequence"), std::string::npos);
}

// What can't fit is refused by the manifest alone: it costs no reading of pages.
TEST(Manifest, SaysWhatDoesNotFitBeforePagesAreRead) {
    const Schema schema = all_lifetimes(70, 4);
    World world(schema);
    world.feed(3, 300);
    const Bytes bytes = world.saved_all();
    World few(schema, 4096, 2);
    World brief(schema, 299, 4);
    for (World* small : {&few, &brief}) {
        std::size_t read = 0;
        CallbackSource source([&](std::span<std::byte> into) {
            std::memcpy(into.data(), bytes.data() + read, into.size());
            read += into.size();
            return Status();
        });
        const Status status = small->context.restore_all(source);
        EXPECT_EQ(status.code(), Code::resource_exhausted) << status.to_string();
        EXPECT_EQ(read, kHeaderBytes + manifest_size(bytes));
    }
}

TEST(Manifest, SamplerStateOfCheckpointsIsCheckedToo) {
    const Schema schema = all_lifetimes(70, 4);
    World world(schema);
    world.feed(0, 30);
    world.dress(0);
    ASSERT_TRUE(world.context.checkpoint(0));
    world.feed(0, 5);
    ASSERT_EQ(world.at(0).sampler, nullptr);
    ASSERT_NE(world.at(0).checkpoints.at(0)->sampler, nullptr);
    Limits limits = limits_of(4096, 1);
    limits.check_sampler = [](std::span<const std::byte>) {
        return Status(Code::corruption, "no such sampler");
    };
    Context picky(world.pool, identity_of(schema), limits);
    const Status status = picky.restore(0, world.saved(0));
    EXPECT_NE(status.to_string().find("no such sampler"), std::string::npos) << status.to_string();
}

// Nobody proved that so much will come: memory is taken as it arrives.
TEST(Manifest, AStreamsLengthIsNotBelieved) {
    World world(some_lifetimes(1, 9, 4));
    world.feed(0, 10);
    Bytes head = world.saved(0);
    head.resize(kHeaderBytes);
    write_at(head, 16, std::uint64_t{1} << 50);
    write_at(head, 24, std::uint64_t{1} << 49);
    const Hash128 checksum = xxh3_128(std::span(head).first(48));
    std::memcpy(head.data() + 48, checksum.bytes.data(), 16);
    std::size_t asked = 0;
    CallbackSource source([&](std::span<std::byte> into) {
        asked = std::max(asked, into.size());
        if (into.size() > head.size()) return Status(Code::corruption, "cut short");
        std::memcpy(into.data(), head.data(), into.size());
        return Status();
    });
    EXPECT_EQ(world.context.restore(1, source).code(), Code::corruption);
    EXPECT_LE(asked, 1U << 20);
}

TEST(Restored, GoesOnInItsOwnPages) {
    World world(some_lifetimes(1, 9, 4));
    world.feed(0, 10);
    ASSERT_TRUE(world.context.restore(1, world.saved(0)));
    const memory::PageRef page = world.at(1).groups[0].pages.at(0);
    world.feed(1, 5);
    EXPECT_EQ(world.at(1).groups[0].pages.at(0), page) << "not in a copy";
}

}  // namespace
}  // namespace stet::state
