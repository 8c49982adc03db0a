/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_JSON_MASK_H
#define TT_SERVE_JSON_MASK_H
#include "serve/json_text.h"
#include <ttrun/tokenizer.h>

/* Which tokens of a vocabulary go on with a JSON object: all whose bytes may come next. Kept for the states that have been
 * asked for. For one thread. */

typedef struct tt_json_masks tt_json_masks;

/* Reads the bytes of the tokens [0, n). */
tt_json_masks *tt_json_masks_new(const tt_tokenizer_vt *vt, void *tokenizer, int64_t n);
void tt_json_masks_free(tt_json_masks *m); /* NULL is fine */
/* Bit i of word i / 64: token i may come. The words stay until the next call. */
const uint64_t *tt_json_masks_get(tt_json_masks *m, const tt_json_text *t);
int64_t tt_json_masks_made(const tt_json_masks *m); /* how many have been computed */

#endif
