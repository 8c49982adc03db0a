/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LIBRARY_H
#define TT_LIBRARY_H
#include "base/base.h"

/* A library of the system that ttrun does without where it is not installed: it is opened when it is wanted, and never
 * closed. file: its soname. functions[n], out[n]: what is wanted of it. Errors: TT_ENOTFOUND, with package, which has the
 * file in Debian. [setup] */
tt_status tt_library_open(const char *file, const char *package, const char *const *functions,
                          size_t n, void **out, tt_error *err);

#endif
