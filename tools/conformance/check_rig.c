/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance/check_rig.h"
#include <pthread.h>
#include <string.h>
#include <ttrun/converter.h>
#include <ttrun/op.h>

/* ---- the job ---- */

#define LARGEST 50000000 /* parameters: any machine can hold this many, and steps take seconds */

/* The other parts of the job: a small model that has every kind of layer. */
static const char tiny_model[] =
    "{\"name\":\"llama3\",\"args\":{\"dim\":32,\"n_layers\":2,\"n_heads\":4,\"n_kv_heads\":2,"
    "\"hidden_dim\":64,\"vocab_size\":64}}";

static const struct {
    tt_kind kind;
    const char *name;
} parts[] = {
    {TT_KIND_TRAIN_SPEC,   "llama3"       },
    {TT_KIND_MODEL,        "llama3"       },
    {TT_KIND_TOKENIZER,    "byte"         },
    {TT_KIND_LOSS,         "cross_entropy"},
    {TT_KIND_OPTIMIZER,    "adamw"        },
    {TT_KIND_LR_SCHEDULER, "constant"     },
    {TT_KIND_BACKEND,      "auto"         },
};

static const char *part_beside(tt_kind kind)
{
    size_t i = 0;
    while (parts[i].kind != kind)
        i++;
    return parts[i].name;
}

static void add_member(tt_str *s, const char *key, const char *value)
{
    tt_str_printf(s, "%s\"%s\":", s->s[s->n - 1] == '{' ? "" : ",", key);
    tt_str_json(s, value);
}

static void add_model(tt_str *s, const tt_component *c)
{
    if (c->kind != TT_KIND_MODEL) {
        tt_str_printf(s, "\"model\":%s", tiny_model);
        return;
    }
    const tt_model_vt *vt = c->vtable;
    const char *flavor = "debugmodel";
    for (size_t i = vt->n_flavors; i-- > 0;)
        flavor = vt->flavors[i].name;
    for (size_t i = 0; i < vt->n_flavors; i++)
        if (strcmp(vt->flavors[i].name, "debugmodel") == 0)
            flavor = "debugmodel";
    tt_str_add(s, "\"model\":{");
    add_member(s, "name", c->name);
    add_member(s, "flavor", flavor);
    tt_str_addc(s, '}');
}

static void add_part(tt_str *s, const char *section, tt_kind kind, const tt_component *c,
                     const char *more)
{
    tt_str_printf(s, ",\"%s\":{", section);
    add_member(s, "name", c->kind == kind ? c->name : part_beside(kind));
    tt_str_printf(s, "%s}", more);
}

static void add_backend(tt_str *s, const tt_component *c)
{
    if (c->kind != TT_KIND_KERNELS) {
        add_part(s, "backend", TT_KIND_BACKEND, c, ",\"threads\":1");
        return;
    }
    tt_str_add(s, ",\"backend\":{\"threads\":1");
    add_member(s, "name", ((const tt_kernels_vt *)c->vtable)->backend);
    add_member(s, "kernels", c->name);
    tt_str_addc(s, '}');
}

static void job_text(const tt_rig_opts *o, tt_str *s)
{
    const tt_component *c = o->part;
    char lr[64] = "";
    if (c->kind != TT_KIND_OPTIMIZER)
        snprintf(lr, sizeof lr, ",\"lr\":%g,\"weight_decay\":0.0", o->lr > 0 ? o->lr : 1e-3);
    tt_str_addc(s, '{');
    add_member(s, "spec", part_beside(TT_KIND_TRAIN_SPEC));
    tt_str_addc(s, ',');
    add_model(s, c);
    add_part(s, "loss", TT_KIND_LOSS, c, "");
    add_part(s, "optimizer", TT_KIND_OPTIMIZER, c, lr);
    add_part(s, "lr_scheduler", TT_KIND_LR_SCHEDULER, c, "");
    add_backend(s, c);
    if (c->kind == TT_KIND_CONVERTER) {
        tt_str_add(s, ",\"converters\":[{");
        add_member(s, "name", c->name);
        tt_str_add(s, "}]");
    }
    tt_str_printf(s,
                  ",\"training\":{\"local_batch_size\":%d,\"seq_len\":%d,\"steps\":1000,"
                  "\"max_norm\":0}",
                  TT_RIG_LINES / TT_MAXV(o->fsdp, 1), TT_RIG_SEQ);
    tt_str_printf(s,
                  ",\"parallelism\":{\"tensor_parallel_degree\":%d,"
                  "\"data_parallel_shard_degree\":%d},"
                  "\"comm\":{\"backend\":\"local\"},\"checkpoint\":{\"enable\":false}}",
                  TT_MAXV(o->tp, 1), TT_MAXV(o->fsdp, 1));
}

/* A job needs other parts than the one under test; without them the stages are skipped. */
static tt_status find_the_rest(const tt_rig_opts *o, tt_error *err)
{
    for (size_t i = 0; i < TT_COUNT(parts); i++) {
        const tt_component *c = NULL;
        if (parts[i].kind != o->part->kind && parts[i].kind != TT_KIND_BACKEND &&
            tt_registry_find(o->job->registry, parts[i].kind, parts[i].name, &c, NULL) != TT_OK)
            return TT_FAIL(
                err, TT_EUNSUPPORTED,
                "the test job also needs the %s \"%s\" of ttrun's own plugins: name their "
                "folder with --plugin-dir",
                tt_kind_name(parts[i].kind), parts[i].name);
    }
    return TT_OK;
}

/* ---- ops under test: y + op(tanh(y), …) replaces the result y of the MLPs' up_proj ----
 * If the backend has no kernel for the op, the graph would hold the op's decomposition with the
 * decomposition's derivative; tt_custom_vjp puts the op's own derivative in its place. */

static tt_value *op_value(tt_builder *b, tt_value *const *ins, int n, void *user)
{
    const tt_op_def *def = user;
    tt_value *outs[TT_MAX_OUTS];
    tt_op(b, def->name, ins, n, NULL, outs, def->n_out);
    return outs[0];
}

static void op_vjp(tt_builder *b, tt_value *const *ins, int n, tt_value *y, tt_value *dy,
                   tt_value **dins, void *user)
{
    const tt_op_def *def = user;
    unsigned char want[TT_MAX_INS];
    memset(want, 1, sizeof want);
    tt_vjp v = {.struct_size = sizeof v,
                .n_in = n,
                .n_out = 1,
                .in = ins,
                .out = &y,
                .dout = &dy,
                .want = want,
                .din = dins};
    def->vjp(b, &v);
}

typedef struct op_list {
    const tt_op_def **defs;
    size_t n;
} op_list;

static tt_value *op_result(tt_builder *b, const tt_op_def *def, tt_value *bounded)
{
    tt_value *ins[TT_MAX_INS];
    void *user = (void *)(uintptr_t)def;
    int n = 1;
    for (const char *p = def->rule; *p && *p != '-'; p++)
        n += *p == ',';
    for (int i = 0; i < n; i++)
        ins[i] = bounded;
    return def->vjp ? tt_custom_vjp(b, ins, n, op_value, op_vjp, user) : op_value(b, ins, n, user);
}

static tt_value *with_op(const void *config, tt_builder *b, const char *name, tt_value *x,
                         tt_value *w)
{
    const op_list *ops = config;
    if (!strstr(name, "up_proj"))
        return NULL;
    tt_value *y = tt_linear_w(b, x, w), *bounded = tt_tanh(b, y);
    for (size_t i = 0; i < ops->n; i++)
        y = tt_add(b, y, op_result(b, ops->defs[i], bounded));
    return y;
}
static const tt_converter_vt with_op_vt = {.struct_size = sizeof with_op_vt, .linear = with_op};
static const tt_component with_op_component =
    TT_COMPONENT_PLAIN(TT_KIND_CONVERTER, "with_op", "", &with_op_vt);

/* Only elementwise ops can be added to any model: other ops need operands that only their own model
 * has. */
static bool of_elements(const tt_op_def *def)
{
    return def->rule && strspn(def->rule, "*,-> ") == strlen(def->rule) && !def->attrs_size &&
           def->n_out == 1 && !(def->flags & TT_OP_NO_GRADIENT);
}

static void add_ops(tt_rig *rig, const tt_op_def **defs, size_t n)
{
    const op_list list = {defs, n};
    const tt_part p = {&with_op_component, tt_arena_dup(rig->arena, &list, sizeof list), "with_op",
                       ""};
    tt_setup_only_converter(&rig->s, n ? &p : NULL);
}

static tt_status add_op(tt_rig *rig, const tt_component *c, tt_error *err)
{
    const tt_op_def *def = ((const tt_op_vt *)c->vtable)->def;
    if (!of_elements(def))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "\"%s\" is not an elementwise op: check a model that uses it", def->name);
    add_ops(rig, tt_arena_dup(rig->arena, &def, sizeof def), 1);
    return TT_OK;
}

/* The small model has the core's ops already; elementwise ops of plugins are added to it. */
static tt_status add_kernels(tt_rig *rig, const tt_check_job *job, const tt_component *c,
                             tt_error *err)
{
    const tt_kernels_vt *vt = c->vtable;
    size_t n_core, n = 0;
    const tt_op_table core = {.core = tt_core_ops(&n_core), .n_core = n_core};
    const tt_op_def **defs = tt_arena_array(rig->arena, vt->n_kernels, sizeof *defs);
    for (size_t i = 0; i < vt->n_kernels; i++) {
        const tt_kernel *k = (const void *)((const char *)vt->kernels + i * vt->kernel_size);
        const tt_component *op = NULL;
        tt_error why = {0};
        if (tt_op_find(&core, k->op))
            continue;
        if (tt_registry_find(job->registry, TT_KIND_OP, k->op, &op, &why) != TT_OK)
            return TT_FAIL(err, TT_EINVAL, "a kernel of op %s: %s", k->op, why.text);
        if (of_elements(((const tt_op_vt *)op->vtable)->def))
            defs[n++] = ((const tt_op_vt *)op->vtable)->def;
    }
    add_ops(rig, defs, n);
    return TT_OK;
}

/* ---- a converter under test: what it replaces ---- */

typedef struct counted {
    const tt_part *part;
    tt_rig *rig;
} counted;

static tt_value *count_asked(tt_rig *rig, tt_value *y)
{
    rig->asked++;
    rig->converted += y != NULL;
    return y;
}

static tt_value *count_linear(const void *config, tt_builder *b, const char *name, tt_value *x,
                              tt_value *w)
{
    const counted *c = config;
    const tt_converter_vt *vt = c->part->component->vtable;
    return count_asked(c->rig, vt->linear(c->part->config, b, name, x, w));
}

static tt_value *count_product(const void *config, tt_builder *b, const tt_product *p)
{
    const counted *c = config;
    const tt_converter_vt *vt = c->part->component->vtable;
    return count_asked(c->rig, vt->product(c->part->config, b, p));
}

static void count_converter(tt_rig *rig)
{
    const tt_converter_vt *vt = rig->s.converters[0].component->vtable;
    const counted c = {tt_arena_dup(rig->arena, &rig->s.converters[0], sizeof(tt_part)), rig};
    const bool newer = TT_HAS(vt, tt_converter_vt, product);
    const tt_converter_vt counting = {.struct_size = sizeof counting,
                                      .linear = vt->linear ? count_linear : NULL,
                                      .product = newer && vt->product ? count_product : NULL};
    tt_component k = *rig->s.converters[0].component;
    k.vtable = tt_arena_dup(rig->arena, &counting, sizeof counting);
    rig->s.converters[0].component = tt_arena_dup(rig->arena, &k, sizeof k);
    rig->s.converters[0].config = tt_arena_dup(rig->arena, &c, sizeof c);
}

/* ---- the batch ---- */

/* Two sequences of random ids. The first one holds two documents, and one label per sequence is not
 * counted. */
static void fill_batch(tt_rig *rig, int64_t vocab)
{
    const tt_rng_key key = tt_rng_key_make(0, "check", 0);
    tt_batch *b = &rig->batch;
    int32_t **array[] = {&b->ids, &b->labels, &b->pos, &b->seg};
    for (size_t i = 0; i < TT_COUNT(array); i++)
        *array[i] = tt_arena_array(rig->arena, TT_RIG_TOKENS, sizeof **array[i]);
    for (int i = 0; i < TT_RIG_TOKENS; i++) {
        const int at = i % TT_RIG_SEQ, second = i < TT_RIG_SEQ && at >= 9;
        b->ids[i] = (int32_t)(tt_rng_uniform(key, (uint64_t)i) * (double)vocab);
        b->labels[i] =
            at == 5 ? -100 : (int32_t)(tt_rng_uniform(key, 1000 + (uint64_t)i) * (double)vocab);
        b->pos[i] = second ? at - 9 : at;
        b->seg[i] = i < TT_RIG_SEQ ? second : 2;
        b->counted += b->labels[i] >= 0;
    }
}

/* The inputs that a dataloader of the same file declares. Without one a loss has those that it reads. */
static tt_status add_inputs(tt_rig *rig, const tt_check_job *job, tt_error *err)
{
    const tt_inputs *t = &rig->s.inputs;
    for (size_t i = 0; i < job->plugin->n_components && !t->n; i++) {
        const tt_component *c = tt_rig_component(job->plugin, i);
        tt_job *j = NULL;
        if (c->kind != TT_KIND_DATALOADER)
            continue;
        void *config = tt_arena_alloc(rig->arena, c->config_size + 1);
        TT_TRY(tt_job_load_text(rig->arena, "check", "{}", 2, NULL, 0, &j, err));
        TT_TRY(tt_job_section(j, "dataloader", c->options, c->n_options, c->option_size, NULL,
                              config, err));
        TT_TRY(tt_inputs_of(c->vtable, config, &rig->s.inputs, err));
        rig->s.has_inputs = true;
    }
    rig->s.open_inputs = !rig->s.has_inputs;
    return TT_OK;
}

/* With random numbers between 0 and 1, or with zeros and ones. */
static void fill_inputs(tt_rig *rig)
{
    const tt_inputs *t = &rig->s.inputs;
    for (int i = 0; i < t->n; i++) {
        const tt_rng_key key = tt_rng_key_make(0, t->items[i].name, 2);
        float *x = rig->batch.more[i] = tt_arena_array(rig->arena, TT_RIG_TOKENS, sizeof *x);
        for (int k = 0; k < TT_RIG_TOKENS; k++) {
            const double u = tt_rng_uniform(key, (uint64_t)k);
            if (t->items[i].dtype == TT_F32)
                x[k] = (float)u;
            else
                ((int32_t *)rig->batch.more[i])[k] = u < 0.5;
        }
    }
}

/* ---- making the test job ---- */

static bool sets_model(const tt_override *o)
{
    return !strcmp(o->key, "model") || !strncmp(o->key, "model.", 6);
}

/* The job with the overrides of the command line. In a file that has a model, those of model.… are for
 * that model: the job of another component of the file has the small model, without them. */
static tt_status load_job(tt_rig *rig, const tt_rig_opts *o, tt_job **out, tt_error *err)
{
    const tt_check_opts *given = o->job->opts;
    const tt_plugin *file = o->job->plugin;
    tt_override *mine = tt_arena_array(rig->arena, given->n_overrides + 1, sizeof *mine);
    tt_str text = {0};
    bool other = false;
    size_t n = 0;
    for (size_t i = 0; i < file->n_components && o->part->kind != TT_KIND_MODEL; i++)
        other = other || tt_rig_component(file, i)->kind == TT_KIND_MODEL;
    for (size_t i = 0; i < given->n_overrides; i++)
        if (!other || !sets_model(&given->overrides[i]))
            mine[n++] = given->overrides[i];
    job_text(o, &text);
    const tt_status s =
        tt_job_load_text(rig->arena, "check", tt_str_get(&text), text.n, mine, n, out, err);
    tt_str_free(&text);
    return s;
}

/* Without its device a backend is not checked further; it has loaded. */
static tt_status find_device(const tt_rig *rig, tt_error *err)
{
    const tt_part *b = &rig->s.backend;
    tt_error why = {0};
    if (tt_setup_backend_is_here(b->component->vtable, b->name, b->config, &why) == TT_OK)
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED, "its device is not on this machine: %s", why.text);
}

static tt_status make(tt_rig *rig, const tt_rig_opts *o, tt_error *err)
{
    const tt_check_job *job = o->job;
    const tt_setup_opts so = {.mode = TT_MODE_TRAIN};
    tt_job *j = NULL;
    TT_TRY(load_job(rig, o, &j, err));
    TT_TRY(tt_setup_make(&so, job->registry, j, rig->arena, &rig->s, err));
    if (o->part->kind == TT_KIND_BACKEND)
        TT_TRY(find_device(rig, err));
    TT_TRY(add_inputs(rig, job, err));
    rig->s.open_inputs = rig->s.open_inputs && o->part->kind == TT_KIND_LOSS;
    if (o->part->kind == TT_KIND_OP)
        TT_TRY(add_op(rig, o->part, err));
    if (o->part->kind == TT_KIND_KERNELS)
        TT_TRY(add_kernels(rig, job, o->part, err));
    rig->s.backend_alone = o->backend_alone;
    rig->s.core.debug.moe_force_load_balance = o->fixed_choice;
    if (o->part->kind == TT_KIND_CONVERTER)
        count_converter(rig);
    const tt_model_vt *vt = rig->s.model.component->vtable;
    const int64_t vocab = vt->vocab_size(rig->s.model.config);
    if (vocab < 1 || vocab > INT32_MAX)
        return TT_FAIL(err, TT_EINVAL, "vocab_size() returns %lld", (long long)vocab);
    fill_batch(rig, vocab);
    TT_TRY(tt_setup_compile(&rig->s, &so, err));
    fill_inputs(rig);
    if (o->part->kind == TT_KIND_CONVERTER && !rig->converted)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "it replaced none of the %d linears and products of the small model, so there "
            "is nothing to check; change the model by --model.args.KEY or the converter's options "
            "by --converters[0].KEY",
            rig->asked);
    if (rig->s.size.parameters > LARGEST)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "has %lld parameters: give it a flavor \"debugmodel\" of less than %d",
                       (long long)rig->s.size.parameters, LARGEST);
    for (size_t i = 0; i < rig->s.graph->nodes.n; i++)
        for (int k = 0; k < rig->s.graph->nodes.items[i]->n_out; k++) {
            const tt_dtype t = rig->s.graph->nodes.items[i]->out[k]->type.dtype;
            rig->rounds = rig->rounds || tt_dtype_accumulate(t) != t;
        }
    return TT_OK;
}

tt_status tt_rig_new(const tt_rig_opts *o, tt_rig **out, tt_error *err)
{
    TT_TRY(find_the_rest(o, err));
    tt_arena *a = tt_arena_new();
    tt_rig *rig = tt_arena_alloc(a, sizeof *rig);
    rig->arena = a;
    const tt_status s = make(rig, o, err);
    if (s != TT_OK) {
        tt_arena_free(a);
        return s;
    }
    *out = rig;
    return TT_OK;
}

void tt_rig_free(tt_rig *rig)
{
    if (rig)
        tt_arena_free(rig->arena);
}

/* ---- running the test job ---- */

typedef struct world {
    const tt_rig *rig;
    tt_rig_fn fn;
    void *user;
    tt_threads *threads; /* NULL: one rank */
} world;

typedef struct member {
    const world *w;
    int rank;
    pthread_t thread;
    tt_status status;
    tt_error err;
} member;

static tt_status run_rank(const world *w, int rank, tt_error *err)
{
    tt_dist d = {.world = 1};
    tt_rank r = {0};
    if (w->threads)
        TT_TRY(tt_threads_join(w->threads, rank, &d, err));
    tt_status s = tt_rank_open(&w->rig->s, &d, false, &r, err);
    if (s == TT_OK) {
        s = tt_rank_init_params(&r, err);
        if (s == TT_OK)
            s = w->fn(w->rig, &r, w->user, err);
    }
    if (s != TT_OK && w->threads)
        tt_dist_abort(&d, "another rank failed");
    r.failed = s != TT_OK;
    tt_rank_close(&r);
    tt_dist_leave(&d);
    return s;
}

static void *member_main(void *arg)
{
    member *m = arg;
    tt_log_set_thread_rank(m->rank);
    m->status = run_rank(m->w, m->rank, &m->err);
    return NULL;
}

tt_status tt_rig_run(const tt_rig *rig, tt_rig_fn fn, void *user, tt_error *err)
{
    world w = {rig, fn, user, NULL};
    member m[2] = {
        {.w = &w, .rank = 0},
        {.w = &w, .rank = 1}
    };
    if (rig->s.world == 1)
        return run_rank(&w, 0, err);
    TT_TRY(tt_threads_new(2, 60, &w.threads, err));
    if (pthread_create(&m[1].thread, NULL, member_main, &m[1]) != 0) {
        tt_threads_free(w.threads);
        return TT_FAIL(err, TT_ENOMEM, "cannot start the thread of rank 1");
    }
    member_main(&m[0]);
    pthread_join(m[1].thread, NULL);
    tt_log_set_thread_rank(-1);
    tt_threads_free(w.threads);
    /* report the rank that failed itself, not the one that was stopped by it */
    const member *speaks =
        m[0].status == TT_OK || (m[0].status == TT_ECOMM && m[1].status != TT_OK) ? &m[1] : &m[0];
    if (speaks->status != TT_OK)
        return TT_FAIL(err, speaks->status, "rank %d: %s", speaks->rank, speaks->err.text);
    return TT_OK;
}

static void set_scalars(const tt_rig *rig, tt_rank *r, double lr)
{
    tt_exec_set_scalar(r->exec, TT_SCALAR_INV_TOKENS, 1.0 / (double)rig->batch.counted);
    tt_exec_set_scalar(r->exec, TT_SCALAR_INV_MICRO, 1.0);
    tt_exec_set_scalar(r->exec, TT_SCALAR_LR, lr);
}

/* Passes only the rank's own sequences, as the training loop does. */
tt_status tt_rig_loss(const tt_rig *rig, tt_rank *r, int64_t step, double *loss_sum, tt_error *err)
{
    const int64_t own = rig->s.local * TT_RIG_SEQ, first = r->data_rank * own;
    tt_batch batch = {.n_tokens = own,
                      .seq_len = TT_RIG_SEQ,
                      .first_token = first,
                      .ids = rig->batch.ids + first,
                      .labels = rig->batch.labels + first,
                      .pos = rig->batch.pos + first,
                      .seg = rig->batch.seg + first,
                      .inputs = &rig->s.inputs};
    for (int i = 0; i < rig->s.inputs.n; i++)
        batch.more[i] = (int32_t *)rig->batch.more[i] +
                        (rig->s.inputs.items[i].per_sample ? first / TT_RIG_SEQ : first);
    tt_feed feed = {&batch, first, NULL, 0};
    set_scalars(rig, r, 0);
    TT_TRY(tt_exec_micro_batches(r->exec, step, tt_feed_fill, &feed, err));
    TT_TRY(tt_exec_epilogue(r->exec, err));
    *loss_sum = tt_exec_metric(r->exec, TT_METRIC_LOSS);
    return TT_OK;
}

tt_status tt_rig_step(const tt_rig *rig, tt_rank *r, int64_t step, double lr, double *loss,
                      tt_error *err)
{
    TT_TRY(tt_rig_loss(rig, r, step, loss, err));
    *loss /= (double)rig->batch.counted;
    set_scalars(rig, r, lr);
    return tt_exec_update(r->exec, err);
}

/* ---- whole tensors ---- */

tt_whole *tt_rig_whole(const tt_rig *rig)
{
    const tt_graph *g = rig->s.graph;
    tt_whole *w = tt_arena_array(rig->arena, g->params.n + 1, sizeof *w);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        w[i] = (tt_whole){.name = p->name, .param = p, .n = 1};
        for (int d = 0; d < p->type.n_dims; d++)
            w[i].n *= p->type.dims[d].size;
        w[i].data = tt_arena_array(rig->arena, (size_t)w[i].n + 1, sizeof *w[i].data);
    }
    return w;
}

static tt_status copy_own(tt_exec *x, const tt_tensor *t, float *whole, tt_error *err)
{
    const tt_box own = tt_box_of_tensor(t);
    tt_box all = {{0}, {0}};
    void *data;
    for (int d = 0; d < t->n_dims; d++)
        all.end[d] = t->global[d];
    TT_TRY(tt_exec_map(x, t, true, &data, err));
    tt_box_copy(&own, data, &own, whole, &all, t->n_dims, sizeof *whole);
    return tt_exec_unmap(x, t, data, false, err);
}

tt_status tt_rig_gather(const tt_rig *rig, const tt_rank *rank, const char *suffix, tt_whole *out,
                        tt_error *err)
{
    const tt_graph *g = rig->s.graph;
    tt_exec_tensor *t = NULL;
    const size_t n = tt_exec_tensors(rank->exec, rank->arena, &t);
    for (size_t i = 0; i < n; i++) {
        const bool same = suffix ? t[i].suffix && strcmp(suffix, t[i].suffix) == 0 : !t[i].suffix;
        for (size_t k = 0; k < g->params.n && same && t[i].owner; k++)
            if (out[k].param == t[i].param && t[i].tensor.dtype == TT_F32)
                TT_TRY(copy_own(rank->exec, &t[i].tensor, out[k].data, err));
    }
    return TT_OK;
}
