/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"
#include <string.h>

/* The types of values: how many elements a type has, how a message shows it, and the message of a
 * shape rule that refuses its operands. */

bool tt_dim_same_size(const tt_dim *a, const tt_dim *b)
{
    return a->size == b->size;
}

int64_t tt_type_numel(const tt_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (!tt_mul_i64(n, t->dims[i].size, &n))
            return INT64_MAX;
    return n;
}

bool tt_type_has_dims(const tt_type *t, const tt_dim *dims, int n)
{
    bool same = t->n_dims == n;
    for (int i = 0; same && i < n; i++)
        same = t->dims[i].size == dims[i].size && t->dims[i].unit == dims[i].unit;
    return same;
}

/* Appends as much as `text` has room for, and returns the new length. */
static size_t append_text(char *text, size_t size, size_t n, const char *more)
{
    while (*more && n + 1 < size)
        text[n++] = *more++;
    if (size)
        text[n] = '\0';
    return n;
}

void tt_type_print(const tt_type *t, char *text, size_t size)
{
    char number[TT_I64_TEXT];
    size_t n = append_text(text, size, 0, tt_dtype_name(t->dtype));
    n = append_text(text, size, n, "[");
    for (int i = 0; i < t->n_dims; i++) {
        const tt_dim *d = &t->dims[i];
        n = append_text(text, size, n, i ? ", " : "");
        n = append_text(text, size, n, tt_i64_text(d->size, number));
        n = append_text(text, size, n, d->label ? " " : "");
        n = append_text(text, size, n, d->label ? d->label : "");
    }
    append_text(text, size, n, "]");
}

/* The types of the operands: "T, U and V", or "T (4 times)" if more than two in a row are equal. */
static void print_types(const tt_shape_query *q, char *out, size_t size)
{
    size_t n = 0;
    for (int i = 0, next; i < q->n_in && n < size - 1; i = next) {
        char one[160], other[160], times[32] = "";
        tt_type_print(q->in[i], one, sizeof one);
        for (next = i + 1; next < q->n_in; next++) {
            tt_type_print(q->in[next], other, sizeof other);
            if (strcmp(one, other))
                break;
        }
        if (next - i > 2)
            snprintf(times, sizeof times, " (%d times)", next - i);
        else
            next = i + 1;
        const int k = snprintf(out + n, size - n, "%s%s%s",
                               i == 0            ? ""
                               : next == q->n_in ? " and "
                                                 : ", ",
                               one, times);
        n += k > 0 ? (size_t)k : 0;
    }
}

tt_status tt_infer_fail(const tt_shape_query *q, tt_error *err, const char *fmt, ...)
{
    char what[400], types[480] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    print_types(q, types, sizeof types);
    if (q->n_in == 0)
        return TT_FAIL(err, TT_EINVAL, "%s: %s", q->op, what);
    return TT_FAIL(err, TT_EINVAL, "%s: %s, got %s", q->op, what, types);
}
