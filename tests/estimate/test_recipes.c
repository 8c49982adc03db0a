/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/recipes.h"
#include "exec/job.h"

/* `ttrun plan --recipes`: the model of what a recipe of low precision gains agrees with what torchao
 * measured on an H100 (auto_filter_small_kn), and knows which machine has which products. */

enum { TENSORWISE, ROWWISE, GW_HP, MXFP8, BLOCKWISE, NVFP4 };

static double faster(int recipe, const char *machine, double rows, double out, double in)
{
    const tt_machine *m = tt_machine_find(machine);
    return tt_recipe_seconds(-1, m, rows, out, in) / tt_recipe_seconds(recipe, m, rows, out, in);
}

/* torchao leaves a weight [n,k] out if float8 was not faster. Shapes on both sides of its limits, with
 * 4096 rows; "not faster" is less than 10 % here. */
static void test_limits_of_torchao(void **state)
{
    (void)state;
    static const struct {
        int recipe;
        double n, k;
        bool pays;
    } rows[] = {
        {TENSORWISE, 1024,  1024,  false},
        {TENSORWISE, 1024,  4096,  false},
        {TENSORWISE, 1024,  8192,  true },
        {TENSORWISE, 2048,  4096,  true },
        {TENSORWISE, 14336, 4096,  true },
        {ROWWISE,    1024,  8192,  false},
        {ROWWISE,    2048,  4096,  false},
        {ROWWISE,    4096,  2048,  false},
        {ROWWISE,    8192,  1024,  false},
        {ROWWISE,    14336, 1024,  false},
        {ROWWISE,    4096,  4096,  true },
        {ROWWISE,    8192,  2048,  true },
        {ROWWISE,    4096,  14336, true },
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const double x = faster(rows[i].recipe, "h100", 4096, rows[i].n, rows[i].k);
        if ((x >= 1.1) != rows[i].pays)
            fail_msg("%s, [%g, %g]: %.3f times as fast", tt_recipe_name(rows[i].recipe), rows[i].n,
                     rows[i].k, x);
    }
}

/* More rows, more gain; never more than twice (four times with 4 bits); dw in bf16 gains less. */
static void test_gains_are_bounded(void **state)
{
    (void)state;
    double last[TT_N_RECIPES] = {0};
    for (double rows = 64; rows <= 1 << 20; rows *= 4)
        for (int r = 0; r < TT_N_RECIPES; r++) {
            const double x = faster(r, "b200", rows, 4096, 4096);
            assert_true(x > last[r] - 0.02 && x < (r == NVFP4 ? 4 : 2));
            last[r] = x;
        }
    assert_true(last[TENSORWISE] > last[ROWWISE] && last[ROWWISE] > last[GW_HP]);
    assert_true(last[NVFP4] > last[MXFP8]);
}

static void test_machines(void **state)
{
    (void)state;
    const tt_machine *a100 = tt_machine_find("a100"), *h100 = tt_machine_find("h100"),
                     *b200 = tt_machine_find("b200");
    for (int r = 0; r < TT_N_RECIPES; r++) {
        assert_false(tt_recipe_runs(r, a100));
        assert_true(tt_recipe_runs(r, h100) == (r <= GW_HP || r == BLOCKWISE));
        assert_true(tt_recipe_runs(r, b200));
    }
}

/* Layers of one shape are one row, with the sizes of a rank, converted or not. */
static void test_shapes(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "", " converters [{\"name\":\"float8\",\"enable_fsdp_float8_all_gather\":true}]",
        " training.global_batch_size 24 parallelism.fsdp_reshard_after_forward never"};
    /* 3 samples of 37 tokens per data rank; heads, ffn and vocabulary are cut over tp 2 */
    static const tt_product_shape want[] = {
        {111, 132, 48, 1,  "lm_head"           },
        {111, 35,  48, 10, "gate_proj, up_proj"},
        {111, 48,  35, 5,  "down_proj"         },
        {111, 24,  48, 5,  "q_proj"            },
        {111, 48,  24, 5,  "o_proj"            },
        {111, 8,   48, 10, "k_proj, v_proj"    },
    };
    for (size_t i = 0; i < TT_COUNT(lists); i++) {
        static tt_product_shapes all;
        char args[400];
        job j;
        tt_error err = {0};
        const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
        snprintf(args, sizeof args,
                 "training.local_batch_size 3 parallelism.data_parallel_shard_degree 2 "
                 "parallelism.tensor_parallel_degree 2%s",
                 lists[i]);
        if (job_try(&j, job_text, args, &o, &err) != TT_OK)
            fail_msg("%s", err.text);
        tt_product_shapes_find(j.setup.graph, &all);
        for (int k = 0; k < all.n; k++)
            print_message("%g %g %g %g %s\n", all.items[k].rows, all.items[k].out, all.items[k].in,
                          all.items[k].count, all.items[k].names);
        assert_int_equal(all.n, (int)TT_COUNT(want));
        for (size_t w = 0; w < TT_COUNT(want); w++) {
            int k = 0;
            while (k < all.n && strcmp(all.items[k].names, want[w].names) != 0)
                k++;
            assert_true(k < all.n);
            const tt_product_shape *got = &all.items[k];
            assert_true(got->rows == want[w].rows && got->out == want[w].out &&
                        got->in == want[w].in && got->count == want[w].count);
        }
        job_close(&j);
    }
}

/* How many words a line has. */
static int words_of(const char *line)
{
    int n = 0;
    for (const char *p = line; *p && *p != '\n'; p++)
        n += *p != ' ' && (p == line || p[-1] == ' ');
    return n;
}

/* Under the title of each recipe that the machine has, and of no other, each line has a number of it. */
static void test_text_has_the_machines_recipes(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int recipes;
    } rows[] = {
        {"h100", 4           },
        {"b200", TT_N_RECIPES}
    };
    job j;
    tt_error err = {0};
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
    assert_int_equal(job_try(&j, job_text, "training.seq_len 37", &o, &err), TT_OK);
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_str text = {0};
        tt_recipes_text(j.setup.graph, tt_machine_find(rows[i].machine), &text);
        const char *head = strstr(text.s, "    rows "), *sums = strstr(text.s, "as is faster");
        assert_true(head && sums && !strstr(text.s, "inf") && !strstr(text.s, "nan"));
        const int titles = words_of(head) - words_of("rows out in layers bf16 ms");
        assert_int_equal(titles, rows[i].recipes);
        assert_int_equal(words_of(strchr(head, '\n') + 1),
                         titles + words_of("rows out in layers ms"));
        assert_int_equal(words_of(sums), titles + words_of("as is faster"));
        tt_str_free(&text);
    }
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_of_torchao),
        cmocka_unit_test(test_gains_are_bounded),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_text_has_the_machines_recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
