/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/dataloaders/bin_index.h"
#include "base/base.h"
#include <sys/mman.h>

/* Any bytes as a file of tokens, in each format: refused, or a layout within the bytes. */

/* Starts that were taken go up and lie within the file's tokens. */
static void check_starts(bin_starts *s, int64_t n_tokens)
{
    for (size_t i = 0; i < s->n; i++)
        TT_ASSERT(s->items[i] >= (i ? s->items[i - 1] : 0) && s->items[i] <= n_tokens);
    free(s->items);
}

static void check_documents(const bin_file *f, const bin_layout *at)
{
    bin_starts s = {0};
    tt_error err = {0};
    const tt_status status = bin_pbin_documents("x", f->fd, at, (int64_t)f->n, 0, &s, &err);
    TT_ASSERT(status == TT_OK || err.text[0]);
    check_starts(&s, at->n);
}

/* The bytes as x.idx: by its head, and as sequences whatever the head says. */
static void check_megatron(const bin_file *f)
{
    bin_megatron m = {0};
    tt_error err = {0};
    for (int width = 1; width <= 8; width *= 2) {
        bin_file bin = *f;
        bin.n = (size_t)width * f->head[0];
        if (bin_megatron_head(&bin, f->fd, &m, &err) == TT_OK)
            TT_ASSERT(m.n > 0 && m.bin_bytes == (int64_t)bin.n);
        if (f->n < MMIDIDX_HEADER + 28)
            continue;
        m = (bin_megatron){width, ((int64_t)f->n - MMIDIDX_HEADER - 16) / 12, 2, f->head[0]};
        bin_starts s = {0};
        const tt_status status = bin_megatron_documents("x", f->fd, &m, 0, &s, &err);
        TT_ASSERT(status == TT_OK || err.text[0]);
        check_starts(&s, m.bin_bytes);
    }
}

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
        const bin_layout before = {7, 7, 7, BIN_FLAT};
        bin_layout at = before;
        tt_error err = {0};
        if (bin_layout_of(&f, width, &at, &err) == TT_OK) {
            TT_ASSERT(at.width == 1 || at.width == 2 || at.width == 4);
            TT_ASSERT(at.n >= 0 && at.first >= 0 && at.first <= (int64_t)n);
            TT_ASSERT(at.n <= ((int64_t)n - at.first) / at.width);
            if (at.kind == BIN_PBIN)
                check_documents(&f, &at);
        } else {
            TT_ASSERT(err.text[0] && memcmp(&at, &before, sizeof at) == 0);
        }
    }
    check_megatron(&f);
    close(f.fd);
    return 0;
}
