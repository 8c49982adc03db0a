/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/golden.h"

#include <math.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* Blocks without kernels of their own, written as a plugin would write them: latent attention
 * (MLA), a top-2 mixture of experts over extents, a sliding window with sinks, a LoRA linear.
 * Logits and every gradient against PyTorch (tests/golden/blocks_golden.py), on one rank and placed
 * on meshes. f64 on both sides, but cos and sin of the rotary embedding are f32 by definition:
 * 3e-8. */

#define TOLERANCE 1e-6

enum {
    D_ = 12,
    HEADS = 4,
    NOPE = 4,
    ROT = 2,
    RANK = 6,
    DV = 3,
    EXPERTS = 5,
    FFN = 6,
    HD = 4,
    KV = 2,
    TOP = 2,
    LORA_RANK = 3
};

static tt_dim embed_dim(void)
{
    return TT_DIM(D_, "embed");
}

static tt_dim token_dim(tt_value *x)
{
    return tt_value_type(x)->dims[0];
}

static tt_value *cut_last(tt_builder *b, tt_value *x, int64_t begin, int64_t end)
{
    return tt_slice(b, x, -1, begin, end);
}

static tt_value *as(tt_builder *b, tt_value *x, int n, tt_dim a, tt_dim c, tt_dim d)
{
    const tt_dim dims[3] = {a, c, d};
    return tt_reshape(b, x, dims, n);
}

static tt_value *to_heads(tt_builder *b, tt_value *x, int64_t heads, int64_t width)
{
    return as(b, x, 3, token_dim(x), TT_DIM(heads, heads == 1 ? NULL : "heads"),
              TT_DIM(width, NULL));
}

static tt_value *from_heads(tt_builder *b, tt_value *x)
{
    const tt_type *t = tt_value_type(x);
    return as(b, x, 2, t->dims[0],
              TT_DIM_UNIT(t->dims[1].size * t->dims[2].size, t->dims[1].label, t->dims[2].size),
              TT_DIM(1, NULL));
}

static tt_value *block_mla(tt_builder *b, tt_value *x)
{
    const tt_rope_opts rope = {.head_dim = ROT, .theta = 100, .interleaved = 1};
    tt_value *pos = tt_input(b, "pos");
    tt_value *q = to_heads(
        b, tt_linear(b, x, "wq", TT_DIM_UNIT(HEADS * (NOPE + ROT), "heads", NOPE + ROT), NULL),
        HEADS, NOPE + ROT);
    tt_value *q_rot = tt_rope(b, from_heads(b, cut_last(b, q, NOPE, NOPE + ROT)), pos, &rope);
    tt_value *q_parts[] = {cut_last(b, q, 0, NOPE), to_heads(b, q_rot, HEADS, ROT)};
    tt_value *a = tt_linear(b, x, "wkv_a", TT_DIM(RANK + ROT, NULL), NULL);
    tt_value *c = tt_rms_norm(b, cut_last(b, a, 0, RANK), "kv_norm", 1e-5);
    tt_value *kv = to_heads(
        b, tt_linear(b, c, "wkv_b", TT_DIM_UNIT(HEADS * (NOPE + DV), "heads", NOPE + DV), NULL),
        HEADS, NOPE + DV);
    tt_value *k_rot =
        tt_rope(b, cut_last(b, a, RANK, RANK + ROT), pos, &rope); /* one key for all heads */
    const tt_dim all[] = {token_dim(x), TT_DIM(HEADS, "heads"), TT_DIM(ROT, NULL)};
    tt_value *k_parts[] = {cut_last(b, kv, 0, NOPE),
                           tt_broadcast_to(b, to_heads(b, k_rot, 1, ROT), all, 3)};
    const tt_attention_opts o = {.v_head_dim = DV};
    tt_value *y = tt_attention(b, from_heads(b, tt_concat(b, q_parts, 2, 2)),
                               from_heads(b, tt_concat(b, k_parts, 2, 2)),
                               from_heads(b, cut_last(b, kv, NOPE, NOPE + DV)), NOPE + ROT, &o);
    return tt_linear(b, y, "wo", embed_dim(), NULL);
}

static tt_value *expert_weight(tt_builder *b, const char *name, tt_dim o, tt_dim i)
{
    const tt_dim dims[] = {TT_DIM(EXPERTS, NULL), o, i};
    return tt_param(b, name, dims, 3, NULL);
}

static tt_value *block_moe(tt_builder *b, tt_value *x)
{
    const tt_dim T = token_dim(x), F = TT_DIM(FFN, "ffn"), slots = TT_DIM(T.size * TOP, NULL),
                 one = TT_DIM(1, NULL);
    tt_value *w, *index, *order, *counts;
    tt_top_k(b, tt_softmax(b, tt_linear(b, x, "gate", TT_DIM(EXPERTS, NULL), NULL)), TOP, &w,
             &index);
    w = tt_div(b, w, tt_sum(b, w, -1, 1));
    tt_expert_sort(b, index, EXPERTS, &order, &counts);
    const tt_dim twice[] = {T, TT_DIM(TOP, NULL), embed_dim()};
    tt_value *rows =
        tt_broadcast_to(b, as(b, x, 3, T, one, embed_dim()), twice, 3);  /* a row a slot */
    rows = tt_gather(b, as(b, rows, 2, slots, embed_dim(), one), order); /* by expert */
    tt_value *h =
        tt_silu(b, tt_grouped_linear(b, rows, expert_weight(b, "w1", F, embed_dim()), counts));
    h = tt_mul(b, h, tt_grouped_linear(b, rows, expert_weight(b, "w3", F, embed_dim()), counts));
    tt_value *y = tt_grouped_linear(b, h, expert_weight(b, "w2", embed_dim(), F), counts);
    y = tt_mul(b, y, tt_gather(b, as(b, w, 2, slots, one, one), order));
    y = tt_scatter_add(b, y, order, slots); /* back in slot order */
    return tt_sum(b, as(b, y, 3, T, TT_DIM(TOP, NULL), embed_dim()), 1, 0);
}

/* The same layer, as tt_experts() writes it. */
typedef struct expert_params {
    tt_value *w1, *w2, *w3;
} expert_params;

static tt_value *swiglu_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const expert_params *w = user;
    tt_value *h = tt_silu(b, tt_grouped_linear(b, rows->x, w->w1, rows->counts));
    h = tt_mul(b, h, tt_grouped_linear(b, rows->x, w->w3, rows->counts));
    return tt_grouped_linear(b, h, w->w2, rows->counts);
}

static tt_value *cut_weight(tt_builder *b, const char *name, tt_dim o, tt_dim i)
{
    const tt_dim dims[] = {TT_DIM(EXPERTS, "experts"), o, i};
    return tt_param(b, name, dims, 3, NULL);
}

static tt_value *block_experts(tt_builder *b, tt_value *x)
{
    const tt_dim F = TT_DIM(FFN, "ffn");
    tt_value *w, *index;
    tt_top_k(b, tt_softmax(b, tt_linear(b, x, "gate", TT_DIM(EXPERTS, NULL), NULL)), TOP, &w,
             &index);
    w = tt_div(b, w, tt_sum(b, w, -1, 1));
    const expert_params p = {cut_weight(b, "w1", F, embed_dim()),
                             cut_weight(b, "w2", embed_dim(), F),
                             cut_weight(b, "w3", F, embed_dim())};
    return tt_experts(b, x, index, w, EXPERTS, swiglu_rows, &p);
}

static tt_value *block_window(tt_builder *b, tt_value *x)
{
    const tt_rope_opts rope = {.head_dim = HD, .theta = 100};
    const tt_dim H = TT_DIM_UNIT(HEADS * HD, "heads", HD), K = TT_DIM_UNIT(KV * HD, "kv_heads", HD),
                 S = TT_DIM(HEADS, "heads");
    tt_value *pos = tt_input(b, "pos");
    tt_value *q = tt_rope(b, tt_linear(b, x, "wq", H, NULL), pos, &rope);
    tt_value *k = tt_rope(b, tt_linear(b, x, "wk", K, NULL), pos, &rope);
    const tt_attention_opts o = {.window = 3, .sinks = tt_param(b, "sinks", &S, 1, NULL)};
    return tt_linear(b, tt_attention(b, q, k, tt_linear(b, x, "wv", K, NULL), HD, &o), "wo",
                     embed_dim(), NULL);
}

static tt_value *block_lora(tt_builder *b, tt_value *x)
{
    const tt_dim dims[] = {embed_dim(), embed_dim()};
    const tt_param_opts frozen = {.frozen = 1};
    tt_value *y = tt_linear_w(b, x, tt_param(b, "w", dims, 2, &frozen));
    tt_value *low = tt_linear(b, x, "lora_a", TT_DIM(LORA_RANK, NULL), NULL);
    return tt_add(b, y, tt_scale(b, tt_linear(b, low, "lora_b", embed_dim(), NULL), 2));
}

typedef tt_value *(*block_fn)(tt_builder *b, tt_value *x);
static const struct {
    const char *name;
    block_fn fn;
} blocks[] = {
    {"mla",    block_mla   },
    {"moe",    block_moe   },
    {"window", block_window},
    {"lora",   block_lora  }
};

static void describe_block(tt_builder *b, const void *user)
{
    const tt_dim V = TT_DIM(17, "vocab");
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, embed_dim(), NULL);
    tt_block(b, "block");
    x = tt_add(b, x, (*(const block_fn *)user)(b, tt_rms_norm(b, x, "norm", 1e-5)));
    tt_block_end(b);
    tt_value *z = tt_linear(b, x, "head", V, NULL);
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

/* ---- the golden file ---- */

static const json_t *golden_block; /* of the run at hand */

/* "block.wq.weight" → "wq" */
static const char *golden_name(const char *full, char name[64])
{
    const char *from = !strncmp(full, "block.", 6) ? full + 6 : full;
    snprintf(name, 64, "%.*s", (int)strcspn(from, "."), from);
    return name;
}

static void feed_golden(const tt_graph *g, const char *name, const tt_type *t, int micro,
                        double *out)
{
    char key[64];
    const json_t *input = json_object_get(get(golden_block, "inputs"), name);
    const json_t *param = json_object_get(get(golden_block, "params"), golden_name(name, key));
    const json_t *v = input ? input : param ? get(param, "value") : NULL;
    if (!v || strstr(name, "exp_avg")) {
        sim_feed(g, name, t, micro, out);
        return;
    }
    assert_int_equal(json_array_size(v), tt_type_numel(t));
    for (size_t i = 0; i < json_array_size(v); i++)
        out[i] = json_number_value(json_array_get(v, i));
}

static double golden_gap(const double *have, const json_t *want, int64_t n)
{
    double worst = 0, scale = 1e-3;
    assert_int_equal(json_array_size(want), n);
    for (int64_t i = 0; i < n; i++) {
        const double w = json_number_value(json_array_get(want, (size_t)i)), d = fabs(have[i] - w);
        if (fabs(w) > scale)
            scale = fabs(w);
        if (!(d <= worst))
            worst = d;
    }
    return worst / scale;
}

static double check_block(size_t which, const mesh_case *mesh, tt_context context)
{
    const job j = {
        .mesh = mesh,
        .tokens = 14,
        .lines = 2,
        .context = context,
        .describe = describe_block,
        .user = &blocks[which].fn,
        .optimizer = "adamw",
        .metrics = true,
        .fuse = true,
        .recompute = {TT_RECOMPUTE_SELECTIVE, true}
    };
    const sim_opts o = {.feed = feed_golden};
    built x, y;
    tt_error err = {0};
    const char *bad = build_job(&j, "place", NULL, NULL, &x, &err);
    if (!bad)
        bad = build_job(&j, NULL, NULL, NULL, &y, &err);
    if (bad)
        fail_msg("%s on %s: %s: %s", blocks[which].name, mesh->name, bad, err.text);
    sim *s = sim_run(x.g, &o), *t = sim_run(y.g, &o);
    if (s->failure[0] || t->failure[0])
        fail_msg("%s on %s: %s%s", blocks[which].name, mesh->name, s->failure, t->failure);
    int64_t n;
    const double *logits = sim_value(s, tt_map_get(x.g->outputs, "logits"), &n);
    double worst = golden_gap(logits, get(golden_block, "logits"), n);
    if (!(worst <= TOLERANCE))
        fail_msg("%s on %s: logits differ by %.3g", blocks[which].name, mesh->name, worst);
    for (size_t i = 0; i < y.g->params.n; i++) {
        const tt_param_info *p = y.g->params.items[i];
        char key[64];
        const json_t *want =
            json_object_get(get(get(golden_block, "params"), golden_name(p->name, key)), "grad");
        assert_int_equal(p->frozen, want == NULL);
        if (p->frozen)
            continue;
        const double *g = sim_param(t, p->name, "grad", &n);
        const double d = golden_gap(g, want, n);
        if (!(d <= TOLERANCE))
            fail_msg("%s on %s: the gradient of %s differs by %.3g", blocks[which].name, mesh->name,
                     p->name, d);
        worst = d > worst ? d : worst;
    }
    sim_free(s);
    sim_free(t);
    built_free(&x);
    built_free(&y);
    return worst;
}

static void test_blocks_equal_pytorch(void **state)
{
    static const struct {
        const char *name;
        tt_context context;
    } meshes[] = {
        {"1",             TT_CONTEXT_GATHER},
        {"fsdp2",         TT_CONTEXT_GATHER},
        {"tp2",           TT_CONTEXT_GATHER},
        {"cp2",           TT_CONTEXT_GATHER},
        {"fsdp2 tp2 cp2", TT_CONTEXT_GATHER},
        {"tp4=2x2",       TT_CONTEXT_GATHER},
        {"cp3",           TT_CONTEXT_RING  },
        {"fsdp2 tp2 cp2", TT_CONTEXT_RING  },
        {"fsdp2 cp2",     TT_CONTEXT_HEADS },
        {"fsdp2 tp2 cp2", TT_CONTEXT_HEADS },
    };
    json_t *root = golden_read("tests/golden/blocks.json");
    (void)state;
    for (size_t i = 0; i < TT_COUNT(blocks); i++) {
        double worst = 0;
        golden_block = json_array_get(root, i);
        assert_string_equal(json_string_value(get(golden_block, "name")), blocks[i].name);
        for (size_t m = 0; m < TT_COUNT(meshes); m++) {
            const double d = check_block(i, mesh_named(meshes[m].name), meshes[m].context);
            worst = d > worst ? d : worst;
        }
        print_message("%s: logits and gradients within %.1e of PyTorch, on %d meshes\n",
                      blocks[i].name, worst, (int)TT_COUNT(meshes));
    }
    json_decref(root);
}

/* ---- experts that are cut over ranks (docs/design/experts.md): the numbers of one rank ---- */

#define CUT_TOKENS                                                                                 \
    40 /* equal parts on each of the meshes: the simulator compares dispatched rows, too */

typedef struct ran {
    built logits, all; /* as placed; after all passes */
    sim *s, *t;
} ran;

static void run_experts(const mesh_case *mesh, ran *r)
{
    static const block_fn fn = block_experts;
    const job j = {
        .mesh = mesh,
        .tokens = CUT_TOKENS,
        .lines = 4,
        .describe = describe_block,
        .user = &fn,
        .optimizer = "adamw",
        .metrics = true,
        .fuse = true,
        .recompute = {TT_RECOMPUTE_SELECTIVE, true}
    };
    const sim_opts o = {.feed = sim_feed};
    tt_error err = {0};
    const char *bad = build_job(&j, "place", NULL, NULL, &r->logits, &err);
    if (!bad)
        bad = build_job(&j, NULL, NULL, NULL, &r->all, &err);
    if (bad)
        fail_msg("experts on %s: %s: %s", mesh->name, bad, err.text);
    r->s = sim_run(r->logits.g, &o);
    r->t = sim_run(r->all.g, &o);
    if (r->s->failure[0] || r->t->failure[0])
        fail_msg("experts on %s: %s%s", mesh->name, r->s->failure, r->t->failure);
}

static void end_experts(ran *r)
{
    sim_free(r->s);
    sim_free(r->t);
    built_free(&r->logits);
    built_free(&r->all);
}

/* Each row is computed as on one rank: logits are equal to the bit, gradients to the order of their sums. */
static void compare_experts(const mesh_case *mesh, ran *one, bool exact)
{
    ran r;
    int64_t n, m;
    run_experts(mesh, &r);
    const double *want = sim_value(one->s, tt_map_get(one->logits.g->outputs, "logits"), &n);
    const double *have = sim_value(r.s, tt_map_get(r.logits.g->outputs, "logits"), &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        if (exact ? have[i] != want[i] : !(fabs(have[i] - want[i]) <= 1e-12))
            fail_msg("experts on %s: logit %lld is %.17g, not %.17g", mesh->name, (long long)i,
                     have[i], want[i]);
    for (size_t i = 0; i < r.all.g->params.n; i++) {
        const char *name = r.all.g->params.items[i]->name;
        want = sim_param(one->t, name, "grad", &n);
        have = sim_param(r.t, name, "grad", &m);
        assert_int_equal(n, m);
        for (int64_t k = 0; k < n; k++)
            if (!(fabs(have[k] - want[k]) <= 1e-12))
                fail_msg("experts on %s: the gradient of %s is %.17g, not %.17g", mesh->name, name,
                         have[k], want[k]);
    }
    end_experts(&r);
}

static void test_experts_equal_one_rank(void **state)
{
    static const mesh_case one = {"1", {{"tp", 1}}, false};
    static const struct {
        mesh_case mesh;
        bool exact; /* no product is a sum over ranks */
    } rows[] = {
        {{"fsdp2", {{"dp_shard", 2}}, false},                                       true },
        {{"hsdp2x2", {{"dp_replicate", 2}, {"dp_shard", 2}}, false},                true },
        {{"tp2", {{"tp", 2}}, false},                                               false},
        {{"cp2", {{"cp", 2}}, false},                                               true },
        {{"fsdp2 tp2", {{"dp_shard", 2}, {"tp", 2}}, false},                        false},
        {{"ep5", {{"ep", 5}}, false},                                               true },
        {{"fsdp2 ep5", {{"dp_shard", 2}, {"ep", 5}}, false},                        true },
        {{"cp2 ep5", {{"cp", 2}, {"ep", 5}}, false},                                true },
        {{"tp2 ep5", {{"tp", 2}, {"ep", 5}}, false},                                false},
        {{"hsdp2x2 ep5", {{"dp_replicate", 2}, {"dp_shard", 2}, {"ep", 5}}, false}, true },
    };
    ran whole;
    (void)state;
    run_experts(&one, &whole);
    for (size_t m = 0; m < TT_COUNT(rows); m++)
        compare_experts(&rows[m].mesh, &whole, rows[m].exact);
    end_experts(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_equal_pytorch),
        cmocka_unit_test(test_experts_equal_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
