#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "gguf/gguf.h"
#include "support/fault_env.h"
#include "support/gguf_writer.h"
#include "support/temp_directory.h"

namespace stet::gguf {
namespace {

using namespace test;

GgufWriter model() {
    GgufWriter writer;
    writer.set_string("general.architecture", "llama").set_u32("llama.block_count", 1);
    writer.set_f32("llama.rope.freq_base", 10000.0f);
    writer.set_strings("tokenizer.ggml.tokens", {"a", "bc"});
    writer.set_i32s("tokenizer.ggml.token_type", {1, 2}).set_bool("x.flag", true);
    const std::vector<float> values(1024, 0.5f);
    writer.add_f32("a.weight", {32, 32}, values).add_f32("b.weight", {1024}, values);
    return writer;
}

class FingerprintTest : public testing::Test {
  protected:
    TempDirectory directory_;
    std::filesystem::path path_ = directory_ / "model.gguf";
    std::filesystem::path cache_ = directory_ / "cache";

    std::unique_ptr<File> open(const std::filesystem::path& path) {
        auto file = File::open(Env::posix(), path);
        EXPECT_TRUE(file.is_ok()) << file.status().to_string();
        return std::move(file).value();
    }
    Hash256 of(GgufWriter writer) {
        EXPECT_TRUE(writer.save(directory_ / "other.gguf").is_ok());
        return compute_fingerprint(*open(directory_ / "other.gguf"));
    }
    // As if it had been there for a while.
    void age(const std::filesystem::path& path) {
        std::filesystem::last_write_time(
            path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    }
    void save_aged() {
        ASSERT_TRUE(model().save(path_).is_ok());
        age(path_);
    }
    std::filesystem::path only_cache_file() {
        const auto names = Env::posix().list(cache_);
        EXPECT_TRUE(names.is_ok() && names->size() == 1);
        return cache_ / names->front();
    }
    // One weight changes behind the back of the cache: size, time and inode stay.
    void change_weight_silently() {
        const auto time = std::filesystem::last_write_time(path_);
        std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-1, std::ios::end);
        file.put('\x7f');
        file.close();
        std::filesystem::last_write_time(path_, time);
    }
};

// Pinned: stored sessions name their model by it, so a change of the recipe is a break.
TEST_F(FingerprintTest, IsStable) {
    EXPECT_EQ(of(model()).hex(),
              "232f882cd94ba8b8b25deadad0702ede7c86ee32ad9cac407d4ae8745aaf6e13");
}

TEST_F(FingerprintTest, RenamingAndMovingKeepIt) {
    ASSERT_TRUE(model().save(path_).is_ok());
    const Hash256 before = compute_fingerprint(*open(path_));
    ASSERT_TRUE(Env::posix().make_directory(directory_ / "d").is_ok());
    std::filesystem::rename(path_, directory_ / "d" / "renamed.gguf");
    EXPECT_EQ(compute_fingerprint(*open(directory_ / "d" / "renamed.gguf")), before);
}

TEST_F(FingerprintTest, WhatDoesNotChangeResultsKeepsIt) {
    const Hash256 before = of(model());
    const char* keys[] = {"general.name",         "general.author",
                          "general.license.link", "general.base_model.0.name",
                          "general.quantized_by", "tokenizer.chat_template",
                          "general.source.url",   "tokenizer.chat_template.tool_use"};
    for (const char* key : keys) EXPECT_EQ(of(model().set_string(key, "x")), before) << key;
    EXPECT_EQ(of(model().set_u32("general.file_type", 7)), before);
    EXPECT_EQ(of(model().set_u32("general.quantization_version", 2)), before);
    EXPECT_EQ(of(model().set_u32("general.alignment", 256).set_alignment(256)), before);
}

TEST_F(FingerprintTest, EveryWeightBitChangesIt) {
    GgufWriter writer = model();
    const std::vector<std::byte> bytes = writer.bytes();
    const Hash256 before = of(model());
    for (const std::size_t offset : {std::size_t{1}, std::size_t{2000}, std::size_t{4096}}) {
        std::vector<std::byte> changed = bytes;
        changed[changed.size() - offset] ^= std::byte{0x10};
        ASSERT_TRUE(replace_file(Env::posix(), path_, changed).is_ok());
        EXPECT_NE(compute_fingerprint(*open(path_)), before) << offset;
    }
}

TEST_F(FingerprintTest, WhatChangesResultsChangesIt) {
    std::vector<Hash256> all = {of(model())};
    const std::vector<float> values(1024, 0.5f);
    all.push_back(of(model().set_u32("llama.expert_count", 8)));
    all.push_back(of(model().set_u32("llama.expert_count", 9)));
    all.push_back(of(model().set_strings("tokenizer.ggml.merges", {"a bc"})));
    all.push_back(of(model().set_strings("tokenizer.ggml.merges", {"a b", "c"})));
    all.push_back(of(model().set_f32("x", 1.0f)));
    all.push_back(of(model().set_f32("x", -0.0f)));
    all.push_back(of(model().set_f32("x", 0.0f)));
    all.push_back(of(model().set_i32("x", -1)));
    all.push_back(of(model().set_bool("x", true)));
    all.push_back(of(model().set_u32("x", 1)));
    all.push_back(of(model().set_string("x", "1")));
    all.push_back(of(model().add_f32("c.weight", {1024}, values)));
    all.push_back(of(model().add_f32("c.weight", {512, 2}, values)));
    all.push_back(of(model().add_f32("d.weight", {1024}, values)));
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST_F(FingerprintTest, IsRemembered) {
    save_aged();
    const Hash256 before = *fingerprint(Env::posix(), *open(path_), cache_);
    EXPECT_EQ(before, compute_fingerprint(*open(path_)));
    change_weight_silently();
    ASSERT_NE(before, compute_fingerprint(*open(path_)));
    EXPECT_EQ(*fingerprint(Env::posix(), *open(path_), cache_), before);
}

TEST_F(FingerprintTest, IsForgottenWhenTheFileChanged) {
    save_aged();
    const Hash256 before = *fingerprint(Env::posix(), *open(path_), cache_);
    change_weight_silently();
    std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now());
    const Hash256 after = *fingerprint(Env::posix(), *open(path_), cache_);
    EXPECT_NE(after, before);
    EXPECT_EQ(after, compute_fingerprint(*open(path_)));
}

TEST_F(FingerprintTest, IsNotRememberedForAFileJustWritten) {
    ASSERT_TRUE(model().save(path_).is_ok());
    std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now());
    EXPECT_TRUE(fingerprint(Env::posix(), *open(path_), cache_).is_ok());
    EXPECT_EQ(Env::posix().info(cache_).status().code(), Code::not_found);
}

TEST_F(FingerprintTest, IsNotRememberedForAFileReplacedMeanwhile) {
    ASSERT_TRUE(model().set_u32("llama.expert_count", 7).save(path_).is_ok());
    age(path_);
    const auto opened = open(path_);
    const Hash256 old = compute_fingerprint(*opened);
    GgufWriter other = model().set_u32("llama.expert_count", 8);  // of the same size
    const auto bytes = other.bytes();
    ASSERT_TRUE(replace_file(Env::posix(), path_, bytes).is_ok());
    age(path_);
    EXPECT_EQ(*fingerprint(Env::posix(), *opened, cache_), old);  // of what is mapped
    EXPECT_EQ(Env::posix().info(cache_).status().code(), Code::not_found);
    EXPECT_NE(*fingerprint(Env::posix(), *open(path_), cache_), old);
}

TEST_F(FingerprintTest, ADamagedCacheIsIgnoredAndMended) {
    save_aged();
    FaultEnv env;  // for its speed: it doesn't wait for the disk
    const Hash256 good = *fingerprint(env, *open(path_), cache_);
    const auto entry = only_cache_file();
    const auto bytes = *read_file(Env::posix(), entry, 1 << 16);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::vector<std::byte> damaged = bytes;
        damaged[i] ^= std::byte{1};
        std::ofstream(entry, std::ios::binary)
            .write(reinterpret_cast<const char*>(damaged.data()),
                   static_cast<std::streamsize>(damaged.size()));
        ASSERT_EQ(*fingerprint(env, *open(path_), cache_), good) << i;
        ASSERT_EQ(*read_file(Env::posix(), entry, 1 << 16), bytes) << i;
    }
    std::filesystem::resize_file(entry, 3);
    EXPECT_EQ(*fingerprint(env, *open(path_), cache_), good);
}

TEST_F(FingerprintTest, WorksWithoutACache) {
    save_aged();
    const Hash256 good = compute_fingerprint(*open(path_));
    FaultEnv env;
    env.fail_call({.ops = kAnyOp, .code = Code::resource_exhausted, .sticky = true});
    EXPECT_EQ(*fingerprint(env, *open(path_), cache_), good);
    std::ofstream(directory_ / "file") << "in the way";
    EXPECT_EQ(*fingerprint(Env::posix(), *open(path_), directory_ / "file"), good);
}

}  // namespace
}  // namespace stet::gguf
