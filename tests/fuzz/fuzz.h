// What the fuzz targets share. Each target is one file with the entry function of libFuzzer; built
// without it, tests/fuzz/replay.cpp calls that function for kept inputs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/env.h"
#include "stet/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stet::fuzz {

// An invariant of what is fuzzed; a fuzzer keeps the input that breaks it.
inline void require(bool holds, const char* what, std::string_view detail = {}) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s: %s\n", what, std::string(detail.substr(0, 2000)).c_str());
    std::abort();
}

// Failures are for the input, never for us, and are said in one line.
inline void require_honest(const Status& status) {
    if (status) return;
    require(status.code() != Code::internal, "no internal error", status.to_string());
    require(!status.message().empty(), "a failure has a message");
    require(status.to_string().find('\n') == std::string::npos, "a message is one line",
            status.to_string());
}

// Takes an input apart from its front.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
    std::uint8_t byte() {
        if (bytes_.empty()) return 0;
        const std::uint8_t first = bytes_.front();
        bytes_ = bytes_.subspan(1);
        return first;
    }
    std::string_view text() const {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }
    std::span<const std::byte> bytes() const { return std::as_bytes(bytes_); }

  private:
    std::span<const std::uint8_t> bytes_;
};

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

}  // namespace stet::fuzz
