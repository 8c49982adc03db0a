/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/hf_folder.h"
#include "checkpoint/folder.h"
#include <stdlib.h>
#include <string.h>

#define MAX_JSON_BYTES ((size_t)64 << 20)

bool tt_hf_is_folder(const char *folder)
{
    return tt_folder_has(folder, "config.json");
}

const char *tt_hf_job_name(tt_arena *a, const char *folder)
{
    return tt_path_join(a, folder, "config.json");
}

/* Reads a JSON file of the folder; NULL if the folder does not have it. */
static tt_status read_json(const char *folder, const char *name, tt_arena *a, const tt_json **out,
                           tt_error *err)
{
    const char *path = tt_path_join(a, folder, name);
    char *text = NULL;
    size_t n = 0;
    *out = NULL;
    if (!tt_path_exists(path))
        return TT_OK;
    TT_TRY(tt_read_file(path, MAX_JSON_BYTES, &text, &n, err));
    const tt_status s = tt_json_parse_tokens(a, path, text, n, out, err);
    free(text);
    return s;
}

/* Reads an id or a list of ids; null and an absent key give none. */
static tt_status read_ids(const char *folder, const char *file, const tt_json *v, tt_arena *a,
                          tt_hf_stops *out, tt_error *err)
{
    const size_t n = v->type == TT_JSON_ARRAY ? v->n : 1;
    out->ids = tt_arena_array(a, n + 1, sizeof *out->ids);
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_json *id = v->type == TT_JSON_ARRAY ? v->items[i] : v;
        if (id->type != TT_JSON_INT || id->integer < 0 || id->integer > INT32_MAX)
            return TT_FAIL(err, TT_EINVAL,
                           "%s/%s:%d:%d: eos_token_id: expected an id or a list of ids", folder,
                           file, id->line, id->column);
        out->ids[out->n++] = (int32_t)id->integer;
    }
    return TT_OK;
}

tt_status tt_hf_stops_of(const char *folder, tt_arena *a, tt_hf_stops *out, tt_error *err)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    const tt_json *root = NULL;
    *out = (tt_hf_stops){0};
    for (size_t i = 0; !out->n && i < TT_COUNT(files); i++) {
        TT_TRY(read_json(folder, files[i], a, &root, err));
        const tt_json *v = tt_json_get(root, "eos_token_id");
        if (v && v->type != TT_JSON_NULL)
            TT_TRY(read_ids(folder, files[i], v, a, out, err));
    }
    return TT_OK;
}
