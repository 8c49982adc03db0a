/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include <stdlib.h>

tt_status tt_json_read(tt_arena *a, const char *path, size_t max_bytes, const tt_json **out,
                       tt_error *err)
{
    char *text = NULL;
    size_t n = 0;
    TT_TRY(tt_read_file(path, max_bytes, &text, &n, err));
    const tt_status s = tt_json_parse(a, path, text, n, out, err);
    free(text);
    return s;
}

tt_status tt_json_read_object(tt_arena *a, const char *path, size_t max_bytes, const tt_json **out,
                              tt_error *err)
{
    const tt_json *v;
    TT_TRY(tt_json_read(a, path, max_bytes, &v, err));
    if (v->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "%s: expected an object", path);
    *out = v;
    return TT_OK;
}
