// A world of one file, which is in memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace stet::test {

// Every file has the same bytes and can only be read.
class MemoryEnv final : public Env {
  public:
    explicit MemoryEnv(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

    Result<std::unique_ptr<Mapping>> map(const Path&) override {
        return std::unique_ptr<Mapping>(std::make_unique<View>(bytes_));
    }
    Result<FileInfo> info(const Path&) override {
        FileInfo info;
        info.size_bytes = bytes_.size();
        return info;
    }
    Result<std::unique_ptr<File>> open(const Path&, OpenMode) override { return no(); }
    Result<std::vector<std::string>> list(const Path&) override { return no(); }
    Status make_directory(const Path&) override { return no(); }
    Status rename(const Path&, const Path&) override { return no(); }
    Status remove(const Path&) override { return no(); }
    Status sync_directory(const Path&) override { return no(); }
    Result<std::unique_ptr<FileLock>> lock(const Path&) override { return no(); }
    Result<std::uint64_t> free_bytes(const Path&) override { return no(); }
    std::chrono::system_clock::time_point now() override { return {}; }
    std::chrono::steady_clock::time_point steady_now() override { return {}; }

  private:
    class View final : public Mapping {
      public:
        explicit View(std::span<const std::byte> bytes) : bytes_(bytes) {}
        std::span<const std::byte> bytes() const override { return bytes_; }

      private:
        std::span<const std::byte> bytes_;
    };
    static Status no() { return {Code::unimplemented, "a file in memory can only be mapped"}; }

    std::vector<std::byte> bytes_;
};

}  // namespace stet::test
