// f32 memory on a cache line boundary, zeroed, for kernels to work in. Grows by more than asked, as
// sequences do, and is kept.
#pragma once

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace stet::exec {

class AlignedFloats {
  public:
    void require(std::uint64_t count) {
        if (count <= size_) return;
        size_ = count + count / 2;
        data_ = hwy::AllocateAligned<float>(size_);
        STET_CHECK(data_ != nullptr);
        std::fill(data_.get(), data_.get() + size_, 0.0F);
    }
    float* data() const { return data_.get(); }

  private:
    hwy::AlignedFreeUniquePtr<float[]> data_;
    std::uint64_t size_ = 0;
};

}  // namespace stet::exec
