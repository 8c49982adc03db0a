/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXPORTS_H
#define TT_EXPORTS_H
#include "base/base.h"

/* The folder of a run's exports (dump_folder/hf), whatever they consist of. */

/* Renames step-N.tmp to step-N, replacing an older one, and makes latest link to it. */
tt_status tt_exports_publish(const char *folder, int64_t step, tt_error *err);
/* Makes latest link to the newest step-N. Removes the link if there is no step-N. */
tt_status tt_exports_link_newest(const char *folder, tt_error *err);
/* Removes all step-N but the `keep` newest. */
tt_status tt_exports_purge(const char *folder, int64_t keep, tt_error *err);

#endif
