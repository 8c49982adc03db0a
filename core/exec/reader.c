/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <stdlib.h>

/* Copies of states to host memory while the program goes on. */

struct tt_exec_reader {
    tt_exec *x;
    tt_device_queue *queue;
    tt_device_event *begun; /* the program's work before tt_exec_reader_begin */
    tt_stage stage;
};

static tt_status open_reader(tt_exec_reader *r, tt_error *err)
{
    const tt_device *d = &r->x->o.device;
    TT_TRY(tt_device_queue_new(d, false, &r->queue, err));
    TT_TRY(tt_device_event_new(d, false, &r->begun, err));
    return tt_stage_open(&r->stage, d, (size_t)TT_STAGE_BYTES, err);
}

tt_status tt_exec_reader_new(tt_exec *x, tt_exec_reader **out, tt_error *err)
{
    tt_exec_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return TT_FAIL(err, TT_ENOMEM, "no memory for copies of the states");
    r->x = x;
    const tt_status s = open_reader(r, err);
    if (s != TT_OK)
        tt_exec_reader_free(r);
    else
        *out = r;
    return s;
}

void tt_exec_reader_free(tt_exec_reader *r)
{
    if (!r)
        return;
    tt_device_queue_free(&r->x->o.device, r->queue); /* its copies are done then */
    tt_device_event_free(&r->x->o.device, r->begun);
    tt_stage_close(&r->stage);
    free(r);
}

tt_status tt_exec_reader_begin(tt_exec_reader *r, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(r->x);
    TT_TRY(tt_device_record(&m->device, r->begun, m->queue, err));
    return tt_device_wait(&m->device, r->queue, r->begun, err);
}

tt_status tt_exec_reader_copy(tt_exec_reader *r, void *to, const void *from, size_t bytes,
                              tt_error *err)
{
    TT_TRY(tt_device_enter(&r->x->o.device, err));
    return tt_stage_read(&r->stage, r->queue, to, from, bytes, err);
}
