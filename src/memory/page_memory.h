// Where the bytes of pages lie. Large pages are cut out of chunks that the system is asked to back
// with huge pages: a fresh context of hundreds of megabytes then costs hundreds of page faults, not
// a hundred thousand, and attention over it misses the TLB less. What is given back goes to the
// system at once. Small pages come from malloc.
//
// Thread rules: may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace stet::memory {

class PageMemory {
  private:
    struct Chunk {
        std::byte* data = nullptr;
        std::unique_ptr<std::uint32_t[]> free_slots;  // the first `free_count` are numbers of slots
        std::uint32_t free_count = 0;
    };

  public:
    struct Place {
        std::byte* data = nullptr;  // null: the system has no more
        std::list<Chunk>::iterator chunk;
    };

    explicit PageMemory(std::size_t page_bytes);
    // Every page must have been given back.
    ~PageMemory();
    PageMemory(const PageMemory&) = delete;
    PageMemory& operator=(const PageMemory&) = delete;

    // A page, aligned to 64 bytes, of any content.
    Place take();
    void give_back(const Place& place) noexcept;

  private:
    bool add_chunk();

    std::size_t slot_bytes_;
    std::uint32_t chunk_slots_;  // 0: pages are small
    std::size_t chunk_bytes_ = 0;
    std::mutex mutex_;
    std::list<Chunk> chunks_;  // those with free slots first
};

}  // namespace stet::memory
