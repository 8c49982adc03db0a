/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_RECOMPUTED_H
#define TT_SETUP_RECOMPUTED_H
#include "setup/setup.h"

/* What a run's log, its run.json and `ttrun plan` say about activations that the backward computes again. */

/* A sentence, and a table of the layers. Nothing is added in mode none. */
void tt_recomputed_text(const tt_setup *s, tt_str *o);
void tt_recomputed_table(const tt_setup *s, int indent, tt_str *o);
/* Of all modes but none: a member "recompute" after others. */
void tt_recomputed_json(const tt_setup *s, tt_str *o);

#endif
