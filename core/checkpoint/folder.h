/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FOLDER_H
#define TT_FOLDER_H
#include "base/base.h"

/* Files and steps of a folder, beside what checkpoint.h has. */

bool tt_folder_has(const char *folder, const char *name);
bool tt_is_safetensors_name(const char *name);
/* An error of the system's, with the path and, for the usual ones, what to do. */
tt_status tt_fail_system(tt_error *err, int number, const char *what, const char *path);
/* Removes folder/step-N in two parts, so that a kill in between leaves no half of it under its name. */
tt_status tt_step_remove(tt_arena *a, const char *folder, int64_t step, tt_error *err);

#endif
