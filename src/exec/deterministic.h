// Attention whose bits depend on tokens and positions alone.
//
// By default a prompt's queries are computed together, in another order of sums than the single
// query of a decode step: the last bits of a state then depend on how a prompt was cut into steps,
// and on what was reused. Where this is switched on, every query is computed as in a decode step.
//
// It is of the process: set once, before the first step.
#pragma once

namespace stet::exec {

void set_deterministic(bool is_on);
bool is_deterministic();

}  // namespace stet::exec
