/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/llama.h"

static tt_value *weight(tt_builder *b, const char *name, tt_dim o, tt_dim i)
{
    const tt_dim dims[] = {o, i};
    return tt_param(b, name, dims, 2, NULL);
}

static tt_value *vector(tt_builder *b, const char *name, tt_dim d)
{
    return tt_param(b, name, &d, 1, NULL);
}

/* The order of ops is the specification's: test_spec.c matches node by node. */
static tt_value *llama_block(tt_builder *b, const llama *c, tt_value *x)
{
    const tt_dim D = TT_DIM(c->D, "embed"), F = TT_DIM(c->F, "ffn"),
                 H = TT_DIM_UNIT(c->H * c->hd, "heads", c->hd),
                 K = TT_DIM_UNIT(c->K * c->hd, "kv_heads", c->hd);
    const tt_rope_opts rope = {.head_dim = c->hd, .theta = 100};
    tt_value *pos = tt_input(b, "pos");
    tt_value *h = tt_rms_norm_w(b, x, vector(b, "n1", D), 1e-5);
    tt_value *q = tt_linear_w(b, h, weight(b, "wq", H, D));
    tt_value *k = tt_linear_w(b, h, weight(b, "wk", K, D));
    tt_value *v = tt_linear_w(b, h, weight(b, "wv", K, D));
    if (c->bias)
        q = tt_add(b, q, vector(b, "bq", H));
    if (c->qk_norm)
        q = tt_rms_norm_w(b, q, vector(b, "qn", TT_DIM(c->hd, "head_dim")), 1e-5);
    q = tt_rope(b, q, pos, &rope);
    k = tt_rope(b, k, pos, &rope);
    tt_value *y = tt_linear_w(b, tt_attention(b, q, k, v, c->hd, NULL), weight(b, "wo", D, H));
    if (c->bias)
        y = tt_add(b, y, vector(b, "bo", D));
    x = tt_add(b, x, y);
    h = tt_rms_norm_w(b, x, vector(b, "n2", D), 1e-5);
    tt_value *g = tt_silu(b, tt_linear_w(b, h, weight(b, "w1", F, D)));
    y = tt_mul(b, g, tt_linear_w(b, h, weight(b, "w3", F, D)));
    return tt_add(b, x, tt_linear_w(b, y, weight(b, "w2", D, F)));
}

static void llama_describe(tt_builder *b, const void *user)
{
    const llama *c = user;
    const tt_dim V = TT_DIM(c->V, "vocab"), D = TT_DIM(c->D, "embed");
    tt_value *w = weight(b, "embed", V, D);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), w);
    for (int64_t i = 0; i < c->L; i++) {
        tt_block(b, "%d", (int)i);
        x = llama_block(b, c, x);
        tt_block_end(b);
    }
    x = tt_rms_norm_w(b, x, vector(b, "nf", D), 1e-5);
    tt_value *z = tt_linear_w(b, x, c->tied ? w : weight(b, "head", V, D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

const mesh_case *mesh_named(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(mesh_cases); i++)
        if (!strcmp(mesh_cases[i].name, name))
            return &mesh_cases[i];
    fail_msg("no mesh %s", name);
    return NULL;
}

static void make_mesh(built *x, const mesh_case *c)
{
    const char *names[4];
    int32_t sizes[4];
    tt_axis axes[5];
    int n = 0, n_axes = 0;
    memset(axes, 0, sizeof axes);
    for (; n < 4 && c->atoms[n].name; n++) {
        names[n] = c->atoms[n].name;
        sizes[n] = c->atoms[n].size;
        axes[n_axes].name = names[n];
        axes[n_axes].atoms.n = 1;
        axes[n_axes++].atoms.atom[0] = (uint16_t)n;
    }
    if (c->tp2x2) {
        axes[n_axes].name = strncmp(names[n - 1], "cp", 2) ? "tp" : "cp";
        axes[n_axes].atoms.n = 2;
        axes[n_axes].atoms.atom[0] = (uint16_t)(n - 2);
        axes[n_axes++].atoms.atom[1] = (uint16_t)(n - 1);
    }
    tt_error err;
    if (tt_mesh_make_atoms(names, sizes, n, axes, n_axes, x->arena, &x->mesh, &err) != TT_OK)
        fail_msg("%s", err.text);
}

/* p + grad * -0.1 */
static void describe_plain(const void *config, tt_builder *b, const tt_update *u)
{
    (void)config;
    tt_assign(b, u->param, tt_add(b, u->param, tt_scale(b, u->grad, -0.1)));
}
static const tt_optimizer_vt plain_vt = {sizeof plain_vt, describe_plain, NULL};

static bool accumulates(void *user, const char *op)
{
    (void)user;
    return !strcmp(op, "linear_dw") || !strcmp(op, "embedding_dw");
}

static int data_ranks(const mesh_case *c)
{
    int n = 1;
    for (int i = 0; i < 4 && c->atoms[i].name; i++)
        if (!strncmp(c->atoms[i].name, "dp_", 3))
            n *= c->atoms[i].size;
    return n;
}

static tt_status run_update(built *x, const job *j, tt_error *err)
{
    static double config[64];
    char name[64];
    tt_group group = {.vt = j->update ? j->update : &plain_vt, .lr_factor = 1};
    tt_update_opts o = {.groups = &group, .n_groups = 1, .max_norm = j->max_norm};
    if (j->optimizer) {
        snprintf(name, sizeof name, "optimizers/%s", j->optimizer);
        sim_optimizer_defaults(name, config, sizeof config);
        group.vt = sim_plugin(name, TT_KIND_OPTIMIZER);
        group.config = config;
    }
    return tt_pass_update(x->b, &o, err);
}

static tt_status run_pass(built *x, const job *j, const char *pass, tt_error *err)
{
    const tt_place_opts po = {
        .n_stages = j->n_stages,
        .convert = j->convert,
        .block_stage = j->n_stages > 1 ? tt_arena_array(x->arena, 64, sizeof(int)) : NULL};
    for (int i = 0; po.block_stage && i < x->described->n_blocks; i++)
        ((int *)(uintptr_t)po.block_stage)[i] =
            TT_MIN(i * j->n_stages / x->described->n_blocks, j->n_stages - 1);
    const tt_fuse_opts fo = {.pointwise = j->fuse,
                             .can_accumulate = j->can_accumulate ? accumulates : NULL};
    const tt_chunk_opts co = {.bytes = j->chunk_bytes, .can_accumulate = fo.can_accumulate};
    if (!strcmp(pass, "describe"))
        return tt_graph_verify(x->described, pass, err);
    if (!strcmp(pass, "place"))
        return tt_pass_place(x->described, &po, x->b, err);
    if (!strcmp(pass, "chunk_mark"))
        return tt_pass_chunk_mark(x->g, &co, err);
    if (!strcmp(pass, "chunk_move"))
        return tt_pass_chunk_move(x->g, &co, err);
    if (!strcmp(pass, "metrics"))
        return j->metrics ? tt_pass_metrics(x->b, NULL, err) : TT_OK;
    if (!strcmp(pass, "autodiff"))
        return tt_pass_autodiff(x->b, &(tt_autodiff_opts){.sink = j->hoist}, err);
    if (!strcmp(pass, "convert"))
        return tt_pass_convert(x->b, j->convert, err);
    if (!strcmp(pass, "update"))
        return run_update(x, j, err);
    if (!strcmp(pass, "recompute"))
        return tt_pass_recompute(x->g, &j->recompute, err);
    if (!strcmp(pass, "hoist"))
        return tt_pass_hoist(x->g, false, err);
    if (!strcmp(pass, "lower"))
        return tt_pass_lower(x->g, err);
    if (!strcmp(pass, "order"))
        return tt_pass_order(x->g, err);
    if (!strcmp(pass, "fuse"))
        return tt_pass_fuse(x->g, &fo, err);
    if (!strcmp(pass, "async_tp"))
        return j->async_tp ? tt_pass_async_tp(x->g, err) : TT_OK;
    TT_TRY(tt_pass_epilogue(x->g, &fo, err));
    return tt_pass_rope_fusion(x->g, &fo, err);
}

const char *build_job(const job *j, const char *last, after_pass after, void *user, built *out,
                      tt_error *err)
{
    static const char *const passes[] = {"describe",  "place",    "chunk_mark", "metrics",
                                         "autodiff",  "convert",  "chunk_move", "update",
                                         "recompute", "hoist",    "lower",      "order",
                                         "fuse",      "epilogue", "async_tp"};
    memset(out, 0, sizeof *out);
    out->arena = tt_arena_new();
    out->ops = sim_ops();
    out->ops.extra = j->ops;
    out->ops.n_extra = j->n_ops;
    make_mesh(out, j->mesh);
    tt_label_table_default(&out->labels);
    out->labels.sequence_parallel = !j->no_sp;
    tt_builder_opts bo = {.ops = &out->ops,
                          .tokens = j->tokens,
                          .sequences = j->lines ? j->lines : data_ranks(j->mesh),
                          .context = j->context,
                          .has_kernel = sim_has_kernel};
    tt_builder *b = tt_builder_new(out->arena, &bo);
    (j->describe ? j->describe : llama_describe)(b, j->describe ? j->user : &j->c);
    out->described = tt_builder_graph(b);
    if (tt_builder_finish(b, err) != TT_OK)
        return "describe";
    out->described->loss = tt_get_output(b, "loss");
    out->b = tt_builder_new_placed(out->arena, &bo, &out->mesh, &out->labels);
    out->g = tt_builder_graph(out->b);
    for (size_t i = 0; i < TT_COUNT(passes); i++) {
        if ((!strcmp(passes[i], "convert") && !j->convert) ||
            (!strcmp(passes[i], "hoist") && !j->hoist))
            continue;
        if (run_pass(out, j, passes[i], err) != TT_OK)
            return passes[i];
        if (after && strncmp(passes[i], "chunk", 5))
            after(user, passes[i], out);
        if (last && !strcmp(last, passes[i]))
            break;
    }
    return NULL;
}

void built_free(built *x)
{
    tt_arena_free(x->arena);
}
