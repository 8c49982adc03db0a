/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat_model.h"
#include "chat/chat.h"
#include "interchange/assets.h"
#include "setup/tokenizer.h"

const tt_tokenizer_vt *tt_chat_model_tokenizer(const tt_chat_model *m)
{
    return m->model.setup.tokenizer.component->vtable;
}

/* ---- the template ---- */

static tt_status open_template(const tt_cli *cli, bool talks, tt_chat_model *c, tt_error *err)
{
    const tt_loaded_model *m = &c->model;
    const char *given = tt_cli_option(cli, "template"), *path = given,
               *own = m->hf ? m->path : tt_tokenizer_path(&m->setup);
    tt_error why = {0};
    if (!path && !m->hf)
        path = tt_assets_template(m->setup.arena, m->run, m->template);
    if (!path)
        path = own;
    if (!path)
        return talks
                   ? TT_FAIL(err, TT_EINVAL,
                             "the model has no chat template: name one with --template, a file of "
                             "Jinja or chatml; a model that was not trained on conversations "
                             "continues texts (ttrun generate)")
                   : TT_OK;
    const tt_status s = tt_chat_template_open_for(path, own, &c->template, &why);
    if (s != TT_OK && (talks || given || s == TT_ENOMEM)) {
        *err = why;
        return s;
    }
    tt_chat_source plain, tools;
    if (s == TT_OK && tt_chat_template_sources(m->setup.arena, path, &plain, &tools, &why) == TT_OK)
        c->template_text = plain.text;
    return TT_OK;
}

/* ---- what ends texts ---- */

static tt_status find_stops(tt_chat_model *c, tt_error *err)
{
    const tt_loaded_model *m = &c->model;
    tt_hf_stops own;
    TT_TRY(tt_cli_stops(m, m->setup.arena, &own, err));
    for (size_t i = 0; i < own.n; i++) {
        TT_TRY(tt_ids_push(&c->text_stops, own.ids[i], err));
        TT_TRY(tt_ids_push(&c->stops, own.ids[i], err));
    }
    if (!m->tokenizer)
        return TT_OK;
    if (m->info.eos >= 0 && !own.n)
        TT_TRY(tt_ids_push(&c->text_stops, m->info.eos, err));
    if (m->info.eos >= 0)
        TT_TRY(tt_ids_push(&c->stops, m->info.eos, err));
    for (int last = 0; c->template && last < 2; last++) {
        const int32_t turn =
            tt_chat_turn_end(c->template, tt_chat_model_tokenizer(c), m->tokenizer, last == 1);
        if (turn >= 0)
            TT_TRY(tt_ids_push(&c->stops, turn, err));
    }
    return TT_OK;
}

tt_status tt_chat_model_open(const tt_cli *cli, bool talks, tt_chat_model *c, tt_error *err)
{
    tt_loaded_model *m = &c->model;
    TT_TRY(tt_cli_open_model(cli, false, NULL, 0, m, err));
    const bool has =
        m->setup.has_tokenizer && (talks || !m->hf || tt_job_has(m->setup.job, "tokenizer.name"));
    if (!has && talks)
        return TT_FAIL(err, TT_EINVAL, "%s has no tokenizer: name one with --tokenizer.name",
                       m->path);
    if (has) {
        TT_TRY(open_template(cli, talks, c, err));
        TT_TRY(tt_setup_tokenizer(&m->setup, &m->tokenizer, &m->info, err));
    }
    return find_stops(c, err);
}

void tt_chat_model_close(tt_chat_model *c)
{
    tt_chat_template_close(c->template);
    tt_loaded_model_close(&c->model);
    tt_ids_free(&c->text_stops);
    tt_ids_free(&c->stops);
}
