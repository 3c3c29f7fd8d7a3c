#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gguf/gguf.h"
#include "support/gguf_writer.h"
#include "support/temp_directory.h"

namespace stet::gguf {
namespace {

using test::GgufWriter;
using test::TempDirectory;
using testing::HasSubstr;

constexpr std::uint16_t kShards = 3;

class SplitTest : public testing::Test {
  protected:
    void SetUp() override {
        for (std::uint16_t i = 0; i < kShards; ++i) save(i, shard(i));
    }

    std::filesystem::path path(std::uint16_t index) const {
        return directory_ / fmt::format("m-{:05}-of-{:05}.gguf", index + 1, kShards);
    }
    // Each shard has a tensor "tI" full of the value I; only the first has the metadata.
    static GgufWriter shard(std::uint16_t index, std::uint16_t number, std::uint16_t count) {
        GgufWriter writer;
        if (index == 0) writer.set_string("general.architecture", "llama");
        writer.set_u16("split.no", number).set_u16("split.count", count);
        writer.set_i32("split.tensors.count", kShards);
        const std::vector<float> values(4, static_cast<float>(index));
        writer.add_f32(fmt::format("t{}", index), {4}, values);
        return writer;
    }
    static GgufWriter shard(std::uint16_t index) { return shard(index, index, kShards); }
    void save(std::uint16_t index, GgufWriter writer) {
        ASSERT_TRUE(writer.save(path(index)).is_ok());
    }
    Status failure() { return File::open(Env::posix(), path(0)).status(); }

    TempDirectory directory_;
};

TEST_F(SplitTest, OpensAllShards) {
    const auto file = std::move(File::open(Env::posix(), path(0))).value();
    EXPECT_EQ(file->file_count(), 3u);
    EXPECT_EQ(file->get_string("general.architecture"), "llama");
    std::uint64_t total = 0;
    for (std::uint16_t i = 0; i < kShards; ++i) {
        const Tensor* tensor = file->find_tensor(fmt::format("t{}", i));
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(tensor->file_index, i);
        float value = -1;
        std::memcpy(&value, file->data(*tensor).data(), sizeof(value));
        EXPECT_EQ(value, static_cast<float>(i));
        EXPECT_EQ(file->path(i), path(i));
        total += std::filesystem::file_size(path(i));
    }
    EXPECT_EQ(file->size_bytes(), total);
}

TEST_F(SplitTest, MustBeOpenedByTheFirst) {
    const Status status = File::open(Env::posix(), path(1)).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.to_string(), HasSubstr("-00001-of-00003.gguf"));
    save(0, shard(0, 1, kShards));  // another one under the first's name
    EXPECT_EQ(failure().code(), Code::invalid_argument);
    EXPECT_THAT(failure().to_string(), HasSubstr("shard 2 of 3"));
}

TEST_F(SplitTest, MustBeNamedAsShards) {
    std::filesystem::rename(path(0), directory_ / "m.gguf");
    EXPECT_EQ(File::open(Env::posix(), directory_ / "m.gguf").status().code(),
              Code::invalid_argument);
}

TEST_F(SplitTest, AMissingShardIsNamed) {
    std::filesystem::remove(path(2));
    EXPECT_EQ(failure().code(), Code::not_found);
    EXPECT_THAT(failure().to_string(), HasSubstr("m-00003-of-00003.gguf"));
}

TEST_F(SplitTest, ShardsMustBelongTogether) {
    save(1, shard(1, 2, kShards));  // another number
    EXPECT_THAT(failure().to_string(), HasSubstr("expected split.no = 1, found 2"));
    save(1, shard(1, 1, 4));  // another count
    EXPECT_THAT(failure().to_string(), HasSubstr("expected split.count = 3, found 4"));
    GgufWriter plain;
    save(1, plain.add_f32("t1", {4}, std::vector<float>(4)));  // no shard at all
    EXPECT_THAT(failure().to_string(), HasSubstr("expected split.no = 1, found none"));
    EXPECT_EQ(failure().code(), Code::corruption);
}

TEST_F(SplitTest, TensorsAreCountedAndUniqueOverAllShards) {
    const std::vector<float> values(4);
    save(1, shard(1).add_f32("extra", {4}, values));
    EXPECT_THAT(failure().to_string(), HasSubstr("split.tensors.count = 4, found 3"));
    GgufWriter twice;
    twice.set_u16("split.no", 1).set_u16("split.count", kShards).add_f32("t0", {4}, values);
    save(1, twice);
    EXPECT_THAT(failure().to_string(), HasSubstr("\"t0\" found twice"));
}

TEST_F(SplitTest, ADamagedShardIsNamed) {
    std::filesystem::resize_file(path(1), std::filesystem::file_size(path(1)) - 1);
    EXPECT_EQ(failure().code(), Code::corruption);
    EXPECT_THAT(failure().to_string(), HasSubstr("m-00002-of-00003.gguf"));
}

TEST_F(SplitTest, AHugeCountOnlyMeansAMissingShard) {
    GgufWriter writer;
    writer.set_u16("split.no", 0).set_u64("split.count", 99999);
    const auto first = directory_ / "h-00001-of-99999.gguf";
    ASSERT_TRUE(writer.save(first).is_ok());
    EXPECT_EQ(File::open(Env::posix(), first).status().code(), Code::not_found);
}

TEST_F(SplitTest, HasTheFingerprintOfTheWholeFile) {
    const auto split = std::move(File::open(Env::posix(), path(0))).value();
    GgufWriter writer;
    writer.set_string("general.architecture", "llama");
    for (std::uint16_t i = kShards; i-- > 0;) {  // another order
        const std::vector<float> values(4, static_cast<float>(i));
        writer.add_f32(fmt::format("t{}", i), {4}, values);
    }
    ASSERT_TRUE(writer.save(directory_ / "whole.gguf").is_ok());
    const auto whole = std::move(File::open(Env::posix(), directory_ / "whole.gguf")).value();
    EXPECT_EQ(compute_fingerprint(*split), compute_fingerprint(*whole));
}

}  // namespace
}  // namespace stet::gguf
