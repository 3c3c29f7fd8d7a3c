// SQLite's files through an Env, so that a FaultEnv is the disk under the catalogue as well: while
// one exists, every database that is opened reads and writes through it. Locks and shared memory
// stay the system's; they end with a process, and the tests' processes live on.
//
// Follows what SQLite's own file system for Unix promises about a name: the directory of a new log
// is synced with the log's first sync.
//
// Thread rules: one at a time; databases of one process only.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/env.h"

namespace stet::test {

class EnvVfs {
  public:
    explicit EnvVfs(Env& env) : env_(env) {
        current() = this;
        base_ = sqlite3_vfs_find(nullptr);
        vfs_ = *base_;
        vfs_.zName = "stet-env";
        vfs_.szOsFile += static_cast<int>(sizeof(Handle));
        vfs_.xOpen = open;
        vfs_.xDelete = remove;
        sqlite3_vfs_register(&vfs_, 1);
    }
    // Every database must be closed.
    ~EnvVfs() {
        sqlite3_vfs_unregister(&vfs_);
        sqlite3_vfs_register(base_, 1);
        current() = nullptr;
    }
    EnvVfs(const EnvVfs&) = delete;
    EnvVfs& operator=(const EnvVfs&) = delete;

  private:
    struct State {
        std::unique_ptr<File> file;
        std::filesystem::path directory;  // to be synced with the first sync; or empty
    };
    struct Handle {
        sqlite3_file base;
        sqlite3_file* real;  // of the catalogue itself, for locks; else null
        State* state;
    };

    static EnvVfs*& current() {
        static EnvVfs* instance = nullptr;
        return instance;
    }
    static Handle& handle(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }
    static sqlite3_file* real(sqlite3_file* file) { return handle(file).real; }
    static File& env_file(sqlite3_file* file) { return *handle(file).state->file; }
    static int code_of(const Status& status, int otherwise) {
        if (status) return SQLITE_OK;
        return status.code() == Code::resource_exhausted ? SQLITE_FULL : otherwise;
    }

    static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
        file->pMethods = nullptr;
        Env& env = current()->env_;
        const std::filesystem::path path = name;
        const bool may_make = (flags & SQLITE_OPEN_CREATE) != 0;
        auto opened = env.open(path, may_make ? OpenMode::create : OpenMode::read_write);
        if (!opened) return SQLITE_CANTOPEN;
        Handle& made = handle(file);
        made.real = nullptr;
        const bool is_main = (flags & SQLITE_OPEN_MAIN_DB) != 0;
        if (is_main) {
            made.real = reinterpret_cast<sqlite3_file*>(&made + 1);
            made.real->pMethods = nullptr;
            sqlite3_vfs* base = current()->base_;
            const int code = base->xOpen(base, name, made.real, flags, out);
            if (code != SQLITE_OK) return code;
        }
        made.state = new State{std::move(*opened), {}};
        if (may_make && !is_main) made.state->directory = path.parent_path();
        if (out != nullptr) *out = flags;
        file->pMethods = methods();
        return SQLITE_OK;
    }
    static int remove(sqlite3_vfs*, const char* name, int sync) {
        Env& env = current()->env_;
        const std::filesystem::path path = name;
        if (env.info(path).status().code() == Code::not_found) return SQLITE_IOERR_DELETE_NOENT;
        if (!env.remove(path)) return SQLITE_IOERR_DELETE;
        if (sync != 0 && !env.sync_directory(path.parent_path())) return SQLITE_IOERR_DIR_FSYNC;
        return SQLITE_OK;
    }

    static int close(sqlite3_file* file) {
        delete handle(file).state;
        return real(file) != nullptr ? real(file)->pMethods->xClose(real(file)) : SQLITE_OK;
    }
    static int read(sqlite3_file* file, void* data, int size, sqlite3_int64 at) {
        const auto length = env_file(file).size();
        if (!length) return SQLITE_IOERR_READ;
        const auto begin = static_cast<std::uint64_t>(at);
        const std::uint64_t there = *length > begin ? *length - begin : 0;
        const std::uint64_t count = std::min<std::uint64_t>(there, static_cast<unsigned>(size));
        const std::span into(static_cast<std::byte*>(data), static_cast<std::size_t>(size));
        std::memset(data, 0, into.size());
        if (count != 0 && !env_file(file).read_at(begin, into.first(count))) {
            return SQLITE_IOERR_READ;
        }
        return count == into.size() ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
    }
    static int write(sqlite3_file* file, const void* data, int size, sqlite3_int64 at) {
        const std::span from(static_cast<const std::byte*>(data), static_cast<std::size_t>(size));
        return code_of(env_file(file).write_at(static_cast<std::uint64_t>(at), from),
                       SQLITE_IOERR_WRITE);
    }
    static int truncate(sqlite3_file* file, sqlite3_int64 size) {
        return code_of(env_file(file).truncate(static_cast<std::uint64_t>(size)),
                       SQLITE_IOERR_TRUNCATE);
    }
    static int sync(sqlite3_file* file, int) {
        State& state = *handle(file).state;
        if (!state.file->sync()) return SQLITE_IOERR_FSYNC;
        if (!state.directory.empty()) {
            if (!current()->env_.sync_directory(state.directory)) return SQLITE_IOERR_DIR_FSYNC;
            state.directory.clear();
        }
        return SQLITE_OK;
    }
    static int file_size(sqlite3_file* file, sqlite3_int64* size) {
        const auto length = env_file(file).size();
        if (!length) return SQLITE_IOERR_FSTAT;
        *size = static_cast<sqlite3_int64>(*length);
        return SQLITE_OK;
    }

    static int lock(sqlite3_file* file, int level) {
        return real(file) != nullptr ? real(file)->pMethods->xLock(real(file), level) : SQLITE_OK;
    }
    static int unlock(sqlite3_file* file, int level) {
        return real(file) != nullptr ? real(file)->pMethods->xUnlock(real(file), level) : SQLITE_OK;
    }
    static int check_lock(sqlite3_file* file, int* out) {
        *out = 0;
        return real(file) != nullptr ? real(file)->pMethods->xCheckReservedLock(real(file), out)
                                     : SQLITE_OK;
    }
    static int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
    static int sector_size(sqlite3_file*) { return 4096; }
    static int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }
    static int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
        return real(file)->pMethods->xShmMap(real(file), page, size, extend, out);
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

    Env& env_;
    sqlite3_vfs* base_ = nullptr;
    sqlite3_vfs vfs_{};
};

}  // namespace stet::test
