/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/bin_format.h"
#include "base/base.h"

/* Any bytes as a file of tokens, in each format: refused, or a layout within the bytes. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    for (int width = 0; width <= 4; width += 2) {
        const bin_layout before = {7, 7, 7};
        bin_layout at = before;
        tt_error err = {0};
        unsigned char *copy = malloc(n > 0 ? n : 1); /* of that very size, for the sanitizer */
        if (!copy)
            return 0;
        if (n > 0)
            memcpy(copy, bytes, n);
        if (bin_layout_of("/nowhere/x", copy, n, width, &at, &err) == TT_OK) {
            TT_ASSERT(at.width == 2 || at.width == 4);
            TT_ASSERT(at.n >= 0 && at.first >= 0 && at.first <= (int64_t)n);
            TT_ASSERT(at.n <= ((int64_t)n - at.first) / at.width);
        } else {
            TT_ASSERT(err.text[0] && memcmp(&at, &before, sizeof at) == 0);
        }
        free(copy);
    }
    return 0;
}
