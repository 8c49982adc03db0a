/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_RESERVE_H
#define TT_BASE_RESERVE_H
#include "base/base.h"

/* What a server does where memory is out. An arena or a text cannot fail, so that it would end the process for the request of one
 * client. A server therefore holds a reserve: arenas, texts and the two functions below give it back to the system where
 * they find no memory, and try again. From then on memory is low; what works for a request looks at that between pieces that
 * need less than the reserve, and fails with TT_ENOMEM. When the request's memory is free, the server takes a reserve again.
 * Without one, nothing changes. [any-thread] */
tt_status tt_reserve_open(size_t bytes, tt_error *err);
void tt_reserve_close(void);
/* The reserve is spent, and cannot be had again now: it tries. */
bool tt_reserve_is_low(void);
/* calloc and realloc that may spend it. NULL: out of memory all the same. */
void *tt_reserve_calloc(size_t n, size_t size);
void *tt_reserve_realloc(void *p, size_t size);

#endif
