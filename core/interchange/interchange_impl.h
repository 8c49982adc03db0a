/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_IMPL_H
#define TT_INTERCHANGE_IMPL_H
#include "interchange/interchange.h"

/* Inside of core/interchange. */

/* names.c: what a table of names makes of one, and its row; NULL: none matches. */
const char *tt_name_there(tt_arena *a, const tt_tensor_name *names, size_t n, size_t stride,
                          const char *name, const tt_tensor_name **row);
/* Rows of a head of a parameter; an error where it is not cut into heads of even width. */
tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err);

#endif
