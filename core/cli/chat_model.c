/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat_model.h"
#include "interchange/assets.h"
#include <stdlib.h>
#include <string.h>

const tt_tokenizer_vt *tt_chat_model_tokenizer(const tt_chat_model *m)
{
    return m->model.setup.tokenizer.component->vtable;
}

/* ---- the template ---- */

/* The template that the run was trained with: its copy, or the one that is built in. */
static const char *template_of_run(const tt_loaded_model *m)
{
    const char *kept = m->run ? tt_assets_template_of_run(m->setup.arena, m->run) : NULL;
    const char *slash = m->template ? strrchr(m->template, '/') : NULL;
    const char *name = slash ? slash + 1 : m->template;
    return !kept && name && !strcmp(name, "chatml") ? "chatml" : kept;
}

/* The text of a template, for those who render it themselves: a file of Jinja, or that of a folder. */
static const char *template_text_of(const char *path, tt_arena *a)
{
    const char *file = tt_path_join(a, path, "chat_template.jinja");
    tt_error ignored = {0};
    char *text = NULL;
    size_t n;
    if (!tt_path_exists(file))
        file = path;
    const size_t k = strlen(file);
    if (k < 6 || strcmp(file + k - 6, ".jinja") != 0 ||
        tt_read_file(file, 1 << 20, &text, &n, &ignored) != TT_OK)
        return NULL;
    const char *out = tt_arena_str(a, text);
    free(text);
    return out;
}

static tt_status open_template(const tt_cli *cli, bool talks, tt_chat_model *c, tt_error *err)
{
    const tt_loaded_model *m = &c->model;
    const char *given = tt_cli_option(cli, "template"), *path = given,
               *own = m->hf ? m->path : tt_assets_tokenizer(&m->setup);
    tt_error why = {0};
    if (!path && !m->hf)
        path = template_of_run(m);
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
    if (s == TT_OK)
        c->template_text = template_text_of(path, m->setup.arena);
    return TT_OK;
}

/* ---- what ends texts ---- */

/* The id that the template puts behind an assistant's turn, the last one or one before a user's; -1: a plain one, or
 * none. */
static int32_t end_of_turn(const tt_chat_model *c, bool last)
{
    static const char probe[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},"
        "{\"role\":\"user\",\"content\":\"a\"}]";
    static const char final[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]";
    const tt_tokenizer_vt *vt = tt_chat_model_tokenizer(c);
    const tt_conversation x = {.struct_size = sizeof x,
                               .messages = last ? final : probe,
                               .n_messages = last ? sizeof final - 1 : sizeof probe - 1};
    tt_chat_tokens t = {0};
    tt_error ignored = {0};
    char piece[64];
    int32_t id = -1;
    if (tt_chat_encode(c->template, &x, vt, c->model.tokenizer, &t, &ignored) == TT_OK)
        for (size_t i = t.n; i-- > 0;)
            if (t.origins[i] == TT_CHAT_GENERATED) { /* a special token decodes to nothing */
                if (!vt->decode(c->model.tokenizer, t.ids[i], piece, sizeof piece))
                    id = t.ids[i];
                break;
            }
    tt_chat_tokens_free(&t);
    return id;
}

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
        const int32_t turn = end_of_turn(c, last == 1);
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
