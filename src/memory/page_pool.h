// Pages of a schema: reference counted, bounded in bytes, cleared before reuse. A row of a page is
// written once, by whoever claimed it; values that share the page see only the rows they count.
//
// Thread rules: a PagePool and a claim may be used from any thread. Rows may be read from any
// thread that counts them, and written only by the thread that claimed them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/page_memory.h"
#include "memory/schema.h"
#include "stet/status.h"

namespace stet::memory {

class PagePool;

// Handle to one reference of a page (or of a fixed group's block). Null when default constructed.
class PageRef {
  public:
    PageRef() = default;
    PageRef(const PageRef& other);
    PageRef(PageRef&& other) noexcept : page_(other.page_) { other.page_ = nullptr; }
    PageRef& operator=(PageRef other) noexcept {
        std::swap(page_, other.page_);
        return *this;
    }
    ~PageRef();

    explicit operator bool() const { return page_ != nullptr; }
    bool operator==(const PageRef&) const = default;  // the same page
    std::span<const std::byte> data() const;
    // For rows that the caller claimed (a whole fixed block: by being its only holder).
    std::span<std::byte> writable_data();
    bool is_unique() const;
    std::size_t group() const;                      // of the schema, that it was allocated for
    const PagePool* pool() const;                   // that it came from
    const void* identity() const { return page_; }  // equal iff the same page

    // Takes rows [from, to) of the page for writing. False when rows past `from` were claimed by
    // somebody else before: then the caller appends to a copy.
    bool claim(std::uint32_t from, std::uint32_t to);
    // Gives a claim back that was not committed, if nobody claimed more since.
    void unclaim(std::uint32_t from, std::uint32_t to);

  private:
    friend class PagePool;
    struct Page;
    explicit PageRef(Page* page) : page_(page) {}
    Page* page_ = nullptr;
};

struct PoolStats {
    std::uint64_t bytes_in_use = 0;
    std::uint64_t bytes_limit = 0;
    std::uint64_t pages_in_use = 0;
};

class PagePool {
  public:
    // `limit_bytes` is a hard bound on the pages in use together. Free pages are returned to the
    // system past a small reserve; of blocks as many are kept as are in use, because every step
    // takes new ones and gives the old ones back, but no more than the limit leaves. Every PageRef
    // must be gone before the pool is destroyed.
    PagePool(const Schema& schema, std::uint64_t limit_bytes);
    ~PagePool();
    PagePool(const PagePool&) = delete;
    PagePool& operator=(const PagePool&) = delete;

    // A page of group `group`, zeroed. resource_exhausted at the limit.
    Result<PageRef> allocate(std::size_t group);
    // The same with any content: for who writes every byte of it before anybody else sees it.
    Result<PageRef> allocate_unfilled(std::size_t group);
    // A new page with the first `rows` rows of every plane copied and claimed (a fixed group's
    // block is copied whole).
    Result<PageRef> copy(std::size_t group, const PageRef& source, std::uint32_t rows);

    const Schema& schema() const { return schema_; }
    PoolStats stats() const;

    // Fill freed and new pages with a pattern instead of zeroes, so that a test sees any read of a
    // row that was never written.
    void set_poison(std::optional<std::byte> pattern);

  private:
    friend class PageRef;
    // The free pages of a group, linked: a page that goes back must not need memory for it.
    struct GroupPages {
        explicit GroupPages(std::size_t page_bytes) : memory(page_bytes) {}
        PageMemory memory;
        PageRef::Page* free = nullptr;
        std::uint64_t free_bytes = 0;
        std::uint64_t bytes_in_use = 0;
    };

    void release(PageRef::Page* page);
    Status take_bytes(std::size_t group);
    PageRef::Page* take_free(std::size_t group);
    PageRef::Page* take_surplus();
    PageRef::Page* make_page(std::size_t group);
    static void destroy(PageRef::Page* page) noexcept;

    Schema schema_;
    const std::uint64_t limit_bytes_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<GroupPages>> groups_;
    std::uint64_t bytes_in_use_ = 0;
    std::uint64_t pages_in_use_ = 0;
    std::uint64_t free_bytes_ = 0;
    std::optional<std::byte> poison_;
};

}  // namespace stet::memory
