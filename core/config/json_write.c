/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include <math.h>

/* Writes a tree of JSON as text. */

static void write_value(const tt_json *v, bool exact, tt_str *out)
{
    bool object = v->type == TT_JSON_OBJECT;
    switch (v->type) {
    case TT_JSON_NULL:
        tt_str_add(out, "null");
        break;
    case TT_JSON_BOOL:
        tt_str_add(out, v->boolean ? "true" : "false");
        break;
    case TT_JSON_INT:
        tt_str_printf(out, "%lld", (long long)v->integer);
        break;
    case TT_JSON_REAL:
        if (exact && v->digits)
            tt_str_add(out, v->digits);
        else if (isinf(v->real)) /* reads back as infinite; "null" would be another value */
            tt_str_add(out, v->real < 0 ? "-1e999" : "1e999");
        else
            tt_str_json_number(out, v->real);
        break;
    case TT_JSON_STRING:
        tt_str_json(out, v->string);
        break;
    case TT_JSON_ARRAY:
    case TT_JSON_OBJECT:
        tt_str_addc(out, object ? '{' : '[');
        for (size_t i = 0; i < v->n; i++) {
            if (i)
                tt_str_addc(out, ',');
            if (object) {
                tt_str_json(out, v->keys[i]);
                tt_str_addc(out, ':');
            }
            write_value(v->items[i], exact, out);
        }
        tt_str_addc(out, object ? '}' : ']');
        break;
    }
}

void tt_json_write(const tt_json *v, tt_str *out)
{
    write_value(v, false, out);
}

void tt_json_write_exact(const tt_json *v, tt_str *out)
{
    write_value(v, true, out);
}
