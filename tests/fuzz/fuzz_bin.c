/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/bin_format.h"
#include "base/base.h"
#include <sys/mman.h>

/* Any bytes as a file of tokens, in each format: refused, or a layout within the bytes. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    bin_file f = {.path = "/nowhere/x", .fd = memfd_create("fuzz", 0), .n = n};
    f.n_head = TT_MIN(n, sizeof f.head);
    if (n > 0)
        memcpy(f.head, bytes, f.n_head);
    if (f.fd < 0 || write(f.fd, bytes, n) != (ssize_t)n)
        abort();
    for (int width = 0; width <= 4; width += 2) {
        const bin_layout before = {7, 7, 7};
        bin_layout at = before;
        tt_error err = {0};
        if (bin_layout_of(&f, width, &at, &err) == TT_OK) {
            TT_ASSERT(at.width == 2 || at.width == 4);
            TT_ASSERT(at.n >= 0 && at.first >= 0 && at.first <= (int64_t)n);
            TT_ASSERT(at.n <= ((int64_t)n - at.first) / at.width);
        } else {
            TT_ASSERT(err.text[0] && memcmp(&at, &before, sizeof at) == 0);
        }
    }
    close(f.fd);
    return 0;
}
