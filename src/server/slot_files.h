// llama-server's slot files: the state of one slot in one file of the slot directory, written in
// our encoding (state/encode.h) and read in ours or llama.cpp's. A thread of their own does the
// I/O.
//
// A name is a single plain component: nothing outside the directory can be named, a link is
// replaced or refused and never followed. With several tenants each has a folder of its own in the
// directory, named after its id, and names only what is in there. A save is all or nothing: the
// file of before stays until the new one is complete and on disk. A restore is proven whole before
// it is handed on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/try.h"
#include "engine/engine.h"
#include "state/sequence.h"
#include "state/snapshot.h"
#include "state/stream.h"
#include "stet/status.h"

namespace stet::server {

// invalid_argument unless it is 1 to 255 bytes of UTF-8 without separators, control characters and
// :*?"<>|, is not hidden, and neither begins nor ends with a space or ends with a dot.
Status check_file_name(std::string_view name);

struct SlotFile {
    std::uint64_t tokens = 0;
    std::uint64_t bytes = 0;
    double ms = 0.0;
};
struct RestoredSlot {
    state::Sequence sequence;
    SlotFile file;
};

class SlotFiles {
  public:
    // Fails unless `directory` can be written to. `tenants`: all there are.
    static Result<std::unique_ptr<SlotFiles>> open(Env& env, const std::filesystem::path& directory,
                                                   const std::vector<std::string>& tenants,
                                                   engine::Engine& engine,
                                                   state::Identity identity);
    ~SlotFiles();  // stop()
    // Does everything that was asked for, and takes no more.
    void stop();

    // Any thread; `done` is called on the thread of the files. unavailable: too much is waiting.
    Status save(const std::string& tenant, std::string name, state::Sequence sequence,
                std::function<void(Result<SlotFile>)> done);
    Status restore(const std::string& tenant, std::string name,
                   std::function<void(Result<RestoredSlot>)> done);

    // What the thread does, for callers that have one.
    Result<SlotFile> save_now(const std::string& tenant, const std::string& name,
                              const state::Sequence& sequence);
    Result<RestoredSlot> restore_now(const std::string& tenant, const std::string& name);

    // Other files of the directory, under the same rules, on the caller's thread. The bytes
    // written.
    Result<std::uint64_t> write_file(const std::string& tenant, const std::string& name,
                                     const std::function<Status(state::Sink&)>& write);
    template <typename Read>
    auto read_file(const std::string& tenant, const std::string& name, Read read)
        -> decltype(read(std::declval<state::Source&>())) {
        STET_ASSIGN(const auto opened, open_file(tenant, name));
        state::FileSource source(*opened.file, opened.size_bytes);
        return read(source);
    }

  private:
    struct Opened {
        std::unique_ptr<File> file;
        std::uint64_t size_bytes = 0;
    };
    Result<Opened> open_file(const std::string& tenant, const std::string& name);
    std::filesystem::path path_of(const std::string& tenant, const std::string& name) const;
    Status make_folders(const std::vector<std::string>& tenants);
    SlotFiles(Env& env, std::filesystem::path directory, engine::Engine& engine,
              state::Identity identity)
        : env_(env),
          directory_(std::move(directory)),
          engine_(engine),
          identity_(std::move(identity)) {}
    Status push(std::function<void()> task);
    void work();
    Result<state::Sequence> read(const File& file, std::uint64_t size_bytes,
                                 const std::string& name);

    Env& env_;
    std::filesystem::path directory_;
    bool has_folders_ = false;  // one a tenant
    engine::Engine& engine_;
    state::Identity identity_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    bool is_stopping_ = false;
    std::thread thread_;
};

}  // namespace stet::server
