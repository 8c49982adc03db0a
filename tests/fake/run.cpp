/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what is on streams, inside the calls of a thread that waits. */
#include "driver.h"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_MESSAGE = 60 };

static std::condition_variable_any changed;
static uint64_t n_changes; /* operations added or run: a waiting thread looks again */
static bool in_operation;

void fake_note_change()
{
    n_changes++;
    changed.notify_all();
}
bool fake_in_operation()
{
    return in_operation;
}

static void finish(fake_ticket *t)
{
    t->done = true;
    t->seconds = fake_now();
}

/* The stream's device has failed: nothing runs any more, and nobody waits for it. */
static bool skip(fake_stream *s)
{
    const fake_op op = std::move(s->ops.front());
    s->ops.pop_front();
    if (op.ticket)
        finish(op.ticket.get());
    return true;
}

static bool step_item(fake_stream *s)
{
    fake_op &op = s->ops.front();
    fake_item *i = op.item.get();
    bool moved = false;
    in_operation = true;
    fake_open(-1);
    if (!op.arrived) {
        op.arrived = moved = true;
        if (i->at_head)
            i->at_head(i->arg);
    }
    const bool can = !i->ready || i->ready(i->arg);
    if (can) {
        i->run(i->arg);
        fake_check_edges(i->name);
        const fake_op over = std::move(s->ops.front());
        s->ops.pop_front();
    }
    in_operation = false;
    return moved || can;
}

static void run_host_function(fake_stream *s)
{
    s->busy = true;
    fake_close();
    const std::function<void()> run = s->ops.front().run;
    fake_lock.unlock();
    run();
    fake_lock.lock();
    s->busy = false;
    s->ops.pop_front();
}

/* Runs the operation at the head of the stream, if it can. */
static bool step(fake_stream *s)
{
    if (s->ops.empty() || s->busy)
        return false;
    fake_op &op = s->ops.front();
    if (fake_devices[static_cast<size_t>(s->device)]->failed)
        return skip(s);
    if (op.kind == FAKE_WAIT && !op.ticket->done)
        return false;
    if (op.kind == FAKE_ITEM)
        return step_item(s);
    if (op.kind == FAKE_HOST) {
        run_host_function(s);
        return true;
    }
    if (op.kind == FAKE_RECORD)
        finish(op.ticket.get());
    if (op.kind == FAKE_RUN) {
        in_operation = true;
        fake_open(s->device);
        op.run();
        in_operation = false;
    }
    s->ops.pop_front();
    return true;
}

/* The stream with the highest number goes first, as far as it can; numbers are drawn anew now and then. So one stream gets
 * far ahead of another more often than by drawing the stream of each step. */
static bool step_any(const std::set<fake_stream *> *of = nullptr)
{
    static std::vector<fake_stream *> order;
    const bool is_new = order.size() != fake_streams.size();
    if (is_new) {
        order.clear();
        for (auto &s : fake_streams)
            order.push_back(s.get());
    }
    const bool redraw = !fake_draw(8) && !order.empty();
    if (redraw)
        order[fake_draw(static_cast<unsigned>(order.size()))]->turn = fake_draw(1u << 30);
    if (redraw || is_new)
        std::stable_sort(
            order.begin(), order.end(),
            [](const fake_stream *a, const fake_stream *b) { return a->turn > b->turn; });
    for (fake_stream *s : order)
        if ((!of || of->count(s)) && step(s)) {
            n_changes++;
            return true;
        }
    return false;
}

/* The streams that the ticket needs, as far as events tell. */
static std::set<fake_stream *> needed_for(const fake_ticket *t)
{
    std::set<fake_stream *> all;
    std::vector<const fake_ticket *> open = {t};
    while (!open.empty()) {
        const fake_ticket *next = open.back();
        open.pop_back();
        if (next->done || !next->stream || !all.insert(next->stream).second)
            continue;
        for (const fake_op &op : next->stream->ops)
            if (op.kind == FAKE_WAIT)
                open.push_back(op.ticket.get());
    }
    return all;
}

[[noreturn]] static void tell_deadlock()
{
    fprintf(stderr, "fake cuda: deadlock: nothing on any stream can run\n");
    int told = 0;
    for (auto &s : fake_streams)
        if (!s->ops.empty() && told++ < MAX_MESSAGE) {
            const fake_op &op = s->ops.front();
            if (op.kind == FAKE_WAIT)
                fprintf(stderr, "  device %d, stream %d waits for an event of stream %d", s->device,
                        s->id, op.ticket->stream->id);
            else
                fprintf(stderr, "  device %d, stream %d is at %s", s->device, s->id,
                        op.item ? op.item->name : op.name.c_str());
            fprintf(stderr, ", %zu operations\n", s->ops.size());
        }
    fake_abort("deadlock");
}

/* Until `over`; the lock is held, once. */
static void drive(const std::function<bool()> &over, const fake_ticket *towards,
                  std::unique_lock<std::recursive_mutex> &lock)
{
    static const char *text = getenv("FAKE_CUDA_PATIENCE");
    static const int patience = text ? atoi(text) : 0;
    const bool lazy = towards && fake_seed() % 2 == 0;
    if (in_operation)
        fake_abort("an item waits for the driver");
    fake_watch_thread();
    std::set<fake_stream *> needed;
    while (!over()) {
        if (lazy && step_any(&needed))
            continue;
        uint64_t seen = n_changes;
        if (lazy && step_any(&(needed = needed_for(towards))))
            continue;
        /* what the wait needs is up to other threads: they may first put more on their streams */
        if (lazy &&
            changed.wait_for(lock, std::chrono::milliseconds(1), [&] { return n_changes != seen; }))
            continue;
        if (over() || step_any())
            continue;
        fake_close();
        changed.notify_all();
        seen = n_changes;
        const auto goes_on = [&] { return n_changes != seen || over(); };
        if (!patience)
            changed.wait(lock, goes_on);
        else if (!changed.wait_for(lock, std::chrono::seconds(patience), goes_on))
            tell_deadlock();
    }
    fake_close();
    changed.notify_all();
}

int fake_await(const fake_ticket_ref &t, std::unique_lock<std::recursive_mutex> &lock, int device)
{
    drive([&] { return t->done; }, t.get(), lock);
    return fake_devices[static_cast<size_t>(device)]->failed;
}

void fake_run_all()
{
    fake_watch_thread();
    while (step_any())
        continue;
    fake_close();
    changed.notify_all();
}

void fake_run_some()
{
    fake_watch_thread();
    if (fake_draw(2) && step_any()) {
        fake_close();
        changed.notify_all();
    }
}
