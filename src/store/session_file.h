// A session in one file, to be taken to another store or machine: its turns, and the state from
// which each of them can be gone on with.
//
//   file := header, body
//
//   header, 64 bytes
//      0   8  magic "stet.ses"
//      8   4  version, 1
//     12   4  flags: 1 the body is compressed with zstd
//     16   8  bytes of the turns
//     24  16  XXH3-128 of the turns
//     40   8  0
//     48  16  XXH3-128 of bytes 0 to 47
//
//   body  := turns, one sequence encoded as in state/encode.h
//   turns := string session, string model path, u64 count, turn*
//   turn  := u64 token_end, i64 created_ns, string content, bytes sampler
//
// Integers are little-endian; `string` and `bytes` are a u64 length and as many bytes.
//
// A file is valid iff
//   (1) the header is whole, of a known version and flags;
//   (2) the checksum of the turns fits, and they end where their last field does;
//   (3) there is at least one turn; token_end ascends, from 1 to the length of the sequence;
//   (4) the sequence is valid, and can be cut to every token_end;
//   (5) nothing follows.
// It names its model by fingerprint, and the schema and types of its state (in the encoded
// sequence).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "state/encode.h"
#include "state/stream.h"
#include "stet/status.h"
#include "store/store.h"

namespace stet::store {

namespace session_file {
inline constexpr char kMagic[8] = {'s', 't', 'e', 't', '.', 's', 'e', 's'};
inline constexpr std::uint32_t kVersion = 1;
}  // namespace session_file

struct SessionFile {
    std::string name;
    std::string model_path;
    std::vector<Turn> turns;  // id and parent: kNoTurn
    bool is_compressed = false;
    state::Standalone state;  // one entry

    const state::Identity& identity() const { return state.saved.identity; }
    const state::Sequence& sequence() const { return state.saved.entries.front().sequence; }
};

// Reads the whole session, every byte verified. unavailable, corruption: a turn whose state was
// evicted or is damaged; then nothing is of use to anybody elsewhere, so nothing is written.
Result<SessionFile> collect_session(Store& store, std::string_view name);
Status write_session(const SessionFile& file, bool is_compressed, state::Sink& sink);

// Proves everything. `source` says how much is left. Pages take at most `pages_bytes_max`.
Result<SessionFile> read_session(state::Source& source, std::uint64_t pages_bytes_max);
// As a new session, whole or not at all. already_exists when the name is taken.
Result<SessionInfo> import_session(Store& store, const SessionFile& file, std::string_view name);

}  // namespace stet::store
