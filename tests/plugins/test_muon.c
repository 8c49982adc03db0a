/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"

/* Which parameters the optimizer muon updates as matrices, by the states that they have. */

static const char gpt2[] =
    "{\"spec\":\"gpt2\",\"model\":{\"flavor\":\"debugmodel\",\"args\":{\"dim\":24,\"n_layers\":2,"
    "\"n_heads\":3}},\"training\":{\"local_batch_size\":1,\"seq_len\":8},"
    "\"checkpoint\":{\"enable\":false},\"backend\":{\"threads\":1}}";

/* hidden: words of which the name of each such matrix has one; n: how many there are. */
static void expect(const char *base, const char *overrides, const char *const *hidden, int n)
{
    job j;
    tt_rank r;
    tt_exec_tensor *t;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    char text[400];
    snprintf(text, sizeof text, "optimizer.name muon %s", overrides);
    job_open_text(&j, base, text);
    if (tt_rank_open(&j.setup, &d, false, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    const size_t all = tt_exec_tensors(r.exec, r.arena, &t);
    for (size_t i = 0; i < all; i++) {
        bool is_hidden = false;
        if (!t[i].suffix)
            continue;
        for (int k = 0; hidden[k]; k++)
            is_hidden = is_hidden || strstr(t[i].name, hidden[k]);
        const bool is_matrix = !strcmp(t[i].suffix, "momentum_buffer");
        if (is_matrix != is_hidden)
            fail_msg("%s has %s", t[i].name, t[i].suffix);
        n -= is_matrix;
    }
    assert_int_equal(n, 0);
    tt_rank_close(&r);
    job_close(&j);
}

static void test_embeddings_head_norms_and_biases_are_no_matrices(void **state)
{
    static const char *const llama[] = {"_proj.weight", NULL}, *const of_gpt2[] = {
                                                                   ".q.weight",   ".k.weight",
                                                                   ".v.weight",   "_proj.weight",
                                                                   "c_fc.weight", NULL};
    (void)state;
    expect(job_text, "", llama, 5 * 7);
    expect(job_text, "model.args.tie_embeddings true model.args.attention_bias true", llama, 5 * 7);
    expect(gpt2, "", of_gpt2, 2 * 6); /* embeddings of positions, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings_head_norms_and_biases_are_no_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
