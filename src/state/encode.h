// The portable encoding of state: one sequence, or a whole context, in one run of bytes. In prose:
// docs/internals/state_format.md.
//
// Integers are little-endian. `string` and `bytes` are a u64 length and as many bytes.
//
//   file := header, manifest, payload of each record in order
//
//   header, 64 bytes, the same in every version
//      0   8  magic "stet.sta"
//      8   4  version, 1
//     12   4  kind: 1 one sequence, 2 a whole context
//     16   8  bytes of the file
//     24   8  bytes of the manifest
//     32  16  XXH3-128 of the manifest
//     48  16  XXH3-128 of bytes 0 to 47
//
//   manifest := identity, schema, u32 count, record*, u32 count, sequence*
//   identity := model fingerprint 32, schema hash 32, u32 K type, u32 V type, string model name
//   schema   := u32 count, group*
//   group    := string name, u32 lifetime, u32 parameter, u32 count, plane*
//   plane    := string name, i32 layer, u32 type, u32 elements, u64 row bytes
//   record   := u32 group, u32 rows, u64 at, XXH3-128 of the payload
//   sequence := u32 id, u64 count, i32 token*, u64 count, 3 x i32 extension*, bytes sampler,
//               u64 count, f32 logit*, rows of each group, u32 count, checkpoint*
//   checkpoint := u64 position, u32 asked for (0 or 1), bytes sampler, rows of each window group
//               and of each fixed group
//   rows     := of a paged group: u64 first row (windows only), u32 record for each page
//               of a fixed group: u32 record (none at position 0)
//
// A record is a page or a block, written once however many values share it. Its payload is, for
// each plane in order, the rows back to back: rows [at, at + rows) of a page, or the one row of a
// block (rows is 1, at is the position that it belongs to).
//
// A file is valid iff
//   (1) the header is whole, of a known version and kind;
//   (2) the file has exactly as many bytes as the header says, and the manifest's checksum fits;
//   (3) the schema has the hash that the identity names; its names are of printable ASCII;
//   (4) ids ascend (one sequence: id 0); tokens and extensions are not negative, extensions are
//   none
//       or one a token and their time never falls; checkpoints ascend, from 1 to the position;
//   (5) first rows are multiples of 64 and not past what the window needs; from them and the
//       position follows how many pages there are: every page is a record of its group that lies
//       `at` its place, every block one `at` its position;
//   (6) every record is referred to, and has exactly the rows that the value counting most of them
//       does; the payloads fill the rest of the file exactly, and their checksums fit;
//   (7) the manifest ends where its last field does.
// It fits a context iff the identity is the context's and the limits hold.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/page_pool.h"
#include "state/file_header.h"
#include "state/snapshot.h"
#include "state/stream.h"
#include "stet/status.h"

namespace stet::state {

std::uint64_t encoded_size(const Saved& saved);
// Answers the bytes written, encoded_size() of them.
Result<std::uint64_t> encode(const Saved& saved, Sink& sink);

// Reads and proves everything, with pages made in `pool`: no value that is alive is touched.
// Allocates no more than the bytes that are there, and a constant; pages only once the manifest is
// proven. Order of the checks: damage, version, kind, model, K/V types, schema, capacity, the rest.
Result<Saved> decode(Source& source, SavedKind kind, const Identity& identity, const Limits& limits,
                     memory::PagePool& pool);

// State with a pool of its own, for who has no model at hand.
struct Standalone {
    std::unique_ptr<memory::PagePool> pool;  // outlives the values
    Saved saved;
};
// decode() for the identity that the state itself names. Pages take at most `pages_bytes_max`, and
// at most kPageRows times the bytes that are said to be there (a page may hold one row).
Result<Standalone> decode_standalone(Source& source, std::uint64_t pages_bytes_max);

namespace format {

inline constexpr char kMagic[8] = {'s', 't', 'e', 't', '.', 's', 't', 'a'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kHeaderBytes = kFileHeaderBytes;

}  // namespace format

}  // namespace stet::state
