/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/planned.h"

/* The plan's peak compared with a lower bound for any order of the nodes. While a node runs, a
 * value is alive if its producer comes before the node in every order, and if the node itself, or a
 * node that comes after it in every order, reads the value. The bound follows from the graph's
 * edges alone, without scratch, outputs or gaps. */

#define WORD 64

typedef struct bound {
    const tt_plan *p;
    size_t words;
    uint64_t *before, *after; /* by node: bits of nodes that come first, or later, in any order */
    int *at;                  /* by value id: the place of its maker */
} bound;

static uint64_t *row(uint64_t *bits, const bound *b, int i)
{
    return bits + (size_t)i * b->words;
}

static bool has(const uint64_t *bits, int i)
{
    return bits[i / WORD] >> i % WORD & 1;
}

static void join(uint64_t *to, const uint64_t *from, const bound *b, int i)
{
    for (size_t w = 0; w < b->words; w++)
        to[w] |= from[w];
    to[i / WORD] |= UINT64_C(1) << i % WORD;
}

static bound bound_of(const tt_plan *p)
{
    const tt_graph *g = p->graph;
    const int n = (int)g->nodes.n;
    bound b = {.p = p, .words = ((size_t)n + WORD - 1) / WORD};
    b.before = calloc((size_t)n * b.words, sizeof *b.before);
    b.after = calloc((size_t)n * b.words, sizeof *b.after);
    b.at = calloc((size_t)g->n_values + 1, sizeof *b.at);
    for (int i = 0; i < n; i++) {
        const tt_node *e = g->nodes.items[i];
        for (int j = 0; j < e->n_out; j++)
            b.at[e->out[j]->id] = i;
        for (int j = 0; j < e->n_in; j++)
            join(row(b.before, &b, i), row(b.before, &b, b.at[e->in[j]->id]), &b,
                 b.at[e->in[j]->id]);
    }
    for (int i = n; i-- > 0;)
        for (int j = 0; j < g->nodes.items[i]->n_in; j++) {
            const int from = b.at[g->nodes.items[i]->in[j]->id];
            join(row(b.after, &b, from), row(b.after, &b, i), &b, i);
        }
    return b;
}

/* Bytes of work that are alive while node i runs, in any order of the nodes. */
static int64_t needed_at(const bound *b, int i, bool *counted)
{
    const tt_graph *g = b->p->graph;
    int64_t bytes = 0;
    memset(counted, 0, (size_t)g->n_values + 1);
    for (int r = 0; r < (int)g->nodes.n; r++) {
        const tt_node *reader = g->nodes.items[r];
        if (r != i && !has(row(b->after, b, i), r))
            continue;
        for (int j = 0; j < reader->n_in; j++) {
            const tt_value *v = tt_plan_alias(reader->in[j]);
            if (b->p->value[v->id].space != TT_SPACE_WORK || counted[v->id] ||
                !has(row(b->before, b, i), b->at[v->id]))
                continue;
            counted[v->id] = true;
            bytes += tt_plan_value_bytes(g, v);
        }
    }
    return bytes;
}

static void check_peak(const char *spec, const char *model, const char *training, const char *mesh)
{
    char text[2000];
    tt_error err = {0};
    planned x;
    snprintf(text, sizeof text,
             "{\"spec\":\"%s\",\"model\":{\"args\":{%s}},\"training\":{%s,\"steps\":1},"
             "\"checkpoint\":{\"enable\":false},\"backend\":{\"threads\":2}}",
             spec, model, training);
    job_open_text(&x.j, text, mesh);
    if (tt_setup_plan(&x.j.setup, x.j.setup.graph, x.j.setup.schedule, 0, x.j.arena, &x.p, &err))
        fail_msg("%s", err.text);
    bound b = bound_of(x.p);
    bool *counted = calloc((size_t)x.p->graph->n_values + 1, 1);
    int64_t most = 0;
    for (int i = 0; i < (int)x.p->graph->nodes.n; i++)
        most = TT_MAXV(most, needed_at(&b, i, counted));
    const double ratio = (double)x.p->bytes[TT_SPACE_WORK] / (double)most;
    print_message("%s, %s %s: %.1f MiB of work, any order needs %.1f: %.3f\n", spec, training, mesh,
                  (double)x.p->bytes[TT_SPACE_WORK] / 1048576, (double)most / 1048576, ratio);
    assert_true(ratio >= 1 && ratio < 1.05);
    free(counted);
    free(b.before);
    free(b.after);
    free(b.at);
    job_close(&x.j);
}

#define DEBUG "\"dim\":256,\"n_layers\":6,\"n_heads\":16,\"hidden_dim\":768,\"vocab_size\":2048"
#define LLAMA34M                                                                                   \
    "\"dim\":512,\"n_layers\":8,\"n_heads\":8,\"n_kv_heads\":4,\"hidden_dim\":1536,"               \
    "\"vocab_size\":8192"
#define GPT2 "\"dim\":768,\"n_layers\":12,\"n_heads\":12,\"vocab_size\":50257,\"n_positions\":1024"

/* The models of bench/train; they are planned and not run. */
static void test_no_order_has_a_much_smaller_peak(void **state)
{
    (void)state;
    check_peak("llama3", DEBUG, "\"local_batch_size\":1,\"seq_len\":2048", "");
    check_peak("llama3", LLAMA34M, "\"local_batch_size\":8,\"seq_len\":512", "");
    check_peak("gpt2", GPT2, "\"local_batch_size\":4,\"seq_len\":64", "");
    check_peak("gpt2", GPT2, "\"local_batch_size\":4,\"seq_len\":256", "");
    check_peak("llama3", LLAMA34M, "\"local_batch_size\":8,\"seq_len\":512",
               "parallelism.tensor_parallel_degree 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_order_has_a_much_smaller_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
