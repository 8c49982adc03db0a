/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/call_log_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads the rings of a call log while their ranks may still run: which rank is behind, and a JSON file of each
 * rank. An entry that is written meanwhile is left out. */

typedef struct seen_call { /* a copy of an entry */
    tt_call_what w;
    uint64_t number;
    int64_t ended_ns;
    int32_t status;
} seen_call;

static bool read_entry(const tt_call_ring *r, uint64_t number, uint64_t entries, seen_call *out)
{
    const tt_call_entry *e = &r->entries[(number - 1) % entries];
    if (atomic_load_explicit(&e->number, memory_order_acquire) != number)
        return false;
    uint64_t words[TT_CALL_WORDS];
    for (size_t i = 0; i < TT_CALL_WORDS; i++)
        words[i] = atomic_load_explicit(&e->what[i], memory_order_acquire);
    memcpy(&out->w, words, sizeof words);
    out->number = number;
    out->ended_ns = atomic_load(&e->ended_ns);
    out->status = atomic_load(&e->status);
    return atomic_load(&e->number) == number;
}

static uint64_t oldest(const tt_call_ring *r, uint64_t entries)
{
    const uint64_t n = atomic_load(&r->n);
    return n > entries ? n - entries + 1 : 1;
}

static bool waits(const seen_call *c)
{
    return !c->ended_ns || c->status != TT_OK;
}

/* The oldest call that has not succeeded: what the rank waits in, or waited when it gave up. */
static bool find_waiting(const tt_call_ring *r, uint64_t entries, seen_call *out)
{
    const uint64_t n = atomic_load(&r->n);
    for (uint64_t i = oldest(r, entries); i <= n; i++)
        if (read_entry(r, i, entries, out) && waits(out))
            return true;
    return false;
}

static bool find_last(const tt_call_ring *r, uint64_t entries, seen_call *out)
{
    for (uint64_t i = atomic_load(&r->n), least = oldest(r, entries); i >= least; i--)
        if (read_entry(r, i, entries, out))
            return true;
    return false;
}

static bool has_come(const tt_call_ring *r)
{
    return atomic_load(&r->process) != 0;
}

/* ---- which rank is behind ---- */

static bool is_member(const tt_call_ring *r, const tt_call_group *g, int rank)
{
    for (int i = 0; g->first >= 0 && i < g->n; i++)
        if (r->ranks[g->first + i] == rank)
            return true;
    return g->first < 0 && g->n == r->world;
}

/* Whether the rank of ring r keeps a rank waiting that is in call c of group g. */
static bool is_awaited(const tt_call_ring *waiter, const seen_call *c, const tt_call_ring *r)
{
    const tt_call_group *g = &waiter->groups[c->w.group];
    if (c->w.doing == TT_DOING_RECEIVE || c->w.doing == TT_DOING_SEND)
        return c->w.peer == r->rank;
    if (!is_member(waiter, g, r->rank))
        return false;
    for (int i = 0, n = atomic_load(&r->n_groups); i < n; i++)
        if (r->groups[i].key == g->key && r->groups[i].n == g->n)
            return atomic_load(&r->groups[i].n_begun) < c->w.in_group;
    return true; /* it has not even made the group */
}

static void call_text(const tt_call_ring *r, const seen_call *c, tt_str *out)
{
    const tt_call_group *g = &r->groups[c->w.group];
    tt_str_add(out, tt_doing_name((tt_doing)c->w.doing));
    if (c->w.in_group)
        tt_str_printf(out, " number %llu of ", (unsigned long long)c->w.in_group);
    else
        tt_str_printf(out, " %s rank %d", c->w.doing == TT_DOING_SEND ? "to" : "from",
                      (int)c->w.peer);
    if (c->w.in_group && g->n == r->world)
        tt_str_add(out, "all ranks");
    else if (c->w.in_group)
        tt_str_printf(out, "%d ranks", (int)g->n);
    if (*c->w.name)
        tt_str_printf(out, ", %s", c->w.name);
    if (c->w.step)
        tt_str_printf(out, ", step %lld", (long long)c->w.step);
}

static void behind_text(const tt_call_log *log, const tt_call_ring *waiter, const seen_call *c,
                        const tt_call_ring *r, tt_str *out)
{
    seen_call last;
    tt_str_printf(out, "rank %d is behind: rank %d waits for it in ", (int)r->rank,
                  (int)waiter->rank);
    call_text(waiter, c, out);
    if (!find_last(r, (uint64_t)log->o.entries, &last)) {
        tt_str_add(out, "; it has made no call");
        return;
    }
    tt_str_add(out, "; its last call is ");
    call_text(r, &last, out);
    if (last.ended_ns)
        tt_str_printf(out, ", which ended %.1f s ago",
                      1e-9 * (double)(tt_now_ns() - last.ended_ns));
}

/* A rank that others wait for and that waits for nobody itself; else one that is waited for. */
void tt_call_log_behind(const tt_call_log *log, tt_str *out)
{
    const uint64_t entries = (uint64_t)log->o.entries;
    for (int strict = 1; strict >= 0; strict--)
        for (int i = 0; i < log->o.ranks; i++) {
            const tt_call_ring *waiter = tt_call_ring_of(log, i);
            seen_call c, own;
            if (!find_waiting(waiter, entries, &c))
                continue;
            for (int k = 0; k < log->o.ranks; k++) {
                const tt_call_ring *r = tt_call_ring_of(log, k);
                if (k == i || !has_come(r) || !is_awaited(waiter, &c, r) ||
                    (strict && find_waiting(r, entries, &own)))
                    continue;
                behind_text(log, waiter, &c, r, out);
                return;
            }
        }
}

/* ---- files ---- */

typedef struct clocks { /* of one moment */
    double unix_s;
    int64_t ns;
} clocks;

static void add_time(tt_str *t, const clocks *now, int64_t ns)
{
    tt_str_printf(t, "%.6f", now->unix_s - 1e-9 * (double)(now->ns - ns));
}

static void add_groups(const tt_call_ring *r, tt_str *t)
{
    tt_str_add(t, "\n \"groups\": [");
    for (int i = 0, n = atomic_load(&r->n_groups); i < n; i++) {
        const tt_call_group *g = &r->groups[i];
        tt_str_printf(t, "%s\n  {\"group\": %d, \"n_ranks\": %d, \"ranks\": ", i ? "," : "", i,
                      (int)g->n);
        tt_str_add(t, g->first < 0 ? (g->n == r->world ? "\"all\"" : "null") : "[");
        for (int k = 0; g->first >= 0 && k < g->n; k++)
            tt_str_printf(t, "%s%d", k ? ", " : "", (int)r->ranks[g->first + k]);
        tt_str_printf(t, "%s, \"n_begun\": %llu}", g->first < 0 ? "" : "]",
                      (unsigned long long)atomic_load(&g->n_begun));
    }
    tt_str_add(t, "],");
}

static void add_call(const seen_call *c, const clocks *now, tt_str *t)
{
    const char *state = !c->ended_ns ? "waiting" : c->status == TT_OK ? "done" : "failed";
    tt_str_printf(t, "\n  {\"number\": %llu, \"step\": %lld, \"op\": \"%s\", \"group\": %d, ",
                  (unsigned long long)c->number, (long long)c->w.step,
                  tt_doing_name((tt_doing)c->w.doing), (int)c->w.group);
    if (c->w.in_group)
        tt_str_printf(t, "\"in_group\": %llu, ", (unsigned long long)c->w.in_group);
    if (c->w.peer >= 0)
        tt_str_printf(t, "\"peer\": %d, ", (int)c->w.peer);
    tt_str_printf(t, "\"bytes\": %lld, ", (long long)c->w.bytes);
    if (c->w.dtype >= 0)
        tt_str_printf(t, "\"dtype\": \"%s\", ", tt_dtype_name((tt_dtype)c->w.dtype));
    tt_str_add(t, "\"for\": ");
    tt_str_json(t, c->w.name);
    tt_str_printf(t, ", \"state\": \"%s\", \"begun\": ", state);
    add_time(t, now, c->w.begun_ns);
    tt_str_add(t, ", \"ended\": ");
    if (c->ended_ns)
        add_time(t, now, c->ended_ns);
    else
        tt_str_add(t, "null");
    tt_str_addc(t, '}');
}

static void add_ring(const tt_call_log *log, const tt_call_ring *r, const char *why,
                     const clocks *now, tt_str *t)
{
    const uint64_t entries = (uint64_t)log->o.entries, n = atomic_load(&r->n);
    char host[256] = "";
    seen_call c;
    bool first = true;
    gethostname(host, sizeof host - 1);
    tt_str_printf(t, "{\"rank\": %d, \"world\": %d, \"process\": %lld, \"host\": ", (int)r->rank,
                  (int)r->world, (long long)r->process);
    tt_str_json(t, host);
    tt_str_add(t, ", \"why\": ");
    tt_str_json(t, why);
    tt_str_add(t, ",\n \"written\": ");
    add_time(t, now, now->ns);
    tt_str_printf(t, ", \"step\": %lld, \"n_calls\": %llu,", (long long)atomic_load(&r->step),
                  (unsigned long long)n);
    add_groups(r, t);
    tt_str_add(t, "\n \"calls\": [");
    for (uint64_t i = oldest(r, entries); i <= n; i++)
        if (read_entry(r, i, entries, &c)) {
            tt_str_add(t, first ? "" : ",");
            add_call(&c, now, t);
            first = false;
        }
    tt_str_add(t, "]}\n");
}

tt_status tt_call_log_write(const tt_call_log *log, const char *why, tt_error *err)
{
    const clocks now = {tt_wall_seconds(), tt_now_ns()};
    TT_TRY(tt_mkdirs(log->o.folder, err));
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < log->o.ranks; i++) {
        const tt_call_ring *r = tt_call_ring_of(log, i);
        char *path = NULL;
        tt_str t = {0};
        if (!has_come(r))
            continue;
        if (asprintf(&path, "%s/%s%d.json", log->o.folder, log->o.prefix, (int)r->rank) < 0)
            return TT_FAIL(err, TT_ENOMEM, "no memory for the calls of a rank");
        add_ring(log, r, why, &now, &t);
        s = tt_write_file_atomic(path, tt_str_get(&t), t.n, err);
        tt_str_free(&t);
        free(path);
    }
    return s;
}

/* The text has a limit, so the folder goes before the sentence about the rank. */
static void add_to(tt_error *err, const char *what)
{
    const size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, "; %s", what);
}

void tt_call_log_dump(tt_call_log *log, tt_error *err)
{
    uint32_t none = 0;
    tt_str text = {0};
    tt_error why = {0};
    const bool mine = log && atomic_compare_exchange_strong(log->dumped, &none, 1);
    if (!mine)
        return;
    if (tt_call_log_write(log, err->text, &why) == TT_OK)
        tt_str_printf(&text, "the last calls of each rank are in %s", log->o.folder);
    else
        tt_str_printf(&text, "the last calls of the ranks are lost: %s", why.text);
    add_to(err, tt_str_get(&text));
    tt_str_clear(&text);
    tt_call_log_behind(log, &text);
    if (text.n)
        add_to(err, tt_str_get(&text));
    tt_str_free(&text);
    atomic_store(log->dumped, 2);
}
