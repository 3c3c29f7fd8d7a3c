// How ggml's threads wait for each other. They meet in a barrier after every node of a graph, some
// 500 times a token, and belong to the OpenMP runtime (libgomp), which reads its settings from the
// environment before main() runs. Left alone it spins for milliseconds before it sleeps: on a busy
// machine the spinning thread holds the processor that the awaited one needs.
//
// Measured on 2 cores with 14 runnable processes beside, decoding SmolLM2 on 2 threads:
// 1.0 t/s as it comes, 7 to 14 t/s with short spins (docs/internals/speed.md).
#pragma once

namespace stet::exec {

// Call first in main(). Unless the user set GOMP_SPINCOUNT or OMP_WAIT_POLICY, sets a short spin
// and starts this program anew with the same arguments, once. Returns when there is nothing to do,
// or when the restart is not possible (then only speed on a busy machine suffers).
void restart_with_short_spins(char** argv);

}  // namespace stet::exec
