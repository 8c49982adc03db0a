/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/exchange.h"
#include "comm/world.h"
#include <pthread.h>

/* The all-to-all of rows (tt_redistribute_rows): of each bin only the rows that are counted are sent, the rest
 * of the receiver's memory stays as it was; and the way back. On a mesh of 2 × 2 ranks whose atoms cut in
 * the other order than ranks are numbered, so the members of the group and the parts differ. */

enum { PARTS = 4, ROOM = 5, WIDTH = 3, LOCAL = 2, EXPERTS = LOCAL * PARTS, ROUNDS = 20 };
static const uint16_t atoms[2] = {1, 0}; /* the first one slowest */

static int part_of(const int32_t *coords)
{
    return coords[1] * 2 + coords[0];
}

/* Which rows there are in a round is known to all: expert e of part p has so many. */
static int32_t count_at(int round, int p, int e)
{
    if (round == 1) /* all slots of a part go to one expert */
        return e == 3 ? ROOM : 0;
    return round == 0 ? 0 : (int32_t)(tt_hash64(&(int[3]){round, p, e}, 3 * sizeof(int), 7) % 3);
}

static int rows_of(int round, int p, int q)
{
    int n = 0;
    for (int e = q * LOCAL; e < (q + 1) * LOCAL; e++)
        n += count_at(round, p, e);
    return n;
}

static float value_of(int p, int q, int row, int d)
{
    return (float)(((p * PARTS + q) * ROOM + row) * WIDTH + d + 1);
}

typedef struct side {
    float x[PARTS * ROOM * WIDTH];
    int32_t counts[EXPERTS]; /* [1, 1, EXPERTS] of the part; [1, PARTS, LOCAL] of the experts */
} side;

static tt_tensor tensor_of(void *data, tt_dtype t, int64_t b, int64_t m, int64_t n)
{
    return (tt_tensor){
        .data = data, .dtype = t, .n_dims = 3, .shape = {b, m, n}
    };
}

static tt_placement cut(int dim)
{
    tt_placement p = {0};
    p.n[dim] = 2;
    p.atom[dim][0] = atoms[0], p.atom[dim][1] = atoms[1];
    return p;
}

typedef struct moves {
    world *w;
    tt_exchange exchange;
    tt_exchange_call call;
    tt_tensor in[3], out;
} moves;

static void make(moves *v, world *w, tt_dist *d, const tt_mesh *m, tt_arena *a, bool back,
                 tt_tensor x, tt_tensor sent, tt_tensor received, tt_tensor out)
{
    static char scratch[PARTS][4 * PARTS * ROOM * WIDTH * sizeof(float)];
    static tt_mover host;
    const tt_dim dims[3] = {TT_DIM(PARTS, NULL), TT_DIM(PARTS * ROOM, NULL), TT_DIM(WIDTH, NULL)};
    const tt_placement from = cut(back), to = cut(!back);
    tt_lower_step steps[TT_MAX_STEPS];
    int32_t coords[TT_MAX_ATOMS];
    tt_error err = {0};
    *v = (moves){
        .w = w, .in = {x, sent, received},
             .out = out
    };
    tt_mesh_coords(m, d->rank, coords);
    if (tt_lower(m, dims, 3, &from, &to, steps) != 1 || steps[0].kind != TT_STEP_ALL_TO_ALL)
        world_fail(w, "it is not one all-to-all");
    tt_exchange_opts o = {.mesh = m,
                          .coords = coords,
                          .step = tt_arena_dup(a, steps, sizeof *steps),
                          .dims = dims,
                          .in = v->in,
                          .n_in = 3,
                          .out = &v->out};
    if (tt_dist_group(d, m, &steps[0].atoms, a, &o.group, &err) != TT_OK ||
        tt_exchange_make(&o, a, &v->exchange, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    v->call = (tt_exchange_call){.vt = d->vt,
                                 .comm = v->exchange.group.comm,
                                 .mover = &host,
                                 .in = v->in,
                                 .n_in = 3,
                                 .out = &v->out,
                                 .scratch = scratch[d->rank],
                                 .alignment = 64};
}

static int64_t sum(const int64_t *x)
{
    return x[0] + x[1] + x[2] + x[3];
}

static void fill(side *part, side *experts, int round, int me)
{
    for (int e = 0; e < EXPERTS; e++)
        part->counts[e] = count_at(round, me, e);
    for (int p = 0; p < PARTS; p++)
        for (int e = 0; e < LOCAL; e++)
            experts->counts[p * LOCAL + e] = count_at(round, p, me * LOCAL + e);
    for (int q = 0; q < PARTS; q++)
        for (int r = 0; r < ROOM; r++)
            for (int d = 0; d < WIDTH; d++)
                part->x[(q * ROOM + r) * WIDTH + d] = value_of(me, q, r, d);
    for (int i = 0; i < PARTS * ROOM * WIDTH; i++)
        experts->x[i] = -1;
}

/* x has `row` of bin b as sent from p to q where it is counted, and `other` where it is not. */
static void check(world *w, const float *x, int round, int me, bool back, float other)
{
    for (int b = 0; b < PARTS; b++)
        for (int i = 0; i < ROOM * WIDTH; i++) {
            const int p = back ? me : b, q = back ? b : me, row = i / WIDTH;
            const float want = row < rows_of(round, p, q) ? value_of(p, q, row, i % WIDTH) : other;
            if (x[b * ROOM * WIDTH + i] != want)
                world_fail(w, "round %d, part %d, bin %d, row %d: %g instead of %g", round, me, b,
                           row, (double)x[b * ROOM * WIDTH + i], (double)want);
        }
}

static void rounds(world *w, tt_dist *d)
{
    tt_arena *a = tt_arena_new();
    const char *const names[2] = {"a", "b"};
    const int32_t sizes[2] = {2, 2};
    const tt_axis axis = {
        .name = "ep", .atoms = {.n = 2, .atom = {1, 0}}
    };
    tt_mesh m;
    tt_error err = {0};
    int32_t coords[TT_MAX_ATOMS];
    side part, experts;
    float home[PARTS * ROOM * WIDTH];
    moves there, back;
    if (tt_mesh_make_atoms(names, sizes, 2, &axis, 1, a, &m, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    tt_mesh_coords(&m, d->rank, coords);
    const int me = part_of(coords);
    const tt_tensor of_part = tensor_of(part.counts, TT_I32, 1, 1, EXPERTS),
                    of_experts = tensor_of(experts.counts, TT_I32, 1, PARTS, LOCAL),
                    sent = tensor_of(part.x, TT_F32, 1, PARTS * ROOM, WIDTH),
                    received = tensor_of(experts.x, TT_F32, PARTS, ROOM, WIDTH),
                    returned = tensor_of(home, TT_F32, 1, PARTS * ROOM, WIDTH);
    make(&there, w, d, &m, a, false, sent, of_part, of_experts, received);
    make(&back, w, d, &m, a, true, received, of_experts, of_part, returned);
    for (int round = 0; round < ROUNDS; round++) {
        there.call.clear = round % 4 == 3;
        fill(&part, &experts, round, me);
        memset(home, 0, sizeof home);
        if (tt_exchange_run(&there.exchange, &there.call, &err) != TT_OK)
            world_fail(w, "round %d: %s", round, err.text);
        check(w, experts.x, round, me, false, there.call.clear ? 0 : -1);
        int64_t rows = 0;
        for (int q = 0; q < PARTS; q++)
            rows += rows_of(round, me, q);
        if (sum(there.exchange.counts) != rows * WIDTH)
            world_fail(w, "round %d: sends %lld numbers of %lld rows", round,
                       (long long)sum(there.exchange.counts), (long long)rows);
        if (tt_exchange_run(&back.exchange, &back.call, &err) != TT_OK)
            world_fail(w, "round %d, back: %s", round, err.text);
        check(w, home, round, me, true, 0);
    }
    /* more rows than there is room for, on all ranks, so that none waits */
    memset(part.counts, 0, sizeof part.counts);
    part.counts[1] = ROOM + 1;
    if (tt_exchange_run(&there.exchange, &there.call, &err) != TT_EINTERNAL ||
        strcmp(err.text, "6 rows for a member, and room for 5") != 0)
        world_fail(w, "6 rows in 5 places: %s", err.text);
    w->count++;
    tt_arena_free(a);
}

typedef struct world_rank {
    world *w;
    tt_threads *t;
    rank_fn fn;
    int rank;
} world_rank;

static void *world_main(void *arg)
{
    world_rank *r = arg;
    tt_dist d;
    tt_error err;
    if (tt_threads_join(r->t, r->rank, &d, &err) == TT_OK) {
        r->fn(r->w, &d);
        tt_dist_leave(&d);
    } else {
        world_fail(r->w, "join: %s", err.text);
    }
    own_clock_leave();
    return NULL;
}

static int world_run(int n, rank_fn fn)
{
    world w = {0};
    tt_error err;
    tt_threads *t;
    pthread_t threads[PARTS];
    world_rank ranks[PARTS];
    assert_int_equal(tt_threads_new(n, 0, &t, &err), TT_OK);
    own_clock_open(n);
    for (int i = 0; i < n; i++) {
        ranks[i] = (world_rank){&w, t, fn, i};
        assert_int_equal(pthread_create(&threads[i], NULL, world_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    own_clock_close();
    tt_threads_free(t);
    return world_end(&w);
}

static void test_rows(void **state)
{
    (void)state;
    assert_int_equal(world_run(PARTS, rounds), PARTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
