/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/http.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <ttrun/option.h>

#include "loop_count.h"

#include "serve/http.c"

#include "loop_count_end.h"

/* What a stranger sends to `ttrun serve`: a head up to its empty line, then a body in chunks, whose data are the same in
 * whatever pieces they come. The work grows with the bytes, and not with their square. */

static void is_inside(const char *s, const char *text, size_t n)
{
    TT_ASSERT(!s || !strcmp(s, "/") || (s >= text && s + strlen(s) < text + n));
}

static void check_head(char *text, size_t n)
{
    tt_http_request r;
    const char *why = NULL;
    const int status = tt_http_read(text, n, &r, &why);
    TT_ASSERT((status >= 400 && why) || (!status && !why));
    if (status)
        return;
    const char *const all[] = {r.method, r.path, r.host, r.authorization, r.origin, r.content_type};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        is_inside(all[i], text, n);
    TT_ASSERT(r.method && *r.method && r.path && (r.host || r.old));
    TT_ASSERT(r.length >= -1 && !(r.chunked && r.length >= 0));
}

/* The data in pieces of `step` bytes. */
static tt_http_chunks unchunk(const uint8_t *bytes, size_t n, size_t step, tt_str *out)
{
    tt_http_chunks c = {0};
    size_t at = 0;
    while (at < n && !c.done && !c.bad) {
        const size_t k = TT_MIN(step, n - at);
        const char *data = NULL;
        size_t n_data;
        const size_t took = tt_http_unchunk(&c, (const char *)bytes + at, k, &data, &n_data);
        TT_ASSERT(took > 0 && took <= k && n_data <= took);
        if (n_data)
            tt_str_addn(out, data, n_data);
        at += took;
    }
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    size_t end = 0;
    loop_passes = 0;
    tt_str whole = {0}, pieces = {0};
    while (end + 4 <= n && memcmp(bytes + end, "\r\n\r\n", 4) != 0)
        end++;
    end = end + 4 <= n ? end + 4 : 0;
    if (end) {
        char *text = malloc(end);
        TT_ASSERT(text);
        memcpy(text, bytes, end);
        check_head(text, end);
        free(text);
    }
    const tt_http_chunks a = unchunk(bytes + end, n - end, SIZE_MAX, &whole),
                         b = unchunk(bytes + end, n - end, 1 + n % 7, &pieces);
    TT_ASSERT(a.done == b.done && a.bad == b.bad && whole.n == pieces.n);
    TT_ASSERT(!memcmp(tt_str_get(&whole), tt_str_get(&pieces), whole.n));
    TT_ASSERT(loop_passes <= 64 + 6 * (int64_t)n);
    tt_str_free(&whole);
    tt_str_free(&pieces);
    return 0;
}
