/* SPDX-License-Identifier: Apache-2.0 */
/* Capture: the operations of the captured streams, one branch per stream. A launch puts the first branch on the stream and
 * each other branch on a stream of its own, with new events for those between the branches. */
#include "driver.h"

struct fake_graph {
    std::shared_ptr<fake_capture> what;
};
struct fake_executable {
    std::shared_ptr<fake_capture> what;
    fake_ticket_ref last; /* the end of its last launch */
};

FAKE_API cuStreamBeginCapture_v2(void *stream, int)
{
    static uint64_t n_captures;
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(stream);
    if (!s || reinterpret_cast<uintptr_t>(stream) <= 1)
        return fake_refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                           "capture of the default stream, or of none");
    if (s->capture)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "a stream that is captured already");
    s->capture = std::make_shared<fake_capture>();
    s->capture->id = ++n_captures;
    s->capture->origin = s;
    s->capture->branches.push_back({s, s->device, {}});
    s->branch = 0;
    return CUDA_SUCCESS;
}

/* The end of each branch must be an event that another branch waits for. */
static bool all_joined(const fake_capture &c)
{
    for (size_t i = 1; i < c.branches.size(); i++) {
        const std::vector<fake_op> &ops = c.branches[i].ops;
        bool joined = false;
        for (const fake_branch &b : c.branches)
            for (const fake_op &op : b.ops)
                joined |= &b != &c.branches[i] && op.kind == FAKE_WAIT &&
                          ops.back().kind == FAKE_RECORD && op.ticket == ops.back().ticket;
        if (!joined)
            return false;
    }
    return true;
}

FAKE_API cuStreamEndCapture(void *stream, fake_graph **out)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(stream);
    *out = nullptr;
    if (!s || !s->capture || s->capture->origin != s)
        return fake_refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                           "cuStreamEndCapture: no capture began on this stream");
    const std::shared_ptr<fake_capture> c = s->capture;
    for (const fake_branch &b : c->branches)
        if (b.stream->capture == c)
            b.stream->capture.reset();
    if (!all_joined(*c))
        return fake_refuse(
            CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            "capture: work of another stream follows that no event joins to the first");
    *out = new fake_graph{c};
    return CUDA_SUCCESS;
}
FAKE_API cuStreamIsCapturing(void *stream, int *out)
{
    FAKE_ENTER;
    const fake_stream *s = fake_stream_of(stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = s->capture ? 1 : 0;
    return CUDA_SUCCESS;
}
/* Captures of the fake forbid nothing to other threads, whatever their mode. */
FAKE_API cuThreadExchangeStreamCaptureMode(int *mode)
{
    static thread_local int now;
    const int was = now;
    now = *mode;
    *mode = was;
    return CUDA_SUCCESS;
}

FAKE_API cuGraphInstantiateWithFlags(fake_executable **out, const fake_graph *g, unsigned long long)
{
    FAKE_ENTER;
    if (!g)
        return CUDA_ERROR_INVALID_VALUE;
    *out = new fake_executable{g->what, nullptr};
    return CUDA_SUCCESS;
}
FAKE_API cuGraphInstantiate(fake_executable **out, const fake_graph *g, unsigned long long flags)
{
    return cuGraphInstantiateWithFlags(out, g, flags);
}
FAKE_API cuGraphUpload(fake_executable *, void *)
{
    FAKE_ENTER;
    return CUDA_SUCCESS;
}
/* Operations other than records and waits: kernels, copies, fills, items. */
FAKE_API cuGraphGetNodes(const fake_graph *g, void *nodes, size_t *n)
{
    FAKE_ENTER;
    if (!g || nodes)
        return CUDA_ERROR_INVALID_VALUE;
    *n = 0;
    for (const fake_branch &b : g->what->branches)
        for (const fake_op &op : b.ops)
            *n += op.kind != FAKE_RECORD && op.kind != FAKE_WAIT;
    return CUDA_SUCCESS;
}

static void wait_on(fake_stream *s, const fake_ticket_ref &t)
{
    fake_add(s, {FAKE_WAIT, "a graph's order", nullptr, t, nullptr, false});
}

/* Adds a branch's operations to a stream; `fresh` has the events of this launch for those of the capture. */
static void add_branch(fake_stream *s, const fake_branch &b,
                       std::map<const fake_ticket *, fake_ticket_ref> &fresh)
{
    for (const fake_op &op : b.ops) {
        fake_op copy = op;
        if (op.ticket && op.ticket->capture) {
            fake_ticket_ref &t = fresh[op.ticket.get()];
            if (!t)
                t = std::make_shared<fake_ticket>();
            if (op.kind == FAKE_RECORD)
                t->stream = s;
            copy.ticket = t;
        }
        fake_add(s, std::move(copy));
    }
}

FAKE_API cuGraphLaunch(fake_executable *x, void *stream)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(stream);
    if (!x || !s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return fake_refuse(CUDA_ERROR_NOT_SUPPORTED, "cuGraphLaunch on a stream that is captured");
    std::map<const fake_ticket *, fake_ticket_ref> fresh;
    if (x->last)
        wait_on(s, x->last);
    const fake_ticket_ref begin = fake_record(s);
    for (size_t i = 1; i < x->what->branches.size(); i++) {
        const fake_branch &b = x->what->branches[i];
        fake_stream *own = fake_stream_new(b.device, 0);
        wait_on(own, begin);
        add_branch(own, b, fresh);
        own->in_use = false; /* free again when it is empty */
    }
    add_branch(s, x->what->branches[0], fresh);
    x->last = fake_record(s);
    return CUDA_SUCCESS;
}

FAKE_API cuGraphExecDestroy(fake_executable *x)
{
    FAKE_ENTER;
    delete x;
    return CUDA_SUCCESS;
}
FAKE_API cuGraphDestroy(fake_graph *g)
{
    FAKE_ENTER;
    delete g;
    return CUDA_SUCCESS;
}
