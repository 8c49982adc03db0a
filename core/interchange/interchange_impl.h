/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_IMPL_H
#define TT_INTERCHANGE_IMPL_H
#include "interchange/interchange.h"

/* Shared by the files of core/interchange. */

/* names.c: looks a name up in a table. Returns the other program's name and its row, or NULL if no
 * row matches. */
const char *tt_name_there(tt_arena *a, const tt_tensor_name *names, size_t n, size_t stride,
                          const char *name, const tt_tensor_name **row);
/* Returns how many rows a head of a parameter has. Fails if its rows are not cut into heads, or
 * their number is odd. */
tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err);

#endif
