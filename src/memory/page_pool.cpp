#include "memory/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/try.h"

namespace stet::memory {
namespace {

constexpr std::uint64_t kReserveBytes = 16U << 20;  // free pages kept for reuse, all groups

}  // namespace

struct PageRef::Page {
    PagePool* pool;
    PageMemory* memory;
    PageMemory::Place place;
    std::size_t group;
    std::size_t size_bytes;
    std::atomic<std::uint32_t> references{1};
    std::atomic<std::uint32_t> claimed_rows{0};
    bool is_poisoned;
    Page* next;  // in the pool's list of free pages

    std::byte* data() const { return place.data; }
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
    return {page_->data(), page_->size_bytes};
}

std::span<std::byte> PageRef::writable_data() {
    return {page_->data(), page_->size_bytes};
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
    : schema_(schema), limit_bytes_(limit_bytes) {
    for (const Group& group : schema.groups) {
        groups_.push_back(std::make_unique<GroupPages>(group.page_bytes()));
    }
}

PagePool::~PagePool() {
    STET_CHECK(pages_in_use_ == 0);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        while (PageRef::Page* page = take_free(g)) destroy(page);
    }
}

Result<PageRef> PagePool::allocate(std::size_t group) {
    Result<PageRef> page = allocate_unfilled(group);
    // A poisoned pool has filled it.
    if (page && !page->page_->is_poisoned) {
        std::memset(page->page_->data(), 0, page->page_->size_bytes);
    }
    return page;
}

Result<PageRef> PagePool::allocate_unfilled(std::size_t group) {
    PageRef::Page* page = nullptr;
    std::optional<std::byte> poison;
    {
        const std::lock_guard lock(mutex_);
        STET_TRY(take_bytes(group));
        poison = poison_;
        page = take_free(group);
    }
    if (page == nullptr) page = make_page(group);
    if (page == nullptr) {
        const std::uint64_t size = schema_.groups[group].page_bytes();
        const std::lock_guard lock(mutex_);
        bytes_in_use_ -= size;
        groups_[group]->bytes_in_use -= size;
        --pages_in_use_;
        return Status(Code::resource_exhausted,
                      fmt::format("the system has no {} bytes for a page of state", size));
    }
    page->references.store(1, std::memory_order_relaxed);
    page->claimed_rows.store(0, std::memory_order_relaxed);
    page->is_poisoned = poison.has_value();
    if (poison) std::memset(page->data(), std::to_integer<int>(*poison), page->size_bytes);
    return PageRef(page);
}

// Under the mutex.
Status PagePool::take_bytes(std::size_t group) {
    const std::uint64_t size = schema_.groups[group].page_bytes();
    if (size > limit_bytes_ - std::min(limit_bytes_, bytes_in_use_)) {
        return Status(Code::resource_exhausted,
                      fmt::format("state memory is full: {} of {} bytes are in use, a page of "
                                  "group '{}' needs {}; raise the limit or close a session",
                                  bytes_in_use_, limit_bytes_, schema_.groups[group].name, size));
    }
    bytes_in_use_ += size;
    groups_[group]->bytes_in_use += size;
    ++pages_in_use_;
    return {};
}

// Under the mutex.
PageRef::Page* PagePool::take_free(std::size_t group) {
    GroupPages& from = *groups_[group];
    PageRef::Page* const page = from.free;
    if (page == nullptr) return nullptr;
    from.free = page->next;
    from.free_bytes -= page->size_bytes;
    free_bytes_ -= page->size_bytes;
    return page;
}

// A free page that is not worth keeping; under the mutex.
PageRef::Page* PagePool::take_surplus() {
    if (free_bytes_ <= kReserveBytes) return nullptr;
    const bool is_over = free_bytes_ > limit_bytes_ - std::min(limit_bytes_, bytes_in_use_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const GroupPages& group = *groups_[g];
        const bool is_kept =
            !is_over && !schema_.groups[g].is_paged() && group.free_bytes <= group.bytes_in_use;
        if (group.free != nullptr && !is_kept) return take_free(g);
    }
    return nullptr;
}

PageRef::Page* PagePool::make_page(std::size_t group) {
    PageMemory& memory = groups_[group]->memory;
    const PageMemory::Place place = memory.take();
    if (place.data == nullptr) return nullptr;
    auto* const page = new (std::nothrow) PageRef::Page{
        this, &memory, place, group, schema_.groups[group].page_bytes(), 1, 0, false, nullptr};
    if (page == nullptr) memory.give_back(place);
    return page;
}

void PagePool::destroy(PageRef::Page* page) noexcept {
    page->memory->give_back(page->place);
    delete page;
}

Result<PageRef> PagePool::copy(std::size_t group, const PageRef& source, std::uint32_t rows) {
    Result<PageRef> copied = allocate(group);
    if (!copied) return copied;
    const Group& shape = schema_.groups[group];
    std::byte* to = copied->page_->data();
    const std::byte* from = source.page_->data();
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
    PageRef::Page* surplus = nullptr;  // linked
    {
        const std::lock_guard lock(mutex_);
        GroupPages& group = *groups_[page->group];
        bytes_in_use_ -= page->size_bytes;
        group.bytes_in_use -= page->size_bytes;
        --pages_in_use_;
        if (poison_) std::memset(page->data(), std::to_integer<int>(*poison_), page->size_bytes);
        page->next = std::exchange(group.free, page);
        group.free_bytes += page->size_bytes;
        free_bytes_ += page->size_bytes;
        while (PageRef::Page* more = take_surplus()) more->next = std::exchange(surplus, more);
    }
    while (surplus != nullptr) destroy(std::exchange(surplus, surplus->next));
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
