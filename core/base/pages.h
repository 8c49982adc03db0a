/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_PAGES_H
#define TT_BASE_PAGES_H
#include <stddef.h>

/* Memory of whole pages, zeros, from and for the system: huge pages (2 MiB) where it gives them. Disks read and write
 * these several times as fast without the page cache (O_DIRECT), because a request has few pieces then, and
 * large arrays miss the TLB less. NULL and errno: there is none. [any-thread] */
void *tt_pages_new(size_t bytes);
void tt_pages_free(void *p, size_t bytes); /* the bytes that were asked for; NULL is fine */

#endif
