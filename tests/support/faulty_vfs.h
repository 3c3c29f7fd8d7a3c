// SQLite's own I/O, failing on demand: a VFS over the default one, in the way of every database
// that is opened while it exists.
//
// Thread rules: one at a time, one thread.
#pragma once

#include <sqlite3.h>

#include <cstdint>

namespace stet::test {

class FaultyVfs {
  public:
    FaultyVfs() {
        current() = this;
        base_ = sqlite3_vfs_find(nullptr);
        vfs_ = *base_;
        vfs_.zName = "stet-faulty";
        vfs_.szOsFile += static_cast<int>(sizeof(Handle));
        vfs_.xOpen = open;
        vfs_.xDelete = remove;
        sqlite3_vfs_register(&vfs_, 1);
    }
    // Every database must be closed.
    ~FaultyVfs() {
        sqlite3_vfs_unregister(&vfs_);
        sqlite3_vfs_register(base_, 1);
        current() = nullptr;
    }
    FaultyVfs(const FaultyVfs&) = delete;
    FaultyVfs& operator=(const FaultyVfs&) = delete;

    // The index-th call from now on fails with an I/O error of its kind, or, where it writes, as a
    // full disk; and every call after it, if sticky.
    void fail_call(std::uint64_t index, bool as_full, bool sticky) {
        calls_ = 0;
        faults_ = 0;
        is_armed_ = true;
        index_ = index;
        as_full_ = as_full;
        is_sticky_ = sticky;
    }
    void clear() { is_armed_ = false; }
    std::uint64_t fault_count() const { return faults_; }
    std::uint64_t sync_count() const { return syncs_; }  // since it exists

  private:
    struct Handle {
        sqlite3_file base;
        sqlite3_file* real;
    };

    static FaultyVfs*& current() {
        static FaultyVfs* instance = nullptr;
        return instance;
    }
    static sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<Handle*>(file)->real; }

    // `code` if this call is to fail, else ok.
    static int enter(int code, bool is_write = false) {
        FaultyVfs& self = *current();
        const std::uint64_t call = self.calls_++;
        const bool fires =
            self.is_armed_ && (call == self.index_ || (self.is_sticky_ && call > self.index_));
        if (!fires) return SQLITE_OK;
        ++self.faults_;
        return is_write && self.as_full_ ? SQLITE_FULL : code;
    }

    static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
        file->pMethods = nullptr;
        if (const int code = enter(SQLITE_CANTOPEN)) return code;
        auto* handle = reinterpret_cast<Handle*>(file);
        handle->real = reinterpret_cast<sqlite3_file*>(handle + 1);
        sqlite3_vfs* base = current()->base_;
        const int code = base->xOpen(base, name, handle->real, flags, out);
        if (code == SQLITE_OK) file->pMethods = methods();
        return code;
    }
    static int remove(sqlite3_vfs*, const char* name, int sync) {
        if (const int code = enter(SQLITE_IOERR_DELETE)) return code;
        sqlite3_vfs* base = current()->base_;
        return base->xDelete(base, name, sync);
    }

    static int close(sqlite3_file* file) { return real(file)->pMethods->xClose(real(file)); }
    static int read(sqlite3_file* file, void* data, int size, sqlite3_int64 at) {
        const int code = enter(SQLITE_IOERR_READ);
        return code ? code : real(file)->pMethods->xRead(real(file), data, size, at);
    }
    static int write(sqlite3_file* file, const void* data, int size, sqlite3_int64 at) {
        if (const int code = enter(SQLITE_IOERR_WRITE, true)) {
            real(file)->pMethods->xWrite(real(file), data, size / 2, at);  // as far as it got
            return code;
        }
        return real(file)->pMethods->xWrite(real(file), data, size, at);
    }
    static int truncate(sqlite3_file* file, sqlite3_int64 size) {
        const int code = enter(SQLITE_IOERR_TRUNCATE);
        return code ? code : real(file)->pMethods->xTruncate(real(file), size);
    }
    static int sync(sqlite3_file* file, int flags) {
        ++current()->syncs_;
        const int code = enter(SQLITE_IOERR_FSYNC);
        return code ? code : real(file)->pMethods->xSync(real(file), flags);
    }
    static int file_size(sqlite3_file* file, sqlite3_int64* size) {
        const int code = enter(SQLITE_IOERR_FSTAT);
        return code ? code : real(file)->pMethods->xFileSize(real(file), size);
    }
    static int lock(sqlite3_file* file, int level) {
        const int code = enter(SQLITE_IOERR_LOCK);
        return code ? code : real(file)->pMethods->xLock(real(file), level);
    }
    static int unlock(sqlite3_file* file, int level) {
        return real(file)->pMethods->xUnlock(real(file), level);
    }
    static int check_lock(sqlite3_file* file, int* out) {
        return real(file)->pMethods->xCheckReservedLock(real(file), out);
    }
    static int control(sqlite3_file* file, int op, void* argument) {
        return real(file)->pMethods->xFileControl(real(file), op, argument);
    }
    static int sector_size(sqlite3_file* file) {
        return real(file)->pMethods->xSectorSize(real(file));
    }
    static int characteristics(sqlite3_file* file) {
        return real(file)->pMethods->xDeviceCharacteristics(real(file));
    }
    static int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
        const int code = enter(SQLITE_IOERR_SHMMAP);
        return code ? code : real(file)->pMethods->xShmMap(real(file), page, size, extend, out);
    }
    static int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
        return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
    }
    static void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
    static int shm_unmap(sqlite3_file* file, int remove_it) {
        return real(file)->pMethods->xShmUnmap(real(file), remove_it);
    }

    static const sqlite3_io_methods* methods() {
        static const sqlite3_io_methods table = {2,
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
        return &table;
    }

    sqlite3_vfs* base_ = nullptr;
    sqlite3_vfs vfs_{};
    bool is_armed_ = false;
    bool as_full_ = false;
    bool is_sticky_ = false;
    std::uint64_t index_ = 0;
    std::uint64_t calls_ = 0;
    std::uint64_t faults_ = 0;
    std::uint64_t syncs_ = 0;
};

}  // namespace stet::test
