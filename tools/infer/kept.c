/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/kept.h"
#include "base/reserve.h"
#include <stdlib.h>
#include <string.h>

void tt_kept_open(tt_kept *k, tt_exec *exec, const tt_graph *graph, bool off, tt_arena *a)
{
    *k = (tt_kept){.exec = exec,
                   .graph = graph,
                   .on = !off && graph->slots,
                   .n = TT_MAXV(graph->slots, (int64_t)1)};
    k->text = tt_arena_array(a, (size_t)k->n, sizeof *k->text);
    k->scores = tt_arena_array(a, (size_t)k->n, sizeof *k->scores);
    k->salt = tt_arena_array(a, (size_t)k->n, sizeof *k->salt);
    k->longer = tt_arena_array(a, (size_t)k->n, sizeof *k->longer);
    k->used = tt_arena_array(a, (size_t)k->n, sizeof *k->used);
    for (size_t i = 0; i < graph->states.n; i++) {
        const tt_state *s = graph->states.items[i];
        k->whole = k->whole || (s->kind == TT_STATE_MEMORY && !s->grows);
    }
}

void tt_kept_close(tt_kept *k)
{
    for (int64_t i = 0; k->text && i < k->n; i++) {
        tt_ids_free(&k->text[i]);
        tt_scores_free(&k->scores[i]);
        free(k->salt[i]);
    }
}

static const char *salt_of(const char *salt)
{
    return salt ? salt : "";
}

/* How many first tokens of the slot's text are the prompt's. */
static int64_t equal_tokens(const tt_kept *k, int64_t slot, const tt_kept_prompt *p)
{
    const tt_ids *t = &k->text[slot];
    int64_t n = 0;
    if (strcmp(salt_of(k->salt[slot]), salt_of(p->salt)) != 0)
        return 0;
    while (k->longer[slot] == p->longer && n < TT_MIN((int64_t)t->n, p->n) &&
           t->ids[n] == p->ids[n])
        n++;
    return n;
}

/* How many tokens of the slot's text a prompt can use. Its last one is computed in any case, for its logits; and if
 * logprobs are wanted, the last one that is equal is, too, for the logprob of the token after it. */
static int64_t usable(const tt_kept *k, int64_t slot, const tt_kept_prompt *p)
{
    const int64_t has = (int64_t)k->text[slot].n, same = equal_tokens(k, slot, p);
    if (p->n_top < 0) {
        const int64_t n = TT_MIN(same, p->n - 1);
        return !k->whole || n == has ? n : 0;
    }
    int64_t known = TT_MIN(same, (int64_t)1); /* the first token has no logprob */
    while (known < same && tt_scores_get(&k->scores[slot], (size_t)known, p->n_top, NULL))
        known++;
    return k->whole ? 0 : TT_MAXV(known - 1, (int64_t)0);
}

int64_t tt_kept_choose(const tt_kept *k, const bool *free, const tt_kept_prompt *p)
{
    int64_t least = -1, longest = -1;
    for (int64_t i = 0; i < k->n; i++) {
        const size_t has = k->text[i].n;
        if (!free[i])
            continue;
        if (k->on && has && usable(k, i, p) + (p->n_top >= 0) == (int64_t)has &&
            (longest < 0 || has > k->text[longest].n))
            longest = i;
        if (least < 0 || (k->text[least].n && (!has || k->used[i] < k->used[least])))
            least = i;
    }
    return longest >= 0 ? longest : least;
}

/* ---- copies ---- */

static tt_status copy_part(tt_kept *k, const tt_tensor *t, int64_t to, int64_t from, int64_t n,
                           tt_error *err)
{
    const int64_t size = (int64_t)tt_dtype_size(t->dtype);
    tt_tensor part = {.data = (char *)t->data + from * size, .dtype = t->dtype, .n_dims = 1};
    void *host;
    part.shape[0] = part.global[0] = n;
    TT_TRY(tt_exec_map(k->exec, &part, true, &host, err));
    const tt_status s =
        tt_exec_write(k->exec, (char *)t->data + to * size, host, (size_t)(n * size), err);
    const tt_status after = tt_exec_unmap(k->exec, &part, host, false, s == TT_OK ? err : NULL);
    return s == TT_OK ? after : s;
}

/* The first n tokens of a slot's memory, and what lies between them and the next whole part of it. */
static tt_status copy_memory(tt_kept *k, const tt_state *s, int64_t to, int64_t from, int64_t n,
                             tt_error *err)
{
    tt_tensor t;
    tt_exec_state(k->exec, s->id, &t);
    const int64_t all = tt_tensor_numel(&t) / k->graph->slots;
    if (s->grows < 2) /* one value, or sequences of their own for parts of a slot's */
        return copy_part(k, &t, to * all, from * all, all, err);
    const int64_t parts = t.shape[s->grows - 1];
    int64_t inner = 1;
    for (int d = s->grows; d < t.n_dims; d++)
        inner *= t.shape[d];
    const int64_t row = parts * inner, length = k->graph->length,
                  some = TT_MIN(parts, (n * parts + length - 1) / length) * inner;
    for (int64_t at = 0; at < all; at += row)
        TT_TRY(copy_part(k, &t, to * all + at, from * all + at, some, err));
    return TT_OK;
}

static tt_status copy_slot(tt_kept *k, int64_t to, int64_t from, int64_t n, tt_error *err)
{
    for (size_t i = 0; i < k->graph->states.n; i++)
        if (k->graph->states.items[i]->kind == TT_STATE_MEMORY)
            TT_TRY(copy_memory(k, k->graph->states.items[i], to, from, n, err));
    return TT_OK;
}

static tt_status set_salt(tt_kept *k, int64_t slot, const char *salt, tt_error *err)
{
    const size_t n = strlen(salt_of(salt)) + 1;
    if (!strcmp(salt_of(k->salt[slot]), salt_of(salt)))
        return TT_OK;
    char *copy = tt_reserve_calloc(n, 1);
    if (!copy)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a salt of %zu bytes", n);
    memcpy(copy, salt_of(salt), n);
    free(k->salt[slot]);
    k->salt[slot] = copy;
    return TT_OK;
}

tt_status tt_kept_take(tt_kept *k, int64_t slot, const tt_kept_prompt *p, int64_t *n_cached,
                       tt_error *err)
{
    int64_t from = slot, best = usable(k, slot, p);
    *n_cached = 0;
    k->used[slot] = ++k->now;
    for (int64_t i = 0; i < k->n; i++) {
        const int64_t has = usable(k, i, p);
        if (has > best) {
            best = has;
            from = i;
        }
    }
    const size_t same = (size_t)equal_tokens(k, from, p);
    k->text[slot].n = from == slot ? (size_t)best : 0;
    if (from != slot) {
        TT_TRY(copy_slot(k, slot, from, best, err));
        TT_TRY(tt_scores_copy(&k->scores[slot], &k->scores[from], same, err));
    }
    tt_scores_cut(&k->scores[slot], same);
    TT_TRY(set_salt(k, slot, p->salt, err));
    for (int64_t i = (int64_t)k->text[slot].n; i < best; i++)
        TT_TRY(tt_ids_push(&k->text[slot], p->ids[i], err));
    k->longer[slot] = p->longer;
    k->used[from] = k->now;
    *n_cached = best;
    return TT_OK;
}

tt_status tt_kept_add(tt_kept *k, int64_t slot, int32_t id, tt_error *err)
{
    return k->on ? tt_ids_push(&k->text[slot], id, err) : TT_OK;
}

tt_status tt_kept_score(tt_kept *k, int64_t slot, int64_t at, const tt_token *t, tt_error *err)
{
    return k->on ? tt_scores_set(&k->scores[slot], (size_t)at, t, err) : TT_OK;
}

void tt_kept_get_score(const tt_kept *k, int64_t slot, int64_t at, int n_top, tt_token *t)
{
    tt_scores_get(&k->scores[slot], (size_t)at, n_top, t);
}

void tt_kept_forget(tt_kept *k, int64_t slot)
{
    k->text[slot].n = 0;
    tt_scores_cut(&k->scores[slot], 0);
}
