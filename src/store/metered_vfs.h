// SQLite's file system under a DiskBudget: passes every call on to the system's own, counts what it
// writes, and answers "full" to a write of the log that the budget refuses. SQLite undoes a
// transaction that meets a full disk.
//
// Thread rules: one connection and one thread at a time, like the budget.
#pragma once

#include <sqlite3.h>

#include <string>

#include "store/disk_budget.h"

namespace stet::store {

class MeteredVfs {
  public:
    explicit MeteredVfs(DiskBudget& budget);
    ~MeteredVfs();  // after the connection was closed
    MeteredVfs(const MeteredVfs&) = delete;
    MeteredVfs& operator=(const MeteredVfs&) = delete;

    const std::string& name() const { return name_; }  // for sqlite3_open_v2

  private:
    struct Vfs : sqlite3_vfs {
        sqlite3_vfs* base = nullptr;
        DiskBudget* budget = nullptr;
    };
    struct Handle;
    struct Calls;

    std::string name_;
    Vfs vfs_{};
};

}  // namespace stet::store
