/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../plugins/hf_sources.h"
#include "base/base.h"
#include "encode_and_decode.h"

/* tokenizer.json, and texts through the tokenizer it gives. A seed would be long with the 256 bytes
 * that every vocabulary needs, so they are inserted where the input has BYTES (and the ids of other
 * tokens begin at 256). What follows a newline and %% is text to encode. */

extern const int fuzz_runs;
const int fuzz_runs = 2000;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static tt_status add_alphabet(hf_bytes *out)
{
    for (int b = 0, other = 0x100; b < 256; b++) {
        const bool prints = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        const int c = prints ? b : other++;
        char text[24];
        snprintf(text, sizeof text, "\"\\u%04x\":%d%s", (unsigned)c, b, b < 255 ? "," : "");
        TT_TRY(hf_bytes_add(out, text, strlen(text), NULL));
    }
    return TT_OK;
}

/* The input with BYTES spelt out. */
static tt_status expand(const uint8_t *s, size_t n, hf_bytes *out)
{
    for (size_t i = 0, times = 0; i < n; i++) {
        if (times < 4 && n - i >= 5 && memcmp(s + i, "BYTES", 5) == 0) {
            TT_TRY(add_alphabet(out));
            times++;
            i += 4;
        } else {
            TT_TRY(hf_bytes_add(out, s + i, 1, NULL));
        }
    }
    return TT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const uint8_t *mark = n ? memmem(bytes, n, "\n%%", 3) : NULL;
    const size_t n_json = mark ? (size_t)(mark - bytes) : n;
    hf_bytes json = {0};
    tt_error err = {0};
    hf_tokenizer *t = hf_new();
    if (t && expand(bytes, n_json, &json) == TT_OK) {
        t->allow_special = n & 1;
        if (hf_load_text(t, json.s ? (char *)json.s : "", json.n, NULL, 0, &err) == TT_OK)
            encode_and_decode(t, mark ? mark + 3 : bytes, mark ? n - n_json - 3 : n);
        else
            TT_ASSERT(err.text[0] && !strchr(err.text, '\n'));
    }
    hf_close(t);
    free(json.s);
    return 0;
}
