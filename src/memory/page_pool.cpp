#include "memory/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"

namespace stet::memory {
namespace {

constexpr std::size_t kPageAlignment = 64;          // a cache line, and every vector unit
constexpr std::uint64_t kReserveBytes = 16U << 20;  // free pages kept for reuse, all groups

}  // namespace

struct PageRef::Page {
    PagePool* pool;
    std::size_t group;
    std::size_t size_bytes;
    std::atomic<std::uint32_t> references{1};
    std::atomic<std::uint32_t> claimed_rows{0};
    std::byte* data;
    bool is_poisoned;
    Page* next;  // in the pool's list of free pages
};

PageRef::PageRef(const PageRef& other) : page_(other.page_) {
    if (page_) page_->references.fetch_add(1, std::memory_order_relaxed);
}

PageRef::~PageRef() {
    if (page_ && page_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        page_->pool->release(page_);
    }
}

std::span<const std::byte> PageRef::data() const {
    return {page_->data, page_->size_bytes};
}

std::span<std::byte> PageRef::writable_data() {
    return {page_->data, page_->size_bytes};
}

bool PageRef::claim(std::uint32_t from, std::uint32_t to) {
    STET_CHECK(from <= to && to <= kPageRows);
    return page_->claimed_rows.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

void PageRef::unclaim(std::uint32_t from, std::uint32_t to) {
    page_->claimed_rows.compare_exchange_strong(to, from, std::memory_order_acq_rel);
}

bool PageRef::is_unique() const {
    return page_ && page_->references.load(std::memory_order_acquire) == 1;
}

std::size_t PageRef::group() const {
    return page_->group;
}

const PagePool* PageRef::pool() const {
    return page_->pool;
}

PagePool::PagePool(const Schema& schema, std::uint64_t limit_bytes)
    : schema_(schema), limit_bytes_(limit_bytes), free_(schema.groups.size()) {}

PagePool::~PagePool() {
    STET_CHECK(pages_in_use_ == 0);
    for (PageRef::Page* page : free_) {
        while (page != nullptr) {
            PageRef::Page* const next = page->next;
            std::free(page->data);
            delete page;
            page = next;
        }
    }
}

Result<PageRef> PagePool::allocate(std::size_t group) {
    Result<PageRef> page = allocate_unfilled(group);
    // A poisoned pool has filled it.
    if (page && !page->page_->is_poisoned) {
        std::memset(page->page_->data, 0, page->page_->size_bytes);
    }
    return page;
}

Result<PageRef> PagePool::allocate_unfilled(std::size_t group) {
    const std::uint64_t size = schema_.groups[group].page_bytes();
    PageRef::Page* page = nullptr;
    std::optional<std::byte> poison;
    {
        const std::lock_guard lock(mutex_);
        if (size > limit_bytes_ - std::min(limit_bytes_, bytes_in_use_)) {
            return Status(
                Code::resource_exhausted,
                fmt::format("state memory is full: {} of {} bytes are in use, a page of "
                            "group '{}' needs {}; raise the limit or close a session",
                            bytes_in_use_, limit_bytes_, schema_.groups[group].name, size));
        }
        bytes_in_use_ += size;
        ++pages_in_use_;
        poison = poison_;
        if (free_[group] != nullptr) {
            page = free_[group];
            free_[group] = page->next;
            free_bytes_ -= size;
        }
    }
    if (page == nullptr) {
        const std::size_t padded = (size + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
        auto* data = static_cast<std::byte*>(std::aligned_alloc(kPageAlignment, padded));
        if (data != nullptr) {
            page = new (std::nothrow) PageRef::Page{this, group, size, 1, 0, data, false, nullptr};
        }
        if (page == nullptr) {
            std::free(data);
            const std::lock_guard lock(mutex_);
            bytes_in_use_ -= size;
            --pages_in_use_;
            return Status(Code::resource_exhausted,
                          fmt::format("the system has no {} bytes for a page of state", size));
        }
    }
    page->references.store(1, std::memory_order_relaxed);
    page->claimed_rows.store(0, std::memory_order_relaxed);
    page->is_poisoned = poison.has_value();
    if (poison) std::memset(page->data, std::to_integer<int>(*poison), size);
    return PageRef(page);
}

Result<PageRef> PagePool::copy(std::size_t group, const PageRef& source, std::uint32_t rows) {
    Result<PageRef> copied = allocate(group);
    if (!copied) return copied;
    const Group& shape = schema_.groups[group];
    std::byte* to = copied->page_->data;
    const std::byte* from = source.page_->data;
    if (!shape.is_paged()) {
        std::memcpy(to, from, source.page_->size_bytes);
        return copied;
    }
    for (std::size_t plane = 0; plane < shape.planes.size(); ++plane) {
        const std::uint64_t offset = shape.plane_offset(plane);
        std::memcpy(to + offset, from + offset, rows * shape.planes[plane].row_bytes);
    }
    copied->page_->claimed_rows.store(rows, std::memory_order_relaxed);
    return copied;
}

void PagePool::release(PageRef::Page* page) {
    {
        const std::lock_guard lock(mutex_);
        bytes_in_use_ -= page->size_bytes;
        --pages_in_use_;
        if (poison_) std::memset(page->data, std::to_integer<int>(*poison_), page->size_bytes);
        if (free_bytes_ + page->size_bytes <= kReserveBytes) {
            page->next = free_[page->group];
            free_[page->group] = page;
            free_bytes_ += page->size_bytes;
            return;
        }
    }
    std::free(page->data);
    delete page;
}

PoolStats PagePool::stats() const {
    const std::lock_guard lock(mutex_);
    return {bytes_in_use_, limit_bytes_, pages_in_use_};
}

void PagePool::set_poison(std::optional<std::byte> pattern) {
    const std::lock_guard lock(mutex_);
    poison_ = pattern;
}

}  // namespace stet::memory
