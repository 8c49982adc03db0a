/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_HUB_H
#define TT_BASE_HUB_H
#include "base/base.h"

/* The local cache of the Hugging Face hub: CACHE/models--ORG--NAME/snapshots/COMMIT, the commit from refs/main.
 * An id is ORG/NAME. All [any-thread]; texts are the arena's. */

bool tt_hub_is_id(const char *text);
/* The folder of the branch main; NULL: it is not in the cache, or id is none. */
const char *tt_hub_folder(tt_arena *a, const char *id);
/* What a message adds where an id has no folder: how to download it; "" if id is none. */
const char *tt_hub_advice(tt_arena *a, const char *id);

#endif
