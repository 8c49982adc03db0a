/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/loop.h"
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Which copies of another mesh a start goes on from, and what it says of those that it does not take. One rank reads the
 * copies of two, each of which has a row of the only tensor. */

enum { RANKS = 2, ROW = 4, JOB = 4711 };

static char said[400];    /* what was logged */
static int64_t read_from; /* the step whose copies were read; 0: none */

static uint64_t same_job(const tt_loop *l)
{
    (void)l;
    return JOB;
}

static bool same_converters(const tt_setup *a, int64_t at, int64_t step)
{
    (void)a;
    (void)at;
    (void)step;
    return true;
}

static tt_status reduce_alone(const tt_dist *d, void *x, int64_t n, tt_dtype dtype, tt_reduce op,
                              tt_error *err)
{
    (void)d;
    (void)x;
    (void)n;
    (void)dtype;
    (void)op;
    (void)err;
    return TT_OK;
}

static tt_status read_rows(tt_rank *r, tt_ckpt_reader *reader, const char *what, tt_error *err)
{
    float row[RANKS * ROW];
    const tt_ckpt_piece p = {
        .name = "w",
        .dtype = TT_F32,
        .n_dims = 2,
        .global = {RANKS,  ROW         },
        .box = {{0, 0}, {RANKS, ROW}},
        .data = row
    };
    (void)r;
    (void)what;
    TT_TRY(tt_ckpt_load(reader, &p, 1, err));
    for (int i = 0; i < RANKS * ROW; i++)
        assert_true(row[i] == row[0]);
    read_from = (int64_t)row[0];
    return TT_OK;
}

static void keep_line(tt_log_level level, const char *who, const char *fmt, ...)
{
    va_list args;
    (void)level;
    (void)who;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
}

#define tt_loop_peer_job same_job
#define tt_converters_equal(s, at, step) same_converters(s, 0, step)
#define tt_dist_reduce reduce_alone
#define tt_agree(d, status, err) (status)
#define tt_rank_load_from read_rows
#undef tt_log
#define tt_log keep_line
#include "../../core/train/peer_read.c"

typedef struct has { /* what a rank has in its two slots */
    int64_t step[TT_PEER_SLOTS];
    bool damaged[TT_PEER_SLOTS];
} has;

/* The memory of a rank. Each element of a copy is its step. */
static int make_memory(int rank, const has *x)
{
    const int fd = memfd_create("copies", MFD_CLOEXEC);
    const tt_peer_index of = {.job = JOB, .mesh = 42, .rank = rank, .world = RANKS};
    const tt_ckpt_piece p = {
        .name = "w",
        .dtype = TT_F32,
        .n_dims = 2,
        .global = {RANKS,     ROW            },
        .box = {{rank, 0}, {rank + 1, ROW}},
        .owner = true
    };
    const int64_t index = tt_peer_index_size(&p, 1), bytes = index + TT_PEER_PAGE;
    assert_true(fd >= 0 && tt_peer_set_size(fd, TT_PEER_PAGE));
    tt_peer_head *h = tt_peer_map_head(fd);
    assert_true(h && tt_peer_prepare(fd, h, 1, bytes));
    char *copy = calloc(1, (size_t)bytes);
    tt_peer_index_write(&of, &p, 1, copy);
    for (int slot = 0; slot < TT_PEER_SLOTS; slot++) {
        float row[ROW];
        for (int i = 0; i < ROW; i++)
            row[i] = (float)x->step[slot];
        memcpy(copy + index, row, sizeof row);
        h->slots[slot].state.st.step = x->step[slot];
        h->slots[slot].check = tt_peer_check(h, slot, copy) + x->damaged[slot];
        atomic_store(&h->slots[slot].step, x->step[slot]);
        assert_int_equal(pwrite(fd, copy, (size_t)bytes, TT_PEER_PAGE + slot * bytes), bytes);
    }
    free(copy);
    tt_peer_unmap_head(h);
    return fd;
}

/* A start goes on from the newest step of which all is there and whole. Why newer copies are not taken is said only where
 * none are. */
static void test_peer_read_takes_the_newest_step_that_is_whole(void **state)
{
    static const char not_taken[] = "the copies in memory of step ";
    static const struct {
        has ranks[RANKS];
        int64_t saved,
            taken; /* the step of the newest checkpoint, and the one to go on from; 0: none */
        const char *says; /* behind not_taken; NULL: nothing */
    } cases[] = {
        {{{{3, 6}, {0}}, {{3, 6}, {0}}},     -1, 6, NULL                                        },
        {{{{6, 3}, {0}}, {{3, 6}, {0}}},     -1, 6, NULL                                        },
        {{{{9, 6}, {0}}, {{3, 6}, {0}}},     -1, 6, NULL                                        },
        {{{{3, 6}, {0, 1}}, {{3, 6}, {0}}},  -1, 3, NULL                                        },
        {{{{3, 6}, {0}}, {{3, 6}, {0, 1}}},  3,  3, NULL                                        },
        {{{{3, 6}, {0}}, {{3, 6}, {0, 1}}},  4,  0, "6 are not taken: that of rank 1 is damaged"},
        {{{{9, 6}, {0}}, {{3, 6}, {0}}},
         7,                                      0,
         "9 are not taken: only 1 of 2 ranks have one that is whole"                            },
        {{{{9, 6}, {0}}, {{3, 6}, {0, 1}}},  4,  0, "6 are not taken: that of rank 1 is damaged"},
        {{{{3, 6}, {0}}, {{3, 6}, {0}}},     7,  0, NULL                                        },
        {{{{-1, -1}, {0}}, {{-1, -1}, {0}}}, -1, 0, NULL                                        },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        int fds[RANKS];
        for (int r = 0; r < RANKS; r++)
            fds[r] = make_memory(r, &cases[i].ranks[r]);
        const tt_restart restart = {.copies = fds, .n_copies = RANKS};
        const tt_run_opts o = {.restart = &restart};
        const tt_setup s = {.world = 1};
        tt_loop *l = calloc(1, sizeof *l);
        tt_trainer_state st = {.step = 0};
        tt_error err = {0};
        bool found;
        l->s = &s;
        l->o = &o;
        l->main = true;
        said[0] = '\0';
        read_from = 0;
        if (tt_loop_peer_load_others(l, cases[i].saved, &st, &found, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_int_equal(found, cases[i].taken > 0);
        assert_int_equal(read_from, cases[i].taken);
        assert_int_equal(st.step, cases[i].taken);
        if (cases[i].says) {
            assert_memory_equal(said, not_taken, strlen(not_taken));
            assert_string_equal(said + strlen(not_taken), cases[i].says);
        } else {
            assert_string_equal(said, "");
        }
        free(l);
        for (int r = 0; r < RANKS; r++)
            close(fds[r]);
    }
}

/* Of its strings a copy has two, and no address of the process that wrote it. A path that is too long is left out. */
static void test_a_copy_says_where_frozen_parameters_are(void **state)
{
    enum { MOST = sizeof((tt_peer_state *)0)->frozen_from };
    static char path[MOST + 1];
    static const struct {
        size_t n;
        const char *identity;
        bool kept;
    } rows[] = {
        {0,        NULL,               true },
        {1,        "0123456789abcdef", true },
        {MOST - 1, "0123456789abcdef", true },
        {MOST,     NULL,               false},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_arena *a = tt_arena_new();
        tt_peer_state copy;
        memset(path, '/', sizeof path);
        path[rows[i].n] = '\0';
        tt_trainer_state st = {.step = 7,
                               .job_json = "{}",
                               .converters = "[]",
                               .n_losses = 3,
                               .frozen_from = rows[i].n ? path : NULL,
                               .initial_identity = rows[i].identity};
        tt_peer_state_write(&st, &copy);
        tt_peer_state_read(&copy, a, &st);
        assert_int_equal(st.step, 7);
        assert_true(!st.job_json && !st.converters && !st.n_losses);
        assert_string_equal(st.frozen_from ? st.frozen_from : "", rows[i].kept ? path : "");
        assert_string_equal(st.initial_identity ? st.initial_identity : "-",
                            rows[i].identity ? rows[i].identity : "-");
        tt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_says_where_frozen_parameters_are),
        cmocka_unit_test(test_peer_read_takes_the_newest_step_that_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
