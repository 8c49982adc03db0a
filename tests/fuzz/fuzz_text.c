/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t v = tt_utf8_valid((const char *)data, size);
    TT_ASSERT(v <= size && tt_utf8_valid((const char *)data, v) == v);
    tt_str s = {0};
    char *text = strndup((const char *)data, size);
    tt_str_json(&s, text);
    TT_ASSERT(tt_utf8_valid(s.s, s.n) == s.n); /* whatever comes in, JSON comes out */
    tt_str_free(&s);
    free(text);
    return 0;
}
