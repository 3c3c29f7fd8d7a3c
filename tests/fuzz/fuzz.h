// What the fuzz targets share. Each target is one file with the entry function of libFuzzer; built
// without it, tests/fuzz/replay.cpp calls that function for kept inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace stet::fuzz
