/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/assets.h"
#include "interchange/interchange_impl.h"
#include "setup/tokenizer.h"
#include <string.h>
#include <unistd.h>

/* The tokenizer of an export: the files that the run was trained with, and in them what the job says otherwise, its
 * special tokens and its chat template. */

#define MAX_BYTES ((size_t)256 << 20)

static const char config_name[] = "tokenizer_config.json";
static const char *const token_keys[] = {"bos_token", "eos_token", "pad_token"};

typedef struct changes {
    const char *tokens[TT_COUNT(token_keys)]; /* that the job names; NULL: the file's own */
    bool template; /* chat_template of the file does not count any more */
} changes;

static changes find_changes(const tt_setup *s, const tt_export_chat *c)
{
    changes x = {.template = c->own};
    for (size_t i = 0; s->has_tokenizer && i < TT_COUNT(token_keys); i++) {
        const char *const *text = tt_part_value(s->tokenizer.component, s->tokenizer.config,
                                                token_keys[i], TT_OPT_STRING);
        x.tokens[i] = text ? *text : NULL;
    }
    return x;
}

static bool is_changed(const changes *x, const char *key)
{
    for (size_t i = 0; i < TT_COUNT(token_keys); i++)
        if (x->tokens[i] && !strcmp(key, token_keys[i]))
            return true;
    return (x->template && !strcmp(key, "chat_template")) ||
           (x->tokens[0] && !strcmp(key, "add_bos_token"));
}

/* Writes a file again with what has changed. */
static tt_status change_file(tt_arena *a, const char *path, const changes *x, tt_error *err)
{
    const tt_json *root = NULL;
    tt_str out = {0};
    if (tt_path_exists(path))
        TT_TRY(tt_json_read_object(a, path, MAX_BYTES, &root, err));
    tt_str_addc(&out, '{');
    for (size_t i = 0; root && i < root->n; i++)
        if (!is_changed(x, root->keys[i]))
            tt_hf_put_member(&out, root->keys[i], root->items[i]);
    for (size_t i = 0; i < TT_COUNT(token_keys); i++)
        if (x->tokens[i]) {
            tt_hf_put_key(&out, token_keys[i]);
            tt_str_json(&out, x->tokens[i]);
        }
    if (x->tokens[0]) { /* a bos that the job names begins texts */
        tt_hf_put_key(&out, "add_bos_token");
        tt_str_add(&out, "true");
    }
    tt_str_add(&out, "\n}\n");
    const tt_status s = tt_write_file_atomic(path, out.s, out.n, err);
    tt_str_free(&out);
    return s;
}

static tt_status change_tokens(tt_arena *a, const char *folder, const changes *x, tt_error *err)
{
    const char *map = tt_path_join(a, folder, "special_tokens_map.json");
    bool named = false;
    for (size_t i = 0; i < TT_COUNT(token_keys); i++)
        named = named || x->tokens[i];
    if (named || (x->template && tt_path_exists(tt_path_join(a, folder, config_name))))
        TT_TRY(change_file(a, tt_path_join(a, folder, config_name), x, err));
    return named && tt_path_exists(map) ? change_file(a, map, x, err) : TT_OK;
}

static tt_status write_template(tt_arena *a, const char *folder, const tt_export_chat *c,
                                tt_error *err)
{
    const char *more = tt_path_join(a, folder, "additional_chat_templates");
    TT_TRY(tt_remove_tree(more, err));
    TT_TRY(tt_write_file_atomic(tt_path_join(a, folder, "chat_template.jinja"), c->plain.text,
                                c->plain.n, err));
    if (!c->tools.text)
        return TT_OK;
    TT_TRY(tt_mkdirs(more, err));
    return tt_write_file_atomic(tt_path_join(a, more, "tool_use.jinja"), c->tools.text, c->tools.n,
                                err);
}

tt_status tt_hf_write_tokenizer(const tt_setup *s, const tt_hf_export *o, const tt_export_chat *c,
                                tt_arena *a, tt_error *err)
{
    const char *path = tt_export_tokenizer(s, o, a);
    const changes x = find_changes(s, c);
    if (path)
        TT_TRY(tt_assets_copy_tokenizer(a, path, o->folder, true, err));
    if (tt_tokenizer_in(a, o->folder))
        TT_TRY(change_tokens(a, o->folder, &x, err));
    return c->own ? write_template(a, o->folder, c, err) : TT_OK;
}
