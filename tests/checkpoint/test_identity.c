/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

/* tt_ckpt_identity: the same weights have one identity whatever their order and whatever an optimizer keeps beside
 * them; other values, names, shapes or dtypes have another one. */

enum { ROWS = 90, COLUMNS = 50, TENSORS = 3 };

typedef struct change {
    const char *what;
    bool reversed, states; /* these change nothing */
    int values;            /* 1 + the tensor all of whose elements are others */
    bool last_row;         /* only its last row is */
    const char *name;      /* of the first tensor */
    int64_t rows;          /* of the first tensor, with as many elements */
    bool half;             /* the first tensor is bf16 */
    bool fewer;            /* the last tensor is absent */
} change;

static void identity(fixture *f, const change *c, char hex[17])
{
    static const char *const names[] = {"a.weight", "b.weight", "c.weight",
                                        "optimizer.state.a.weight.exp_avg"};
    tt_ckpt_piece pieces[TENSORS + 1];
    tt_ckpt_reader *r = NULL;
    const int n = TENSORS - c->fewer + c->states;
    for (int i = 0; i < n; i++) {
        const int which = c->states && i == n - 1 ? TENSORS : i;
        const bool changed = c->values == which + 1;
        const int64_t rows = !which && c->rows ? c->rows : ROWS, columns = ROWS * COLUMNS / rows;
        float *x = tt_arena_array(f->a, ROWS * COLUMNS, sizeof *x);
        for (int k = 0; k < ROWS * COLUMNS; k++)
            x[k] = (float)(k * 7 % 113) + (float)which +
                   (changed && (!c->last_row || k / COLUMNS == ROWS - 1) ? 1e-3f : 0);
        pieces[c->reversed ? n - 1 - i : i] = (tt_ckpt_piece){
            .name = !which && c->name ? c->name : names[which],
            .dtype = !which && c->half ? TT_BF16 : TT_F32,
            .n_dims = 2,
            .global = {rows,   columns        },
            .box = {{0, 0}, {rows, columns}},
            .data = x,
            .owner = true
        };
    }
    assert_ok(tt_ckpt_open_pieces("weights", pieces, (size_t)n, &r, &f->err), f);
    tt_ckpt_identity(r, hex);
    tt_ckpt_close(r);
}

static void test_identity_tells_weights_apart(void **state)
{
    static const change same[] = {
        {.what = "another order",          .reversed = true},
        {.what = "states of an optimizer", .states = true  }
    };
    static const change other[] = {
        {.what = "values of the first", .values = 1},
        {.what = "values of the last",  .values = 3},
        {.what = "the last row",        .values = 2, .last_row = true},
        {.what = "a name",                             .name = "d.weight"                        },
        {.what = "a shape",                             .rows = 45},
        {.what = "a dtype",                             .half = true                        },
        {.what = "one less",                             .fewer = true}
    };
    fixture *f = *state;
    char first[17], hex[17];
    identity(f, &(change){0}, first);
    for (size_t i = 0; i < TT_COUNT(same); i++) {
        identity(f, &same[i], hex);
        if (strcmp(first, hex) != 0)
            fail_msg("%s: another identity", same[i].what);
    }
    for (size_t i = 0; i < TT_COUNT(other); i++) {
        identity(f, &other[i], hex);
        if (!strcmp(first, hex))
            fail_msg("%s: the same identity", other[i].what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_identity_tells_weights_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
