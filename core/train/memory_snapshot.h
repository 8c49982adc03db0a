/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MEMORY_SNAPSHOT_H
#define TT_MEMORY_SNAPSHOT_H

/* profiling.enable_memory_snapshot: the memory of the process while a step runs. */

struct tt_loop;
void tt_loop_memory_begin(struct tt_loop *l); /* before a step; does nothing if none is due */
/* Writes the file. Also after a step that failed, so that the thread that measures has ended. */
void tt_loop_memory_end(struct tt_loop *l);

#endif
