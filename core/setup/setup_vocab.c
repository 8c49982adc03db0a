/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* model.vocab_from_tokenizer: sets model.args.vocab_size, if the job does not, so that the resolved job has the number
 * and no later start depends on the tokenizer. */

tt_status tt_setup_vocab(tt_setup *s, tt_error *err)
{
    const char *key = "model.vocab_from_tokenizer";
    void *self = NULL;
    if (!s->core.vocab_from_tokenizer || tt_job_has(s->job, "model.args.vocab_size"))
        return TT_OK;
    if (!s->has_tokenizer)
        return tt_job_fail(s->job, key, err,
                           "there is no tokenizer: set tokenizer.name, or model.args.vocab_size");
    const tt_tokenizer_vt *vt = s->tokenizer.component->vtable;
    TT_TRY(TT_PLUGIN_CALL(vt->open(s->tokenizer.config, &self, err), err, "tokenizer",
                          s->tokenizer.name));
    tt_tokenizer_info info = {.struct_size = sizeof info};
    vt->info(self, &info);
    vt->close(self);
    return tt_job_default(s->job, "model.args.vocab_size",
                          tt_arena_printf(s->arena, "%lld", (long long)info.vocab_size),
                          tt_arena_printf(s->arena, "tokenizer %s", s->tokenizer.name), err);
}
