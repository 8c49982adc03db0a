/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_IMPL_H
#define TT_SETUP_IMPL_H
#include "train/train.h"

/* Inside of setup. */
tt_status tt_setup_backend(tt_setup *s, const char *const *ignore, tt_backend_section *out, tt_error *err);
tt_status tt_setup_mesh(tt_setup *s, const tt_setup_opts *o, tt_error *err);
tt_status tt_setup_compile(tt_setup *s, const tt_setup_opts *o, tt_error *err);

#endif
