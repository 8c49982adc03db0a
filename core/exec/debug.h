/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DEBUG_H
#define TT_DEBUG_H
#include "exec/exec_impl.h"

/* debug.c: debug.poison and debug.detect_nan. */

tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n,
                               int micro, tt_error *err);
tt_status tt_exec_poison(const tt_exec *x, void *p, size_t bytes, tt_error *err);
/* After an instruction: notes the highest byte that it was given and looks at the canaries. */
tt_status tt_exec_after(tt_exec *x, const tt_bound *b, const tt_tensor *out, tt_error *err);
/* Poisons what the instruction, or the slots that the call, was the last to read. */
tt_status tt_exec_poison_last_used(const tt_exec *x, const tt_instr *i, tt_error *err);
tt_status tt_exec_poison_slots(const tt_exec *x, const tt_call *c, tt_error *err);
/* Every byte that no instruction was given is still poison: behind the spaces and above the high
 * water. */
tt_status tt_exec_check_untouched(tt_exec *x, tt_error *err);

#endif
