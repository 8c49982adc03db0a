/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/prompts.h"
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPT_BYTES ((size_t)1 << 30) /* size of a prompt file */

static void prompts_add(const tt_cli *cli, tt_prompts *p, size_t *cap, tt_prompt one)
{
    if (p->n == *cap) {
        const size_t more = *cap ? 2 * *cap : 16;
        tt_prompt *items = tt_arena_array(cli->arena, more, sizeof *items);
        if (p->n)
            memcpy(items, p->items, p->n * sizeof *items);
        p->items = items;
        *cap = more;
    }
    p->text = p->text || one.text;
    p->items[p->n++] = one;
}

static tt_status object(const char *path, int line, const tt_json *v, tt_prompt *out, tt_error *err)
{
    const tt_json *text = tt_json_get(v, "prompt"), *ids = tt_json_get(v, "ids");
    *out = (tt_prompt){0};
    if (text && !ids && text->type == TT_JSON_STRING) {
        out->text = text->string;
        out->n_bytes = strlen(text->string);
        return TT_OK;
    }
    if (!ids || text || ids->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL,
                       "%s:%d: expected an object with \"prompt\", a text, or \"ids\", a list",
                       path, line);
    for (size_t i = 0; i < ids->n; i++) {
        const tt_json *id = ids->items[i];
        if (id->type != TT_JSON_INT || id->integer < 0 || id->integer > INT32_MAX)
            return TT_FAIL(err, TT_EINVAL, "%s:%d: ids: element %zu is not a token id", path, line,
                           i + 1);
        TT_TRY(tt_ids_push(&out->ids, (int32_t)id->integer, err));
    }
    return TT_OK;
}

static tt_status read_line(const tt_cli *cli, const char *path, int line, bool json,
                           const char *text, size_t n, tt_prompts *p, size_t *cap, tt_error *err)
{
    const tt_json *v = NULL;
    tt_prompt one = {.text = tt_arena_strn(cli->arena, text, n), .n_bytes = n};
    if (json) {
        if (tt_json_parse(cli->arena, path, text, n, &v, err) != TT_OK)
            return tt_error_context(err, "line %d", line);
        const tt_status s = object(path, line, v, &one, err);
        if (s != TT_OK) {
            tt_ids_free(&one.ids);
            return s;
        }
    }
    prompts_add(cli, p, cap, one);
    return TT_OK;
}

static tt_status prompts_read_file(const tt_cli *cli, const char *path, tt_prompts *p, size_t *cap,
                                   tt_error *err)
{
    const bool json = tt_ends_with(path, ".jsonl");
    char *text = NULL;
    size_t n = 0;
    int line = 0;
    TT_TRY(tt_read_file(path, MAX_PROMPT_BYTES, &text, &n, err));
    tt_status s = TT_OK;
    for (size_t at = 0; s == TT_OK && at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t m = end ? (size_t)(end - text) - at : n - at;
        const size_t next = at + m + 1;
        m -= m && text[at + m - 1] == '\r';
        line++;
        if (m || !json)
            s = read_line(cli, path, line, json, text + at, m, p, cap, err);
        at = next;
    }
    free(text);
    return s;
}

tt_status tt_prompts_read(const tt_cli *cli, tt_prompts *out, tt_error *err)
{
    const char *path = tt_cli_option(cli, "prompts");
    size_t cap = 0;
    *out = (tt_prompts){0};
    for (size_t i = 0; i < cli->n_options; i++) {
        const char *text = cli->options[i].value;
        if (!strcmp(cli->options[i].key, "prompt"))
            prompts_add(cli, out, &cap, (tt_prompt){.text = text, .n_bytes = strlen(text)});
    }
    if (path)
        TT_TRY(prompts_read_file(cli, path, out, &cap, err));
    if (!out->n && path)
        return TT_FAIL(err, TT_EINVAL, "--prompts: %s contains no prompt", path);
    if (!out->n)
        prompts_add(cli, out, &cap, (tt_prompt){.text = "\n", .n_bytes = 1});
    return TT_OK;
}

tt_status tt_prompts_encode(tt_prompts *p, const tt_tokenizer_vt *vt, void *tokenizer,
                            const tt_tokenizer_info *info, tt_error *err)
{
    for (size_t i = 0; i < p->n; i++) {
        tt_prompt *one = &p->items[i];
        if (!one->text)
            continue;
        if (info->bos >= 0 && !info->omits_bos)
            TT_TRY(tt_ids_push(&one->ids, info->bos, err));
        if (TT_PLUGIN_CALL(vt->encode(tokenizer, one->text, one->n_bytes, &one->ids, err), err,
                           "tokenizer", NULL) != TT_OK)
            return tt_error_context(err, "prompt %zu", i + 1);
    }
    return TT_OK;
}

void tt_prompts_free(tt_prompts *p)
{
    for (size_t i = 0; i < p->n; i++)
        tt_ids_free(&p->items[i].ids);
    p->n = 0;
}
