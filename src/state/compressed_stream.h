// A run of bytes compressed with zstd, written and read a piece at a time.
#pragma once

#include <memory>

#include "base/env.h"
#include "state/stream.h"
#include "stet/status.h"

namespace stet::state {

// Compresses what is written to it into another sink; finish() writes the end.
class CompressingSink final : public Sink {
  public:
    explicit CompressingSink(Sink& sink);
    ~CompressingSink() override;
    Status write(std::span<const std::byte> data) override;
    Status finish();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Reads what a CompressingSink wrote, from `source`. left() is unknown: what the compressed bytes
// claim to become is believed only as it comes.
class DecompressingSource final : public Source {
  public:
    // `source` says how much is left.
    explicit DecompressingSource(Source& source);
    ~DecompressingSource() override;
    Status read(std::span<std::byte> data) override;
    // corruption unless everything was read.
    Status finish();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace stet::state
