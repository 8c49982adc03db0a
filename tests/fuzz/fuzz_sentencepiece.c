/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../plugins/hf_sources.h"
#include "base/base.h"
#include "encode_and_decode.h"

/* tokenizer.model, and texts through the tokenizer it gives. What follows a newline and %% is text
 * to encode. */

extern const int fuzz_runs;
const int fuzz_runs = 1500;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const uint8_t *mark = n ? memmem(bytes, n, "\n%%", 3) : NULL;
    const size_t n_model = mark ? (size_t)(mark - bytes) : n;
    hf_digest d = {1, 2};
    tt_error err = {0};
    hf_tokenizer *t = hf_new();
    if (t && (t->path = strdup("tokenizer.model"))) {
        if (hf_load_sentencepiece(t, n_model ? (const char *)bytes : "", n_model, NULL, &d, &err) ==
            TT_OK)
            encode_and_decode(t, mark ? mark + 3 : bytes, mark ? n - n_model - 3 : n);
        else
            TT_ASSERT(err.text[0] && !strchr(err.text, '\n'));
    }
    hf_close(t);
    return 0;
}
