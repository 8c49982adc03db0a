/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TWICE_H
#define TT_TWICE_H
#include "exec/exec_impl.h"

/* twice.c: instructions of the epilogue and the update that run again (tt_exec_run_twice). */

tt_status tt_exec_open_kept(tt_exec *x, tt_error *err);
bool tt_exec_runs_twice(const tt_exec *x, const tt_bound *b);
/* Keeps what b is about to write; writes it again. */
tt_status tt_exec_keep(tt_exec *x, const tt_tensor *out, int n, tt_error *err);
tt_status tt_exec_restore(tt_exec *x, const tt_tensor *out, int n, tt_error *err);
tt_status tt_exec_hash_out(tt_exec *x, const tt_tensor *out, int n, uint64_t *hash, tt_error *err);
/* Of two or three runs. */
void tt_exec_note_runs(tt_exec *x, const tt_bound *b, const uint64_t hash[3], int n);

#endif
