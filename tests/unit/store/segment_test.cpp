#include "store/segment.h"

#include <algorithm>

#include "support/fault_env.h"
#include "unit/store/store_world.h"

namespace stet::store {
namespace {

using store_test::fingerprint_of;
using store_test::make_row;
using store_test::read_bytes;
using store_test::TempDirectory;
using store_test::write_bytes;

class Segments : public testing::Test {
  protected:
    SegmentWriter writer(std::uint64_t number = 0, std::uint64_t end = 0, std::uint64_t next = 1,
                         std::uint64_t segment_bytes = 1U << 20) {
        auto opened = SegmentWriter::open(env_, directory_.path(), number, end, next, segment_bytes,
                                          sealing_);
        EXPECT_TRUE(opened.is_ok());
        return std::move(*opened);
    }
    static std::vector<std::byte> payload_of(std::uint64_t seed, std::size_t size) {
        std::vector<std::byte> payload(size);
        make_row(seed, 0, 0, payload.data(), size);
        return payload;
    }
    static Result<Place> append(SegmentWriter& writer, std::uint64_t seed, std::size_t size) {
        return writer.append(fingerprint_of(seed), size, [&](std::span<std::byte> into) {
            std::ranges::copy(payload_of(seed, size), into.begin());
        });
    }
    Place kept(SegmentWriter& writer, std::uint64_t seed, std::size_t size) {
        const auto place = append(writer, seed, size);
        EXPECT_TRUE(place.is_ok()) << place.status().to_string();
        EXPECT_TRUE(writer.sync().is_ok());
        writer.keep();
        return *place;
    }
    Status read(const Place& place, std::uint64_t seed) {
        SegmentReader reader(env_, directory_.path(), sealing_);
        std::vector<std::byte> buffer;
        const auto payload = reader.read(fingerprint_of(seed), place, buffer);
        if (!payload) return payload.status();
        EXPECT_TRUE(std::ranges::equal(*payload, payload_of(seed, place.size_bytes)));
        return {};
    }
    std::filesystem::path path(std::uint64_t number) const {
        return directory_.path() / segment_name(number);
    }

    TempDirectory directory_;
    test::FaultEnv env_;
    Sealing sealing_;
};

TEST_F(Segments, NamesAndNumbers) {
    EXPECT_EQ(segment_name(1), "00000001.seg");
    EXPECT_EQ(segment_name(123456789), "123456789.seg");
    for (const std::uint64_t number : {1U, 99999999U, 100000000U}) {
        EXPECT_EQ(segment_number(segment_name(number)), number);
    }
    for (const char* name :
         {"", ".seg", "1.seg", "0000001.seg", "00000001", "00000001.seg~", "-0000001.seg",
          "0000000a.seg", "000000001.seg", "00000000.seg", "99999999999999999999999.seg"}) {
        EXPECT_EQ(segment_number(name), 0U) << name;
    }
}

TEST_F(Segments, RecordsOfAnySizeComeBack) {
    SegmentWriter to = writer();
    std::vector<Place> places;
    // The buffer is 4 MiB: below, above, and many at once.
    const std::vector<std::size_t> sizes = {0,    1,        63,       64,       65,
                                            4000, 5U << 20, 3U << 20, 3U << 20, 7};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const auto place = append(to, i, sizes[i]);
        ASSERT_TRUE(place.is_ok());
        EXPECT_EQ(place->offset % kRecordAlignment, 0U);
        if (i > 0) {
            EXPECT_EQ(place->offset, places.back().end());
        }
        places.push_back(*place);
    }
    ASSERT_TRUE(to.sync().is_ok());
    to.keep();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(read(places[i], i).is_ok()) << i;
        EXPECT_EQ(read(places[i], i + 1).code(), Code::corruption) << "another key";
    }
    EXPECT_EQ(std::filesystem::file_size(path(1)), places.back().end());
}

TEST_F(Segments, EveryFieldOfAPlaceIsCompared) {
    SegmentWriter to = writer();
    const Place place = kept(to, 1, 100);
    kept(to, 2, 100);
    ASSERT_TRUE(read(place, 1).is_ok());
    Place wrong = place;
    wrong.size_bytes = 99;
    EXPECT_EQ(read(wrong, 1).code(), Code::corruption);
    wrong = place;
    wrong.checksum.bytes[0] ^= 1;
    EXPECT_EQ(read(wrong, 1).code(), Code::corruption);
    wrong = place;
    wrong.segment = 2;
    const Status missing = read(wrong, 1);
    EXPECT_EQ(missing.code(), Code::corruption);
    EXPECT_NE(missing.to_string().find("missing"), std::string::npos);
    for (const std::uint64_t offset :
         {std::uint64_t{0}, std::uint64_t{64}, place.offset + 1, place.offset + 64,
          place.end() + 64, std::uint64_t{1} << 61, ~std::uint64_t{63}}) {
        wrong = place;
        wrong.offset = offset;
        EXPECT_EQ(read(wrong, 1).code(), Code::corruption) << offset;
    }
    wrong = place;
    wrong.size_bytes = ~std::uint64_t{0};
    EXPECT_EQ(read(wrong, 1).code(), Code::corruption) << "and no memory is taken for it";
}

TEST_F(Segments, ASegmentOfAnotherNumberOrNewerVersionIsRefused) {
    SegmentWriter to = writer();
    Place place = kept(to, 1, 100);
    const std::vector<std::byte> bytes = read_bytes(path(1));
    write_bytes(path(2), bytes);
    place.segment = 2;
    EXPECT_EQ(read(place, 1).code(), Code::corruption);
    place.segment = 1;
    const auto write_header = [&](std::size_t at, std::byte value, bool seal) {
        std::vector<std::byte> changed = bytes;
        changed[at] = value;
        const Hash128 checksum = xxh3_128(std::span(changed).first(112));
        if (seal) std::memcpy(changed.data() + 112, checksum.bytes.data(), 16);
        write_bytes(path(1), changed);
    };
    write_header(8, std::byte{2}, false);
    EXPECT_EQ(read(place, 1).code(), Code::corruption) << "checksum first";
    write_header(8, std::byte{2}, true);
    EXPECT_EQ(read(place, 1).code(), Code::incompatible) << "a newer version";
    write_header(16, std::byte{2}, true);
    EXPECT_EQ(read(place, 1).code(), Code::corruption) << "another number";
    write_header(0, std::byte{'x'}, true);
    EXPECT_EQ(read(place, 1).code(), Code::corruption) << "no segment";
    write_header(0, bytes[0], true);
    EXPECT_TRUE(read(place, 1).is_ok());
}

TEST_F(Segments, AFullSegmentIsFollowedByANewOne) {
    SegmentWriter to = writer(0, 0, 5, 1000);
    EXPECT_EQ(kept(to, 1, 500).segment, 5U);
    EXPECT_EQ(kept(to, 2, 500).segment, 5U) << "a commit is never split";
    EXPECT_EQ(kept(to, 3, 500).segment, 6U);
}

TEST_F(Segments, OnlyAnEndThatIsNamedIsContinued) {
    Place last;
    {
        SegmentWriter to = writer();
        last = kept(to, 1, 300);
    }
    {
        SegmentWriter to = writer(1, last.end(), 2);
        const Place next = kept(to, 2, 300);
        EXPECT_EQ(next.segment, 1U);
        EXPECT_EQ(next.offset, last.end());
        EXPECT_TRUE(read(next, 2).is_ok());
    }
    {
        SegmentWriter to = writer(1, last.end(), 2);  // the second record is named by nobody
        EXPECT_EQ(kept(to, 3, 10).segment, 2U);
    }
    std::filesystem::resize_file(path(1), last.end() - 1);
    SegmentWriter to = writer(1, last.end(), 3);
    EXPECT_EQ(kept(to, 4, 10).segment, 3U);
}

TEST_F(Segments, WhatIsDiscardedTakesNoSpace) {
    SegmentWriter to = writer();
    ASSERT_TRUE(append(to, 1, 100).is_ok());
    ASSERT_TRUE(to.sync().is_ok());
    to.discard();
    EXPECT_FALSE(std::filesystem::exists(path(1)));
    const Place place = kept(to, 2, 100);
    const auto size = std::filesystem::file_size(path(place.segment));
    ASSERT_TRUE(append(to, 3, 6U << 20).is_ok());
    ASSERT_TRUE(append(to, 4, 100).is_ok());  // which writes the first
    EXPECT_GT(std::filesystem::file_size(path(place.segment)), size);
    to.discard();
    EXPECT_EQ(std::filesystem::file_size(path(place.segment)), size);
    const Place next = kept(to, 5, 100);
    EXPECT_EQ(next.offset, place.end());
    EXPECT_TRUE(read(place, 2).is_ok());
    EXPECT_TRUE(read(next, 5).is_ok());
}

TEST_F(Segments, AFailedSyncClosesTheSegment) {
    SegmentWriter to = writer();
    const Place place = kept(to, 1, 100);
    env_.fail_call({test::kSync, 0, Code::io, false});
    ASSERT_TRUE(append(to, 2, 100).is_ok());
    EXPECT_EQ(to.sync().code(), Code::io);
    to.discard();
    EXPECT_EQ(to.number(), 0U);
    EXPECT_EQ(kept(to, 3, 100).segment, place.segment + 1);
    EXPECT_TRUE(read(place, 1).is_ok());
}

TEST_F(Segments, AFailedSyncOfTheDirectoryIsAFailure) {
    SegmentWriter to = writer();
    env_.fail_call({test::kSyncDirectory, 0, Code::io, false});
    ASSERT_TRUE(append(to, 1, 100).is_ok());
    EXPECT_EQ(to.sync().code(), Code::io);
    to.discard();
    EXPECT_EQ(kept(to, 2, 100).segment, 2U);
    env_.crash();
    EXPECT_FALSE(std::filesystem::exists(path(1)));
    EXPECT_TRUE(std::filesystem::exists(path(2))) << "kept, so its name was synced";
}

TEST_F(Segments, ACommitSyncsOnce) {
    SegmentWriter to = writer();
    kept(to, 1, 100);
    env_.reset_calls();
    ASSERT_TRUE(append(to, 2, 100).is_ok());
    ASSERT_TRUE(append(to, 3, 100).is_ok());
    ASSERT_TRUE(to.sync().is_ok());
    to.keep();
    EXPECT_EQ(env_.calls(test::kSync), 1U);
    EXPECT_EQ(env_.calls(test::kWrite), 1U);
    EXPECT_EQ(env_.calls(test::kSyncDirectory), 0U);
}

}  // namespace
}  // namespace stet::store
