/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUCCEED_H
#define TT_SUCCEED_H
#include "exec/exec_impl.h"

/* succeed.c: what a program uses of the one that it replaces (opts.from) */
bool tt_exec_borrow_space(tt_exec *x, tt_space space);
tt_status tt_exec_borrow_group(tt_exec *x, uint16_t atoms, tt_group_comm *out, tt_error *err);
tt_status tt_exec_borrow_queue(tt_exec *x, int queue, uint16_t atoms, tt_error *err);

#endif
