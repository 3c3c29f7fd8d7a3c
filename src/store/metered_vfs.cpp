#include "store/metered_vfs.h"

#include <fmt/format.h>

#include <atomic>

namespace stet::store {

struct MeteredVfs::Handle {
    enum class Role : std::uint8_t { catalogue, log, other };
    sqlite3_file base;
    sqlite3_file* real;  // lies behind this
    DiskBudget* budget;
    Role role;
};

struct MeteredVfs::Calls {
    static Handle& handle(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }
    static sqlite3_file* real(sqlite3_file* file) { return handle(file).real; }
    static const sqlite3_io_methods& methods(sqlite3_file* file) { return *real(file)->pMethods; }

    static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
        auto& self = *static_cast<Vfs*>(vfs);
        Handle& opened = handle(file);
        opened.base.pMethods = nullptr;
        opened.real = reinterpret_cast<sqlite3_file*>(&opened + 1);
        opened.real->pMethods = nullptr;
        opened.budget = self.budget;
        opened.role = (flags & SQLITE_OPEN_MAIN_DB) != 0 ? Handle::Role::catalogue
                      : (flags & SQLITE_OPEN_WAL) != 0   ? Handle::Role::log
                                                         : Handle::Role::other;
        const int code = self.base->xOpen(self.base, name, opened.real, flags, out);
        // SQLite closes whatever has methods, whether or not opening it worked.
        if (opened.real->pMethods != nullptr) opened.base.pMethods = table();
        if (code != SQLITE_OK) return code;
        sqlite3_int64 size = 0;
        if (opened.role == Handle::Role::other) return code;
        if (const int sized = methods(file).xFileSize(opened.real, &size)) return sized;
        note_size(opened, size);
        return code;
    }
    static void note_size(Handle& file, sqlite3_int64 size) {
        const auto bytes = static_cast<std::uint64_t>(size);
        if (file.role == Handle::Role::catalogue) file.budget->set_catalogue_size(bytes);
        if (file.role == Handle::Role::log) file.budget->set_log_size(bytes);
    }
    static int remove(sqlite3_vfs* vfs, const char* name, int sync) {
        sqlite3_vfs* base = static_cast<Vfs*>(vfs)->base;
        return base->xDelete(base, name, sync);
    }

    static int close(sqlite3_file* file) { return methods(file).xClose(real(file)); }
    static int read(sqlite3_file* file, void* data, int size, sqlite3_int64 at) {
        return methods(file).xRead(real(file), data, size, at);
    }
    static int write(sqlite3_file* file, const void* data, int size, sqlite3_int64 at) {
        const Handle& to = handle(file);
        const auto begin = static_cast<std::uint64_t>(at);
        const std::uint64_t end = begin + static_cast<std::uint64_t>(size);
        if (to.role == Handle::Role::log && !to.budget->write_log(begin, end)) return SQLITE_FULL;
        if (to.role == Handle::Role::catalogue) to.budget->grow_catalogue(end);
        return methods(file).xWrite(real(file), data, size, at);
    }
    static int truncate(sqlite3_file* file, sqlite3_int64 size) {
        const int code = methods(file).xTruncate(real(file), size);
        if (code == SQLITE_OK) note_size(handle(file), size);
        return code;
    }
    static int sync(sqlite3_file* file, int flags) {
        handle(file).budget->count_sync();
        return methods(file).xSync(real(file), flags);
    }
    static int file_size(sqlite3_file* file, sqlite3_int64* size) {
        return methods(file).xFileSize(real(file), size);
    }
    static int lock(sqlite3_file* file, int level) {
        return methods(file).xLock(real(file), level);
    }
    static int unlock(sqlite3_file* file, int level) {
        return methods(file).xUnlock(real(file), level);
    }
    static int check_lock(sqlite3_file* file, int* out) {
        return methods(file).xCheckReservedLock(real(file), out);
    }
    static int control(sqlite3_file* file, int op, void* argument) {
        return methods(file).xFileControl(real(file), op, argument);
    }
    static int sector_size(sqlite3_file* file) { return methods(file).xSectorSize(real(file)); }
    static int characteristics(sqlite3_file* file) {
        return methods(file).xDeviceCharacteristics(real(file));
    }
    static int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
        const int code = methods(file).xShmMap(real(file), page, size, extend, out);
        if (code == SQLITE_OK && extend != 0) {
            handle(file).budget->grow_shared(static_cast<std::uint64_t>(page + 1) *
                                             static_cast<std::uint64_t>(size));
        }
        return code;
    }
    static int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
        return methods(file).xShmLock(real(file), offset, count, flags);
    }
    static void shm_barrier(sqlite3_file* file) { methods(file).xShmBarrier(real(file)); }
    static int shm_unmap(sqlite3_file* file, int remove_it) {
        return methods(file).xShmUnmap(real(file), remove_it);
    }

    static const sqlite3_io_methods* table() {
        static const sqlite3_io_methods kTable = {2,
                                                  close,
                                                  read,
                                                  write,
                                                  truncate,
                                                  sync,
                                                  file_size,
                                                  lock,
                                                  unlock,
                                                  check_lock,
                                                  control,
                                                  sector_size,
                                                  characteristics,
                                                  shm_map,
                                                  shm_lock,
                                                  shm_barrier,
                                                  shm_unmap,
                                                  nullptr,
                                                  nullptr};
        return &kTable;
    }
};

MeteredVfs::MeteredVfs(DiskBudget& budget) {
    static std::atomic<std::uint64_t> count{0};
    name_ = fmt::format("stet-metered-{}", ++count);
    sqlite3_vfs* base = sqlite3_vfs_find(nullptr);
    static_cast<sqlite3_vfs&>(vfs_) = *base;
    vfs_.base = base;
    vfs_.budget = &budget;
    vfs_.pNext = nullptr;
    vfs_.zName = name_.c_str();
    vfs_.szOsFile += static_cast<int>(sizeof(Handle));
    vfs_.xOpen = Calls::open;
    vfs_.xDelete = Calls::remove;
    sqlite3_vfs_register(&vfs_, 0);
}

MeteredVfs::~MeteredVfs() {
    sqlite3_vfs_unregister(&vfs_);
}

}  // namespace stet::store
