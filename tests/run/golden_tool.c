/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config/config.h"
#include "http_client.h"
#include <math.h>
#include <sys/stat.h>

/* Cases of tests/golden/serve.json, for test_text_tokens.sh.
 *   golden_tool FILE I write FOLDER   makes the Hugging Face folder of case I
 *   golden_tool FILE I ask PORT       sends its requests to a server, completions and chats also as streams, and compares
 *                                     the answers; prints what differs
 * An answer may have more members than are wanted. */

#define NEAR                                                                                       \
    2e-4 /* of log-probabilities: float32 in another order, through two layers with lively weights */

static void fail(const char *what)
{
    fprintf(stderr, "golden_tool: %s\n", what);
    exit(2);
}

static const tt_json *member(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    if (!v)
        fail(key);
    return v;
}

/* ---- the folder ---- */

/* values() of serve_golden.py */
static float element(int64_t k, int64_t seed, int64_t i, double scale, double offset)
{
    int64_t h = (i + 1) * 2654435761 + (k + 1) * 40503 + seed * 97561;
    for (int n = 0; n < 2; n++)
        h = (int64_t)((uint64_t)((h ^ (h >> 15)) * 73244475) & 0xffffffff);
    const double u = (double)(h >> 8) / (1 << 24);
    return (float)(offset + (u - 0.5) * scale);
}

static int64_t n_elements(const tt_json *shape)
{
    int64_t n = 1;
    for (size_t d = 0; d < shape->n; d++)
        n *= shape->items[d]->integer;
    return n;
}

static void write_weights(const tt_json *c, const char *path)
{
    const tt_json *list = member(c, "tensors");
    tt_str head = {0};
    int64_t at = 0;
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *t = list->items[i], *shape = member(t, "shape");
        const int64_t bytes = 4 * n_elements(shape);
        tt_str_printf(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":", i ? "," : "{",
                      member(t, "name")->string);
        tt_json_write(shape, &head);
        tt_str_printf(&head, ",\"data_offsets\":[%lld,%lld]}", (long long)at,
                      (long long)(at + bytes));
        at += bytes;
    }
    tt_str_addc(&head, '}');
    FILE *f = fopen(path, "wb");
    const uint64_t n = head.n;
    if (!f)
        fail(path);
    fwrite(&n, 8, 1, f);
    fwrite(head.s, 1, head.n, f);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *t = list->items[i], *shape = member(t, "shape");
        const int64_t all = n_elements(shape), row = all / shape->items[0]->integer,
                      loud = member(t, "loud")->integer;
        for (int64_t e = 0; e < all; e++) {
            float x = element((int64_t)i, member(c, "seed")->integer, e, member(t, "scale")->real,
                              member(t, "offset")->real);
            if (loud && e / row >= loud)
                x /= 64;
            fwrite(&x, 4, 1, f);
        }
    }
    fclose(f);
    tt_str_free(&head);
}

static void write_folder(tt_arena *a, const tt_json *c, const char *folder)
{
    const tt_json *files = member(c, "files");
    mkdir(folder, 0777);
    for (size_t i = 0; i < files->n; i++) {
        tt_str text = {0};
        tt_error err = {0};
        tt_json_write(files->items[i], &text);
        if (tt_write_file_atomic(tt_path_join(a, folder, files->keys[i]), text.s, text.n, &err) !=
            TT_OK)
            fail(err.text);
        tt_str_free(&text);
    }
    write_weights(c, tt_path_join(a, folder, "model.safetensors"));
}

/* ---- answers ---- */

static bool is_number(const tt_json *v)
{
    return v->type == TT_JSON_INT || v->type == TT_JSON_REAL;
}

/* where: the path, for the line that says what differs. */
static bool matches(const tt_json *want, const tt_json *got, const char *where)
{
    char path[256];
    if (got && is_number(want) && is_number(got)) {
        if (fabs(want->real - got->real) <= (want->type == TT_JSON_INT ? 0 : NEAR))
            return true;
    } else if (got && want->type == got->type) {
        bool same = want->type != TT_JSON_ARRAY || want->n == got->n;
        if (want->type == TT_JSON_STRING)
            same = !strcmp(want->string, got->string);
        if (want->type == TT_JSON_BOOL)
            same = want->boolean == got->boolean;
        for (size_t i = 0; same && i < want->n; i++) {
            const bool list = want->type == TT_JSON_ARRAY;
            if (list)
                snprintf(path, sizeof path, "%s.%zu", where, i);
            else
                snprintf(path, sizeof path, "%s.%s", where, want->keys[i]);
            if (!matches(want->items[i], list ? got->items[i] : tt_json_get(got, want->keys[i]),
                         path))
                return false;
        }
        if (same)
            return true;
    }
    tt_str w = {0}, g = {0};
    tt_json_write(want, &w);
    if (got)
        tt_json_write(got, &g);
    printf("%s: wanted %.600s, got %.600s\n", where, tt_str_get(&w), got ? g.s : "nothing");
    tt_str_free(&w);
    tt_str_free(&g);
    return false;
}

/* The events of a stream as one answer. */
static void join_events(tt_arena *a, char *body, bool chat, tt_str *out)
{
    static const char *const lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset",
                                        "content"};
    tt_str text = {0}, joined[TT_COUNT(lists)] = {{0}}, usage = {0};
    const char *finish = "none";
    for (char *line = strtok(body, "\n"); line; line = strtok(NULL, "\n")) {
        const tt_json *root = NULL;
        tt_error err = {0};
        if (strncmp(line, "data: {", 7) != 0)
            continue;
        if (tt_json_parse(a, "event", line + 6, strlen(line + 6), &root, &err) != TT_OK)
            fail(err.text);
        const tt_json *choices = member(root, "choices");
        if (tt_json_get(root, "usage"))
            tt_json_write(tt_json_get(root, "usage"), &usage);
        if (!choices->n)
            continue;
        const tt_json *x = choices->items[0],
                      *piece = chat ? tt_json_get(tt_json_get(x, "delta"), "content")
                                    : tt_json_get(x, "text"),
                      *why = tt_json_get(x, "finish_reason"), *scores = tt_json_get(x, "logprobs");
        if (piece && piece->type == TT_JSON_STRING)
            tt_str_add(&text, piece->string);
        finish = why && why->type == TT_JSON_STRING ? why->string : finish;
        for (size_t k = 0; k < TT_COUNT(lists); k++) {
            const tt_json *list = tt_json_get(scores, lists[k]);
            for (size_t i = 0; list && i < list->n; i++) {
                tt_str_add(&joined[k], joined[k].n ? "," : "");
                tt_json_write(list->items[i], &joined[k]);
            }
        }
    }
    tt_str_add(out, chat ? "{\"choices\":[{\"message\":{\"content\":" : "{\"choices\":[{\"text\":");
    tt_str_json(out, tt_str_get(&text));
    tt_str_printf(out, "%s,\"finish_reason\":\"%s\",\"logprobs\":", chat ? "}" : "", finish);
    for (size_t k = 0; k < TT_COUNT(lists); k++) {
        tt_str_printf(out, "%s\"%s\":[%s]", k ? "," : "{", lists[k], tt_str_get(&joined[k]));
        tt_str_free(&joined[k]);
    }
    tt_str_printf(out, "}}],\"usage\":%s}", tt_str_get(&usage));
    tt_str_free(&text);
    tt_str_free(&usage);
}

/* Asks, once whole or as a stream, and compares. */
static bool ask(tt_arena *a, const char *port, const tt_json *request, bool streams, size_t number)
{
    const char *path = member(request, "path")->string;
    tt_str body = {0}, joined = {0};
    tt_error err = {0};
    const tt_json *got = NULL;
    char where[64];
    size_t n;
    tt_json_write(member(request, "body"), &body);
    if (streams) {
        body.s[--body.n] = '\0'; /* the brace */
        tt_str_add(&body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    }
    const int fd = http_connect(port);
    http_request(fd, "POST", path, tt_str_get(&body), "X: y");
    char *all = http_receive(fd, &n), *answer = http_body(all, &n);
    close(fd);
    if (!answer)
        fail("no answer");
    if (streams)
        join_events(a, answer, strstr(path, "chat") != NULL, &joined);
    const char *text = streams ? tt_str_get(&joined) : answer;
    snprintf(where, sizeof where, "request %zu%s", number, streams ? ", a stream" : "");
    if (tt_json_parse(a, where, text, strlen(text), &got, &err) != TT_OK)
        fail(err.text);
    const bool same = matches(member(request, "want"), got, where);
    if (!same)
        printf("  %s %s\n  %s\n", path, tt_str_get(&body), text);
    tt_str_free(&body);
    tt_str_free(&joined);
    free(all);
    return same;
}

int main(int argc, char **argv)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    const tt_json *root = NULL;
    char *text = NULL;
    size_t n;
    bool same = true;
    if (argc < 5)
        fail("usage: golden_tool FILE I write FOLDER | FILE I ask PORT");
    if (tt_read_file(argv[1], 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(a, argv[1], text, n, &root, &err) != TT_OK)
        fail(err.text);
    const tt_json *cases = member(root, "cases");
    const size_t i = strtoul(argv[2], NULL, 10);
    if (i >= cases->n)
        fail("there is no such case");
    if (!strcmp(argv[3], "write"))
        write_folder(a, cases->items[i], argv[4]);
    const tt_json *list = member(cases->items[i], "requests");
    for (size_t k = 0; !strcmp(argv[3], "ask") && k < list->n; k++) {
        same = ask(a, argv[4], list->items[k], false, k) && same;
        if (!strncmp(member(list->items[k], "path")->string, "/v1/", 4))
            same = ask(a, argv[4], list->items[k], true, k) && same;
    }
    free(text);
    tt_arena_free(a);
    return same ? 0 : 1;
}
