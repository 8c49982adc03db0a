/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include <string.h>

/* Copies between a device and ordinary host memory through pinned memory: while the device copies one
 * piece, the host copies the other. */

tt_status tt_stage_open(tt_stage *s, const tt_device *d, size_t piece_bytes, tt_error *err)
{
    *s = (tt_stage){.device = *d, .bytes = piece_bytes};
    tt_status st = TT_OK;
    for (int i = 0; !tt_device_is_host(d) && st == TT_OK && i < 2; i++) {
        st = tt_device_alloc_pinned(d, piece_bytes, &s->pinned[i], err);
        if (st == TT_OK)
            st = tt_device_event_new(d, false, &s->done[i], err);
    }
    if (st != TT_OK)
        tt_stage_close(s);
    return st;
}

void tt_stage_close(tt_stage *s)
{
    for (int i = 0; i < 2; i++) {
        tt_device_event_free(&s->device, s->done[i]);
        tt_device_free_pinned(&s->device, s->pinned[i], s->bytes);
        s->done[i] = NULL;
        s->pinned[i] = NULL;
    }
}

/* Piece i of a read has arrived: to its place. */
static tt_status take_piece(tt_stage *s, size_t i, char *host, size_t total, tt_error *err)
{
    const size_t at = i * s->bytes;
    TT_TRY(tt_device_sync(&s->device, s->done[i % 2], err));
    memcpy(host + at, s->pinned[i % 2], TT_MIN(s->bytes, total - at));
    return TT_OK;
}

tt_status tt_stage_read(tt_stage *s, tt_device_queue *q, void *host, const void *from, size_t bytes,
                        tt_error *err)
{
    const size_t n = (bytes + s->bytes - 1) / s->bytes;
    if (tt_device_is_host(&s->device)) {
        memmove(host, from, bytes);
        return TT_OK;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * s->bytes;
        if (i >= 2)
            TT_TRY(take_piece(s, i - 2, host, bytes, err));
        TT_TRY(tt_device_copy(&s->device, q, s->pinned[i % 2], (const char *)from + at,
                              TT_MIN(s->bytes, bytes - at), err));
        TT_TRY(tt_device_record(&s->device, s->done[i % 2], q, err));
    }
    for (size_t i = n > 2 ? n - 2 : 0; i < n; i++)
        TT_TRY(take_piece(s, i, host, bytes, err));
    return TT_OK;
}

tt_status tt_stage_write(tt_stage *s, tt_device_queue *q, void *to, const void *host, size_t bytes,
                         tt_error *err)
{
    if (tt_device_is_host(&s->device)) {
        memmove(to, host, bytes);
        return TT_OK;
    }
    for (size_t i = 0, at = 0; at < bytes; i++, at += s->bytes) {
        const size_t n = TT_MIN(s->bytes, bytes - at);
        TT_TRY(tt_device_sync(&s->device, s->done[i % 2], err));
        memcpy(s->pinned[i % 2], (const char *)host + at, n);
        TT_TRY(tt_device_copy(&s->device, q, (char *)to + at, s->pinned[i % 2], n, err));
        TT_TRY(tt_device_record(&s->device, s->done[i % 2], q, err));
    }
    for (int i = 0; i < 2; i++)
        TT_TRY(tt_device_sync(&s->device, s->done[i], err));
    return TT_OK;
}
