/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/assets.h"
#include "interchange/interchange_impl.h"
#include "setup/tokenizer.h"
#include <string.h>
#include <ttrun/chat.h>

/* The chat template of an export: that of the run's conversations, which may be another one than the tokenizer's folder
 * has, and the tokens that end its turns. */

const char *tt_export_tokenizer(const tt_setup *s, const tt_hf_export *o, tt_arena *a)
{
    const char *path = tt_tokenizer_path(s);
    const char *kept = path && o->run ? tt_assets_tokenizer_of_run(a, o->run, path) : NULL;
    path = kept ? kept : path;
    return path && tt_path_exists(path) ? path : NULL;
}

static tt_status find_ends(const tt_hf_export *o, const char *path, const char *tokenizer,
                           tt_export_chat *out, tt_error *err)
{
    tt_chat_template *t = NULL;
    TT_TRY(tt_chat_template_open_for(path, tokenizer, &t, err));
    for (int last = 1; last >= 0; last--) {
        const int32_t id = tt_chat_turn_end(t, out->vt, o->tokenizer_self, last == 1);
        if (id >= 0 && (!out->n_ends || out->ends[0] != id))
            out->ends[out->n_ends++] = id;
    }
    tt_chat_template_close(t);
    return TT_OK;
}

tt_status tt_export_chat_of(const tt_setup *s, const tt_hf_export *o, tt_arena *a,
                            tt_export_chat *out, tt_error *err)
{
    const char *named = NULL, *tokenizer = tt_export_tokenizer(s, o, a);
    tt_error why = {0};
    *out = (tt_export_chat){.talks = tt_assets_talks(s, &named)};
    if (s->has_tokenizer)
        out->vt = s->tokenizer.component->vtable;
    out->own = named != NULL;
    const char *path = named ? tt_assets_template(a, o->run, named) : tokenizer;
    if (named && !path)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "dataloader.template: %s is gone, and the run has no copy of it; name it "
                       "with --dataloader.template",
                       named);
    if (!path)
        return TT_OK;
    tt_status st = tt_chat_template_sources(a, path, &out->plain, &out->tools, &why);
    if (st == TT_OK && o->tokenizer_self)
        st = find_ends(o, path, tokenizer, out, &why);
    if (st == TT_OK || (!named && st != TT_ENOMEM)) /* a folder may have none, or one for others */
        return TT_OK;
    *err = why;
    return tt_error_context(err, "dataloader.template");
}
