#include "selftest/columns.h"

#include <array>

namespace stet::selftest {
namespace {

constexpr std::array kColumns = {
    Column{"baseline", "computes, and reserves its buffers once", check_baseline, false},
    Column{"seq_rm", "removing one sequence leaves the others' state", check_removal, true},
    Column{"state_load", "goes on from a saved context", check_context_file, true},
    Column{"cp_h", "goes on from bytes, in another sequence", check_copy_by_bytes, true},
    Column{"cp_d", "goes on from a snapshot, in another sequence", check_copy_by_value, true},
    Column{"cp_h_s", "bytes of interleaved sequences", check_scattered_by_bytes, true},
    Column{"cp_d_s", "snapshots of interleaved sequences", check_scattered_by_value, true},
    Column{"rt", "save, restore, save: the same bytes", check_round_trip, true},
    Column{"rf", "a failed restore into an empty sequence", check_restore_failure, true},
    Column{"rot", "q8_0 rows, and no mixing with f16", check_quantized_rows, false},
    Column{"keep", "a failed restore keeps target and neighbours", check_failed_restore, true},
    Column{"ctx", "a failed restore of all keeps all", check_failed_context_restore, true},
    Column{"fork", "forks diverge as fresh runs do", check_fork, true},
    Column{"roll", "back to every checkpoint, as fresh runs", check_rollback, true},
    Column{"at", "save and restore around every boundary", check_boundaries, true},
    Column{"hyb", "each part of the state fails in turn", check_each_part, true},
    Column{"flip", "every flipped byte and every length", check_flips_and_cuts, false},
    Column{"old", "state that llama.cpp saved", check_old_files, true},
};

}  // namespace

std::span<const Column> columns() {
    return kColumns;
}

}  // namespace stet::selftest
