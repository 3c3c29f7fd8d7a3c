#include "memory/page_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace stet::memory {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and every vector unit
constexpr std::size_t kSystemPageBytes = 4096;
constexpr std::size_t kHugePageBytes = 2U << 20;
constexpr std::size_t kLargePageBytes = 256U << 10;
constexpr std::size_t kChunkBytes = 16U << 20;  // of address space; memory comes as it is touched

// A sanitizer sees the bounds of what malloc gave, and of nothing else.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasChunks = false;
#else
constexpr bool kHasChunks = true;
#endif

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
    return (value + to - 1) / to * to;
}

// Aligned to a huge page; null when there is no such stretch of addresses.
std::byte* map(std::size_t size_bytes) {
    void* const mapped = mmap(nullptr, size_bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(mapped);
    auto* const data = reinterpret_cast<std::byte*>(
        round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePageBytes));
    if (data != begin) munmap(begin, static_cast<std::size_t>(data - begin));
    const std::size_t after = static_cast<std::size_t>(begin + kHugePageBytes - data);
    if (after != 0) munmap(data + size_bytes, after);
    madvise(data, size_bytes, MADV_HUGEPAGE);  // where the system has such pages
    return data;
}

}  // namespace

PageMemory::PageMemory(std::size_t page_bytes)
    : slot_bytes_(round_up(std::max<std::size_t>(page_bytes, 1), kAlignment)), chunk_slots_(0) {
    if (!kHasChunks || page_bytes < kLargePageBytes) return;
    slot_bytes_ = round_up(page_bytes, kSystemPageBytes);
    chunk_slots_ = static_cast<std::uint32_t>(std::max<std::size_t>(1, kChunkBytes / slot_bytes_));
    chunk_bytes_ = round_up(slot_bytes_ * chunk_slots_, kHugePageBytes);
}

PageMemory::~PageMemory() {
    STET_CHECK(chunks_.empty());
}

bool PageMemory::add_chunk() {
    std::list<Chunk> added;
    try {
        Chunk& chunk = added.emplace_back();
        chunk.free_slots = std::make_unique<std::uint32_t[]>(chunk_slots_);
        chunk.data = map(chunk_bytes_);
        if (chunk.data == nullptr) return false;
        for (std::uint32_t i = 0; i < chunk_slots_; ++i) {
            chunk.free_slots[i] = chunk_slots_ - 1 - i;
        }
        chunk.free_count = chunk_slots_;
    } catch (const std::bad_alloc&) {
        return false;
    }
    chunks_.splice(chunks_.begin(), added);
    return true;
}

PageMemory::Place PageMemory::take() {
    if (chunk_slots_ == 0) {
        return {static_cast<std::byte*>(std::aligned_alloc(kAlignment, slot_bytes_)), {}};
    }
    const std::lock_guard lock(mutex_);
    const bool is_full = chunks_.empty() || chunks_.front().free_count == 0;
    if (is_full && !add_chunk()) return {};
    const auto chunk = chunks_.begin();
    const std::uint32_t slot = chunk->free_slots[--chunk->free_count];
    if (chunk->free_count == 0) chunks_.splice(chunks_.end(), chunks_, chunk);
    return {chunk->data + slot * slot_bytes_, chunk};
}

void PageMemory::give_back(const Place& place) noexcept {
    if (chunk_slots_ == 0) {
        std::free(place.data);
        return;
    }
    const std::lock_guard lock(mutex_);
    const auto chunk = place.chunk;
    const auto slot = static_cast<std::size_t>(place.data - chunk->data) / slot_bytes_;
    chunk->free_slots[chunk->free_count++] = static_cast<std::uint32_t>(slot);
    if (chunk->free_count == chunk_slots_) {
        munmap(chunk->data, chunk_bytes_);
        chunks_.erase(chunk);
        return;
    }
    madvise(place.data, slot_bytes_, MADV_DONTNEED);
    chunks_.splice(chunks_.begin(), chunks_, chunk);
}

}  // namespace stet::memory
