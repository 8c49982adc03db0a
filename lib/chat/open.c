/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"
#include "config/config.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Finds and reads a template with the texts of its special tokens. */

#define MOST_BYTES ((size_t)64 << 20) /* tokenizer_config.json lists all added tokens */

static bool is_template_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void put_constant(tt_chat_template *t, const char *key, const char *text)
{
    tt_j_put(t->arena, t->constants, tt_j_text(t->arena, key, strlen(key), TT_TAG_TEMPLATE),
             tt_j_text(t->arena, text, strlen(text), TT_TAG_TEMPLATE), NULL);
}

static tt_chat_template *new_template(const char *name)
{
    tt_arena *a = tt_arena_new();
    tt_chat_template *t = tt_arena_alloc(a, sizeof *t);
    t->arena = a;
    t->name = tt_arena_str(a, name);
    t->constants = tt_j_new(a, TT_J_DICT);
    return t;
}

static tt_status parse_form(tt_chat_template *t, const char *name, const char *text, size_t n,
                            tt_chat_form *out, tt_error *err)
{
    out->name = name;
    TT_TRY(tt_jinja_parse(t->arena, name, text, n, &out->tree, err));
    tt_chat_find_form(out, t->constants);
    return TT_OK;
}

/* tools: of the template that is taken where there are tools, or NULL. */
static tt_status parse_texts(tt_chat_template *t, const tt_chat_source *plain,
                             const tt_chat_source *tools, tt_chat_template **out, tt_error *err)
{
    tt_status s = parse_form(t, plain->name, plain->text, plain->n, &t->form, err);
    if (s == TT_OK && tools && tools->text)
        s = parse_form(t, tools->name, tools->text, tools->n, &t->with_tools, err);
    if (s == TT_OK)
        *out = t;
    else
        tt_chat_template_close(t);
    return s;
}

tt_status tt_chat_template_text(const char *name, const char *text, size_t n, const char *bos,
                                const char *eos, tt_chat_template **out, tt_error *err)
{
    tt_chat_template *t = new_template(name);
    if (bos)
        put_constant(t, "bos_token", bos);
    if (eos)
        put_constant(t, "eos_token", eos);
    const tt_chat_source plain = {t->name, text, n};
    return parse_texts(t, &plain, NULL, out, err);
}

void tt_chat_template_close(tt_chat_template *t)
{
    if (t)
        tt_arena_free(t->arena);
}

/* ---- tokenizer_config.json ---- */

/* A token is a string, or an object with its "content". */
static const char *token_text(const tt_json *v)
{
    const tt_json *content = v && v->type == TT_JSON_OBJECT ? tt_json_get(v, "content") : v;
    return content && content->type == TT_JSON_STRING ? content->string : NULL;
}

static void take_tokens(tt_chat_template *t, const tt_json *config)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                       "sep_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const char *text = token_text(tt_json_get(config, keys[i]));
        if (text)
            put_constant(t, keys[i], text);
    }
}

/* A text, which is the default one, or a list of named ones. */
static const char *template_of(const tt_json *config, const char *wanted)
{
    const tt_json *v = tt_json_get(config, "chat_template");
    if (v && v->type == TT_JSON_STRING && !strcmp(wanted, "default"))
        return v->string;
    for (size_t i = 0; v && v->type == TT_JSON_ARRAY && i < v->n; i++) {
        const tt_json *name = tt_json_get(v->items[i], "name"),
                      *text = tt_json_get(v->items[i], "template");
        if (name && name->type == TT_JSON_STRING && !strcmp(name->string, wanted) && text &&
            text->type == TT_JSON_STRING)
            return text->string;
    }
    return NULL;
}

static tt_status read_file(tt_arena *a, const char *path, const char **text, size_t *n,
                           tt_error *err)
{
    char *bytes = NULL;
    TT_TRY(tt_read_file(path, MOST_BYTES, &bytes, n, err));
    *text = tt_arena_strn(a, bytes, *n);
    free(bytes);
    return TT_OK;
}

/* The files: of Jinja, and the configuration beside it; NULL: there is none. */
static void find_files(tt_arena *a, const char *path, const char **jinja, const char **config)
{
    const char *folder = path, *slash = strrchr(path, '/');
    *jinja = NULL;
    if (!is_template_folder(path)) {
        folder = slash ? tt_arena_strn(a, path, (size_t)(slash - path)) : ".";
        if (!tt_ends_with(path, ".json") && !tt_ends_with(path, ".model") &&
            !tt_ends_with(path, ".tiktoken"))
            *jinja = path;
    }
    const char *beside = tt_path_join(a, folder, "chat_template.jinja");
    if (!*jinja && tt_path_exists(beside))
        *jinja = beside;
    *config = tt_ends_with(path, "tokenizer_config.json")
                  ? path
                  : tt_path_join(a, folder, "tokenizer_config.json");
    if (!tt_path_exists(*config))
        *config = NULL;
}

static tt_status read_jinja(tt_arena *a, const char *path, tt_chat_source *out, tt_error *err)
{
    out->name = path;
    return read_file(a, path, &out->text, &out->n, err);
}

/* additional_chat_templates/tool_use.jinja, or that of this name in tokenizer_config.json; beside a template of a
 * folder, not for a file of Jinja that is named. */
static tt_status find_tools(tt_arena *a, const char *folder, const char *config,
                            const tt_json *root, tt_chat_source *out, tt_error *err)
{
    const char *file = tt_path_join(a, folder, "additional_chat_templates/tool_use.jinja");
    if (tt_path_exists(file))
        return read_jinja(a, file, out, err);
    out->text = root ? template_of(root, "tool_use") : NULL;
    out->n = out->text ? strlen(out->text) : 0;
    out->name = tt_arena_printf(a, "%s: chat_template tool_use", config ? config : folder);
    return TT_OK;
}

/* *root_out: what tokenizer_config.json has; NULL: there is none. */
static tt_status read_sources(tt_arena *a, const char *path, const char *tokenizer,
                              tt_chat_source *plain, tt_chat_source *tools,
                              const tt_json **root_out, tt_error *err)
{
    const char *jinja, *config, *json, *own;
    const tt_json *root = NULL;
    size_t n;
    find_files(a, path, &jinja, &config);
    if (jinja && !config && tokenizer)
        find_files(a, tokenizer, &own, &config);
    if (config) {
        TT_TRY(read_file(a, config, &json, &n, err));
        TT_TRY(tt_json_parse(a, config, json, n, &root, err));
    }
    *root_out = root;
    if (jinja != path) {
        const char *slash = strrchr(path, '/'),
                   *folder = is_template_folder(path) ? path
                             : slash ? tt_arena_strn(a, path, (size_t)(slash - path))
                                     : ".";
        TT_TRY(find_tools(a, folder, config, jinja ? NULL : root, tools, err));
    }
    if (jinja)
        return read_jinja(a, jinja, plain, err);
    plain->text = root ? template_of(root, "default") : NULL;
    if (!plain->text)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: there is no chat template: no chat_template.jinja, and no "
                       "\"chat_template\" in tokenizer_config.json",
                       path);
    plain->name = tt_arena_printf(a, "%s: chat_template", config);
    plain->n = strlen(plain->text);
    return TT_OK;
}

/* For tokenizers that have none: turns between <|im_start|> and <|im_end|>, as many models have them. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ message.content + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

bool tt_chat_template_is_built_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strcmp(slash ? slash + 1 : path, "chatml") && !tt_path_exists(path);
}

tt_status tt_chat_template_sources(tt_arena *a, const char *path, tt_chat_source *plain,
                                   tt_chat_source *tools, tt_error *err)
{
    const tt_json *root;
    *plain = (tt_chat_source){"chatml", chatml, sizeof chatml - 1};
    *tools = (tt_chat_source){0};
    return tt_chat_template_is_built_in(path)
               ? TT_OK
               : read_sources(a, path, NULL, plain, tools, &root, err);
}

tt_status tt_chat_template_open_for(const char *path, const char *tokenizer, tt_chat_template **out,
                                    tt_error *err)
{
    if (tt_chat_template_is_built_in(path))
        return tt_chat_template_text("chatml", chatml, sizeof chatml - 1, NULL, NULL, out, err);
    tt_chat_template *t = new_template(path);
    tt_chat_source plain = {0}, tools = {0};
    const tt_json *root = NULL;
    const tt_status s = read_sources(t->arena, path, tokenizer, &plain, &tools, &root, err);
    if (s == TT_OK) {
        take_tokens(t, root);
        return parse_texts(t, &plain, &tools, out, err);
    }
    tt_chat_template_close(t);
    return s;
}

tt_status tt_chat_template_open(const char *path, tt_chat_template **out, tt_error *err)
{
    return tt_chat_template_open_for(path, NULL, out, err);
}
