/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* What a program has in common with the one that runs, which it is to replace: memory that is large enough, and the
 * states only if all that last lie alike. */

enum { STATES = 1000, WORK = 500 };

typedef struct pair {
    tt_program_state a[3], b[3];
    tt_program runs, next;
    tt_exec x; /* runs */
} pair;

static void fill(tt_program *p, tt_program_state *s)
{
    const tt_tensor rows = {
        .dtype = TT_F32, .n_dims = 2, .shape = {6,  4},
                .begin = {6,  0},
                .global = {12, 4}
    };
    s[0] = (tt_program_state){.name = "sum", .space = TT_SPACE_STATE, .fresh = true};
    s[1] = (tt_program_state){
        .name = "w", .space = TT_SPACE_STATE, .offset = 64, .owner = true, .tensor = rows};
    s[2] = (tt_program_state){
        .name = "w.m", .space = TT_SPACE_STATE, .offset = 192, .moments = true, .tensor = rows};
    *p = (tt_program){.states = s, .n_states = 3, .written_end = 16, .read_end = 32};
    p->bytes[TT_SPACE_STATE] = STATES;
    p->bytes[TT_SPACE_WORK] = WORK;
}

static pair *pair_of(pair *p)
{
    memset(p, 0, sizeof *p);
    fill(&p->runs, p->a);
    fill(&p->next, p->b);
    p->x.p = &p->runs;
    for (int s = 0; s < TT_N_SPACES; s++)
        p->x.mapped[s] = (size_t)tt_program_space_bytes(&p->runs, (tt_space)s);
    return p;
}

/* Of the spaces of the pair above. */
static int64_t all_bytes(const pair *p)
{
    int64_t n = 0;
    for (int s = TT_SPACE_STATE; s < TT_N_SPACES; s++)
        n += tt_program_space_bytes(&p->next, (tt_space)s);
    return n;
}

static void expect(const pair *p, int64_t bytes)
{
    assert_int_equal(tt_exec_own_bytes(&p->next, &p->x), bytes);
}

static void test_equal_programs_have_all_memory_in_common(void **state)
{
    pair p;
    (void)state;
    expect(pair_of(&p), 0);
    assert_int_equal(tt_exec_own_bytes(&p.next, NULL), all_bytes(&p));
    p.next.bytes[TT_SPACE_WORK]++;
    expect(&p, tt_program_space_bytes(&p.next, TT_SPACE_WORK));
    /* what each step stores anew may be another, and be elsewhere */
    pair_of(&p)->b[0].offset = 8;
    p.b[0].name = "other";
    expect(&p, 0);
    p.next.states++; /* or not be there */
    p.next.n_states--;
    expect(&p, 0);
}

/* debug.poison wants to see who writes where: what lies behind the planned bytes must stay as it is. */
static void test_memory_that_is_poisoned_is_not_in_common(void **state)
{
    pair p;
    (void)state;
    pair_of(&p)->x.o.poison = true;
    expect(&p, all_bytes(&p));
}

static void test_states_that_lie_otherwise_are_not_in_common(void **state)
{
    pair p;
    const int64_t states = tt_program_space_bytes(&pair_of(&p)->next, TT_SPACE_STATE);
    (void)state;
    pair_of(&p)->b[1].offset += 4;
    expect(&p, states);
    pair_of(&p)->b[2].space = TT_SPACE_WORK;
    expect(&p, states);
    pair_of(&p)->b[2].name = "w.v";
    expect(&p, states);
    pair_of(&p)->b[1].for_host = true;
    expect(&p, states);
    pair_of(&p)->b[1].tensor.dtype = TT_I32;
    expect(&p, states);
    pair_of(&p)->b[1].tensor.n_dims = 1;
    expect(&p, states);
    pair_of(&p)->b[1].tensor.shape[0] = 5;
    expect(&p, states);
    pair_of(&p)->b[1].tensor.begin[0] = 0; /* as large a part of the tensor, but another one */
    expect(&p, states);
    pair_of(&p)->b[2].tensor.global[0] = 13;
    expect(&p, states);
    pair_of(&p)->next.read_end++;
    expect(&p, states);
    pair_of(&p)->next.written_end++;
    expect(&p, states);
    pair_of(&p)->runs.n_states--; /* the optimizer has no state where it runs */
    expect(&p, states);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_programs_have_all_memory_in_common),
        cmocka_unit_test(test_memory_that_is_poisoned_is_not_in_common),
        cmocka_unit_test(test_states_that_lie_otherwise_are_not_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
