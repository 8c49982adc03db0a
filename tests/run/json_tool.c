/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include <stdlib.h>
#include <string.h>

/* json_tool FILE [PATH [STEP]]: the value at a.b.c (a number: an element) of a JSON file; of a file
 * of JSON lines that of the last line, or of the one whose "step" is STEP. Strings without quotes; hex:PATH
 * writes the bytes whose hexadecimal numbers the string holds.
 * Status 1: not JSON; 2: no such value. */

static const tt_json *find(const tt_json *v, char *path)
{
    for (char *p = strtok(path, "."); p && v; p = strtok(NULL, ".")) {
        char *end;
        const unsigned long i = strtoul(p, &end, 10);
        if (v->type == TT_JSON_ARRAY)
            v = *end || i >= v->n ? NULL : v->items[i];
        else
            v = tt_json_get(v, p);
    }
    return v;
}

static const tt_json *parse(tt_arena *a, const char *name, char *text, size_t n, const char *step)
{
    tt_error err = {0};
    const tt_json *whole = NULL, *found = NULL;
    if (!step && tt_json_parse(a, name, text, n, &whole, &err) == TT_OK)
        return whole;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const tt_json *v;
        if (tt_json_parse(a, name, line, strlen(line), &v, &err) != TT_OK) {
            fprintf(stderr, "%s\n", err.text);
            return NULL;
        }
        const tt_json *at = tt_json_get(v, "step");
        if (!step || (at && at->integer == atoll(step)))
            found = v;
    }
    return found;
}

static void write_bytes(const char *hex)
{
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        putchar((int)byte);
}

int main(int argc, char **argv)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    tt_str out = {0};
    char *text = NULL;
    size_t n;
    int rc = 1;
    const tt_json *v = NULL;
    char *path = argc > 2 ? argv[2] : NULL;
    const bool bytes = path && !strncmp(path, "hex:", 4);
    if (argc > 1 && tt_read_file(argv[1], 0, &text, &n, &err) == TT_OK)
        v = parse(a, argv[1], text, n, argc > 3 ? argv[3] : NULL);
    if (v) {
        v = path ? find(v, path + (bytes ? 4 : 0)) : v;
        rc = v ? 0 : 2;
    }
    if (v && v->type == TT_JSON_STRING && bytes)
        write_bytes(v->string);
    else if (v && v->type == TT_JSON_STRING)
        puts(v->string);
    else if (v) {
        tt_json_write(v, &out);
        puts(tt_str_get(&out));
    }
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    tt_str_free(&out);
    free(text);
    tt_arena_free(a);
    return rc;
}
