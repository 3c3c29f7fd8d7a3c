#include "base/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

namespace stet {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST(Reader, ReadsWhatTheWriterWrote) {
    Writer writer;
    writer.write(std::uint32_t{0x01020304});
    writer.write(std::int16_t{-2});
    writer.write(1.5);
    writer.write_string("name");
    writer.write_bytes(bytes_of("xy"));

    Reader reader(writer.data(), "test");
    EXPECT_EQ(*reader.read<std::uint32_t>("a"), 0x01020304u);
    EXPECT_EQ(*reader.read<std::int16_t>("b"), -2);
    EXPECT_EQ(*reader.read<double>("c"), 1.5);
    EXPECT_EQ(*reader.read_string("d"), "name");
    EXPECT_EQ(reader.finish().code(), Code::corruption);
    EXPECT_EQ(reader.left(), 2u);
    EXPECT_EQ(reader.read_bytes(2, "e")->size(), 2u);
    EXPECT_TRUE(reader.finish().is_ok());
}

TEST(Writer, IsLittleEndian) {
    Writer writer;
    writer.write(std::uint32_t{0x01020304});
    EXPECT_EQ(std::to_integer<int>(writer.data()[0]), 4);
    EXPECT_EQ(std::to_integer<int>(writer.data()[3]), 1);
}

TEST(Reader, NamesSourceFieldAndSizesWhenCutShort) {
    Reader reader(bytes_of("abc"), "state file a.stet");
    const Status status = reader.read<std::uint64_t>("row count").status();
    EXPECT_EQ(status.code(), Code::corruption);
    EXPECT_EQ(status.to_string(),
              "state file a.stet: cut short at byte 0: row count needs 8 bytes, 3 are left");
    EXPECT_EQ(reader.position(), 0u);  // a failed read moves nothing
}

TEST(Reader, RefusesSizesThatWouldOverflow) {
    constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t size : {kMax, kMax - 7, kMax / 2, std::uint64_t{5}}) {
        Reader reader(bytes_of("abcd"), "test");
        EXPECT_EQ(reader.read_bytes(size, "x").status().code(), Code::corruption) << size;
    }
    Reader reader(bytes_of("abcdefgh"), "test");
    EXPECT_TRUE(reader.require(2, 4, "x").is_ok());
    EXPECT_TRUE(reader.require(kMax, 0, "x").is_ok());
    EXPECT_EQ(reader.require(3, 4, "x").code(), Code::corruption);
    EXPECT_EQ(reader.require(kMax, 8, "x").code(), Code::corruption);
    EXPECT_EQ(reader.require(std::uint64_t{1} << 62, 4, "x").code(), Code::corruption);
}

TEST(Reader, RefusesAStringLongerThanTheRest) {
    Writer writer;
    writer.write(std::numeric_limits<std::uint64_t>::max());
    Reader reader(writer.data(), "test");
    EXPECT_EQ(reader.read_string("x").status().code(), Code::corruption);
}

TEST(Reader, AnyStringsComeBackAndEveryTruncationFails) {
    const bool holds = rc::check([](const std::vector<std::string>& texts) {
        Writer writer;
        for (const std::string& text : texts) writer.write_string(text);
        const auto read_all = [&](std::size_t size) {
            Reader reader(std::span(writer.data()).first(size), "test");
            for (const std::string& text : texts) {
                const auto found = reader.read_string("text");
                if (!found.is_ok()) return false;
                RC_ASSERT(*found == text);
            }
            return reader.finish().is_ok();
        };
        RC_ASSERT(read_all(writer.data().size()));
        for (std::size_t size = 0; size < writer.data().size(); ++size) RC_ASSERT(!read_all(size));
    });
    EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace stet
