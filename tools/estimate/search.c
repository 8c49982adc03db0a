/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/search.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "parallelism." name "_degree"
#define TIME_SLACK 1.1 /* an estimated time may be too long by this factor */
#define MEMORY_SLACK 1.25
#define FEW_LAYERS 3 /* per stage; a mesh with fewer is planned in full at once */
#define MOST_MESHES                                                                                \
    16384 /* of a world; only worlds of 2^20 ranks or so have more, of 2^10 with experts */
#define DEGREES 6
#define EP 5 /* the last of them: it takes ranks of dp_shard, cp and tp */

typedef struct candidate {
    tt_found found; /* planned in full, or estimated */
    int64_t layers; /* of the model */
    int stages;     /* 0: cannot be estimated from fewer layers */
    bool in_full, refused, too_big;
    int at; /* position in the enumeration, which breaks ties */
} candidate;

typedef struct searcher {
    const tt_search_opts *o;
    tt_arena *a;
    TT_VEC(candidate) all;
    bool fixed[DEGREES];
    int32_t value[DEGREES];
    int64_t experts;    /* of the model's layers; 0: it has none */
    const char *global; /* samples per step */
    bool stages_follow_layers;
    tt_error why; /* of the first mesh that was refused */
    int64_t done, to_do;
    const char *blocks_option; /* the model's option for its number of layers; NULL: none */
} searcher;

static const char *const keys[DEGREES] = {
    KEY("pipeline_parallel"), KEY("data_parallel_replicate"), KEY("data_parallel_shard"),
    KEY("context_parallel"),  KEY("tensor_parallel"),         KEY("expert_parallel")};

static int32_t *degree(tt_mesh_degrees *d, int k)
{
    int32_t *const all[DEGREES] = {&d->pp, &d->dp_replicate, &d->dp_shard, &d->cp, &d->tp, &d->ep};
    return all[k];
}

/* ---- one mesh ---- */

/* layers: of the model; 0 = as the job has it. */
static tt_status make_setup(const searcher *s, tt_mesh_degrees d, int64_t layers, bool compile,
                            tt_arena *a, tt_setup *out, tt_error *err)
{
    const tt_search_opts *o = s->o;
    size_t n = o->n_overrides;
    tt_job *job;
    tt_override *all = tt_arena_array(a, n + DEGREES + 2, sizeof *all);
    for (size_t i = 0; i < n; i++)
        all[i] = o->overrides[i];
    for (int k = 0; k < DEGREES; k++)
        all[n++] = (tt_override){keys[k], tt_arena_printf(a, "%d", (int)*degree(&d, k))};
    all[n++] = (tt_override){"training.global_batch_size", s->global};
    if (layers)
        all[n++] = (tt_override){tt_arena_printf(a, "model.args.%s", s->blocks_option),
                                 tt_arena_printf(a, "%lld", (long long)layers)};
    const tt_setup_opts so = {.spec = o->spec,
                              .nproc = o->world,
                              .mode = TT_MODE_TRAIN,
                              .compile = compile,
                              .data = true,
                              .machine = o->machine};
    TT_TRY(tt_job_load(a, o->job, all, n, &job, err));
    return tt_setup_make(&so, o->registry, job, a, out, err);
}

/* The time of a step and, if asked for, the memory of the fullest rank. */
static tt_status evaluate(const searcher *s, tt_mesh_degrees d, int64_t layers, bool memory,
                          tt_found *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup *setup = tt_arena_alloc(a, sizeof *setup);
    tt_found f = {.degrees = d};
    tt_status st = make_setup(s, d, layers, true, a, setup, err);
    if (st == TT_OK && memory)
        st = tt_plan_most_bytes(setup, a, &f.bytes, err);
    if (st == TT_OK) {
        setup->graph->expert_skew = TT_MIN(s->o->expert_skew, (double)d.ep);
        tt_step_time_of(setup, s->o->machine, &f.time);
        *out = f;
    }
    tt_arena_free(a);
    return st;
}

static tt_status measure(searcher *s, candidate *c, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup *setup = tt_arena_alloc(a, sizeof *setup);
    const tt_status st = make_setup(s, c->found.degrees, 0, false, a, setup, err);
    if (st == TT_OK) {
        s->blocks_option = tt_model_blocks_option(setup->model.component);
        c->layers = s->blocks_option ? setup->shape.n_blocks : 0;
        if (!s->stages_follow_layers && c->layers > FEW_LAYERS * (int64_t)setup->n_stages)
            c->stages = setup->n_stages;
    }
    tt_arena_free(a);
    return st;
}

/* Estimates a mesh: plans the model with one and with two layers per stage and extrapolates
 * linearly. */
static tt_status estimate(const searcher *s, candidate *c, bool memory, tt_error *err)
{
    tt_found one, two;
    const double k = c->stages ? (double)c->layers / c->stages - 1 : 0;
    TT_TRY(evaluate(s, c->found.degrees, c->stages, memory, &one, err));
    TT_TRY(evaluate(s, c->found.degrees, 2 * (int64_t)c->stages, memory, &two, err));
    c->found.bytes = one.bytes + (two.bytes - one.bytes) * k;
    c->found.time.step = one.time.step + (two.time.step - one.time.step) * k;
    return TT_OK;
}

static tt_status plan_in_full(const searcher *s, candidate *c, tt_error *err)
{
    TT_TRY(evaluate(s, c->found.degrees, 0, true, &c->found, err));
    c->in_full = true;
    c->too_big = c->found.bytes > s->o->memory;
    return TT_OK;
}

static tt_status time_only(searcher *s, candidate *c, tt_error *err)
{
    TT_TRY(measure(s, c, err));
    if (s->o->all)
        return plan_in_full(s, c, err);
    return c->stages ? estimate(s, c, false, err)
                     : evaluate(s, c->found.degrees, 0, false, &c->found, err);
}

/* Plans a mesh in full, unless its estimated memory is far too large. */
static tt_status with_memory(const searcher *s, candidate *c, tt_error *err)
{
    if (c->stages)
        TT_TRY(estimate(s, c, true, err));
    c->too_big = c->found.bytes > MEMORY_SLACK * s->o->memory;
    return c->too_big ? TT_OK : plan_in_full(s, c, err);
}

/* If setup refuses the job on a mesh, the mesh is left out; any other failure ends the search. */
static tt_status search_look(searcher *s, candidate *c, bool memory, tt_error *err)
{
    tt_error why = {0};
    const tt_status st = memory ? with_memory(s, c, &why) : time_only(s, c, &why);
    if (s->o->progress)
        s->o->progress(s->o->user, ++s->done, s->to_do);
    if (st == TT_OK)
        return TT_OK;
    if (st != TT_EINVAL && st != TT_EUNSUPPORTED) {
        *err = why;
        return st;
    }
    if (!s->why.text[0])
        s->why = why;
    c->refused = true;
    return TT_OK;
}

/* ---- all meshes ---- */

static void add_mesh(searcher *s, tt_mesh_degrees d)
{
    candidate c = {.found.degrees = d, .at = (int)s->all.n};
    if (s->all.n < MOST_MESHES)
        tt_vec_push(s->a, &s->all, c);
}

/* Of a model with experts, a mesh for each degree of ep that divides them and the ranks which ep takes. */
static void add_with_experts(searcher *s, tt_mesh_degrees d)
{
    const int32_t ranks = d.dp_shard * d.cp * d.tp;
    for (d.ep = 1; d.ep <= ranks && s->experts; d.ep++)
        if (ranks % d.ep == 0 && s->experts % d.ep == 0)
            add_mesh(s, d);
    d.ep = 1;
    if (!s->experts)
        add_mesh(s, d);
}

static void enumerate(searcher *s, tt_mesh_degrees d, int k, int32_t left)
{
    for (int32_t n = 1; n <= left; n++) {
        if (left % n || (k == 4 && n != left) || (s->fixed[k] && n != s->value[k]) ||
            s->all.n >= MOST_MESHES)
            continue;
        *degree(&d, k) = n;
        if (k < 4)
            enumerate(s, d, k + 1, left / n);
        else if (s->fixed[EP])
            add_mesh(s, d);
        else
            add_with_experts(s, d);
    }
}

/* Reads the degrees that the job sets, and its batch size. */
static tt_status read_job(searcher *s, tt_error *err)
{
    static const char *const cuts[] = {"pipeline_parallel_layers_per_stage",
                                       "pipeline_parallel_split_points",
                                       "module_fqns_per_model_part"};
    tt_job *job;
    tt_core_config *core = tt_arena_alloc(s->a, sizeof *core);
    TT_TRY(tt_job_load(s->a, s->o->job, s->o->overrides, s->o->n_overrides, &job, err));
    TT_TRY(tt_core_config_parse(job, core, err));
    const tt_parallelism_config *p = &core->parallelism;
    const int64_t given[DEGREES] = {
        p->pipeline_parallel_degree,   p->data_parallel_replicate_degree,
        p->data_parallel_shard_degree, p->context_parallel_degree,
        p->tensor_parallel_degree,     p->expert_parallel_degree};
    for (int k = 0; k < DEGREES; k++) {
        s->fixed[k] = tt_job_has(job, keys[k]) && given[k] > 0;
        s->value[k] = (int32_t)given[k];
    }
    for (size_t i = 0; i < TT_COUNT(cuts); i++)
        s->stages_follow_layers = s->stages_follow_layers ||
                                  tt_job_has(job, tt_arena_printf(s->a, "parallelism.%s", cuts[i]));
    int64_t global = core->training.global_batch_size;
    if (global < 1 && !tt_mul_i64(core->training.local_batch_size, s->o->world, &global))
        return TT_FAIL(err, TT_EINVAL, "training.local_batch_size: too many samples for %d ranks",
                       s->o->world);
    s->global = tt_arena_printf(s->a, "%lld", (long long)global);
    return TT_OK;
}

/* The meshes of the world: first without ep, because a setup on one of them tells whether the model has experts. */
static void all_meshes(searcher *s)
{
    const tt_mesh_degrees first = {.ep = s->fixed[EP] ? s->value[EP] : 1};
    enumerate(s, first, 0, s->o->world);
    for (size_t i = 0; i < s->all.n && !s->fixed[EP]; i++) {
        tt_arena *a = tt_arena_new();
        tt_setup *setup = tt_arena_alloc(a, sizeof *setup);
        tt_error why = {0};
        const bool known =
            make_setup(s, s->all.items[i].found.degrees, 0, false, a, setup, &why) == TT_OK;
        s->experts = known ? setup->shape.experts : 0;
        tt_arena_free(a);
        if (known)
            break;
    }
    if (!s->experts)
        return;
    s->all.n = 0;
    enumerate(s, first, 0, s->o->world);
}

static int faster_first(const void *x, const void *y)
{
    const candidate *a = *(candidate *const *)x, *b = *(candidate *const *)y;
    const double s = a->found.time.step, t = b->found.time.step;
    return s < t ? -1 : s > t ? 1 : a->at - b->at;
}

/* The step time of the slowest mesh among the best so far; infinite while there are too few. */
static double pace(const searcher *s, candidate **sorted, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++)
        if (sorted[i]->in_full && !sorted[i]->too_big && ++found == s->o->best)
            return sorted[i]->found.time.step;
    return (double)INFINITY;
}

/* Whether a mesh could be among the best. TIME_SLACK applies to estimated times only. */
static bool may_be_wanted(const candidate *c, double pace_now)
{
    return !c->in_full && !c->refused && !c->too_big &&
           c->found.time.step <= (c->stages ? TIME_SLACK : 1) * pace_now;
}

static tt_status plan_the_best(searcher *s, candidate **sorted, size_t n, tt_error *err)
{
    for (;;) {
        candidate *next = NULL;
        qsort(sorted, n, sizeof *sorted, faster_first);
        const double now = pace(s, sorted, n);
        for (size_t i = 0; !next && i < n; i++)
            if (may_be_wanted(sorted[i], now))
                next = sorted[i];
        if (!next)
            return TT_OK;
        s->to_do = TT_MAXV(s->to_do, s->done + 1);
        TT_TRY(search_look(s, next, true, err));
    }
}

static void search_collect(const searcher *s, candidate **sorted, size_t n, tt_search *out)
{
    out->meshes = (int)n;
    out->experts = s->experts > 0 || s->fixed[EP];
    out->global_batch = atoll(s->global);
    out->best = tt_arena_array(s->a, n + 1, sizeof *out->best);
    out->smallest.bytes = (double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        const candidate *c = sorted[i];
        out->refused += c->refused;
        if (c->refused)
            continue;
        out->planned += c->in_full;
        out->too_big += c->too_big;
        if (c->too_big && c->found.bytes < out->smallest.bytes)
            out->smallest = c->found;
        if (c->in_full && !c->too_big && out->n < s->o->best)
            out->best[out->n++] = c->found;
    }
}

tt_status tt_search_meshes(const tt_search_opts *o, tt_arena *a, tt_search *out, tt_error *err)
{
    searcher s = {.o = o, .a = a};
    *out = (tt_search){0};
    TT_TRY(read_job(&s, err));
    all_meshes(&s);
    const size_t n = s.all.n;
    if (!n)
        return TT_FAIL(err, TT_EINVAL,
                       "--search: the degrees that the job sets do not multiply to a divisor of "
                       "the world of %d",
                       o->world);
    if (n >= MOST_MESHES)
        return TT_FAIL(err, TT_EINVAL,
                       "--search: %d ranks have more than %d meshes; set some of the degrees in "
                       "the job",
                       o->world, MOST_MESHES);
    candidate **sorted = tt_arena_array(a, n, sizeof *sorted);
    s.to_do =
        (int64_t)n +
        (o->all ? 0 : TT_MIN((int64_t)n, o->best)); /* each mesh once, the best in full besides */
    int refused = 0;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &s.all.items[i];
        TT_TRY(search_look(&s, sorted[i], false, err));
        refused += sorted[i]->refused;
    }
    if (refused == (int)n) {
        *err = s.why;
        return tt_error_context(err, "no mesh of %d ranks works; the error of the first", o->world);
    }
    TT_TRY(plan_the_best(&s, sorted, n, err));
    search_collect(&s, sorted, n, out);
    return TT_OK;
}

/* ---- the table ---- */

static void print_degrees(const tt_found *f, bool experts, bool json, tt_str *out)
{
    static const char *const names[DEGREES] = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"};
    static const int width[DEGREES] = {4, 5, 6, 4, 4, 4};
    tt_found copy = *f;
    for (int k = 0; k < (experts ? DEGREES : EP); k++)
        if (json)
            tt_str_printf(out, "%s\"%s\":%d", k ? "," : "", names[k],
                          (int)*degree(&copy.degrees, k));
        else
            tt_str_printf(out, "%*d", width[k], (int)*degree(&copy.degrees, k));
}

static void print_json(const tt_search_opts *o, const tt_search *s, tt_str *out)
{
    tt_str_printf(out,
                  "{\"world\":%d,\"machine\":\"%s\",\"memory\":%.0f,\"global_batch_size\":%lld,"
                  "\"meshes\":%d,\"refused\":%d,\"too_big\":%d,\"planned\":%d,\"best\":[",
                  o->world, o->machine->name, o->memory, (long long)s->global_batch, s->meshes,
                  s->refused, s->too_big, s->planned);
    for (int i = 0; i < s->n; i++) {
        const tt_found *f = &s->best[i];
        tt_str_add(out, i ? ",{" : "{");
        print_degrees(f, s->experts, true, out);
        tt_str_printf(out,
                      ",\"step_time_s\":%.6g,\"communication_s\":%.6g,\"exposed_s\":%.6g,"
                      "\"bubble\":%.4f,\"mfu\":%.4f,"
                      "\"tokens_per_second\":%.6g,\"bytes\":%.0f}",
                      f->time.step, f->time.comm, f->time.exposed, f->time.bubble, f->time.mfu,
                      f->time.tokens_per_second, f->bytes);
    }
    tt_str_add(out, "]}\n");
}

/* A blank and the number in `width` columns, with as many of 4 digits as fit, so that columns stay
 * apart: 0.004365 s is 0.00437 in 7 columns. */
static void add_column(tt_str *out, int width, double v)
{
    char text[32];
    int digits = 4;
    while (snprintf(text, sizeof text, "%.*g", digits, v) > width && digits > 1)
        digits--;
    tt_str_printf(out, " %*s", width, text);
}

void tt_search_print(const tt_search_opts *o, const tt_search *s, bool json, tt_str *out)
{
    const double gib = 1.0 / (1 << 30);
    if (json) {
        print_json(o, s, out);
        return;
    }
    tt_str_printf(
        out,
        "search      %d ranks of %s with %.4g GiB each, %lld samples per step\n"
        "            %d meshes: %d refused, %d too big, %d planned in full, the rest slower\n",
        o->world, o->machine->name, gib * o->memory, (long long)s->global_batch, s->meshes,
        s->refused, s->too_big, s->planned);
    if (!s->n) {
        const tt_mesh_degrees *d = &s->smallest.degrees;
        tt_str_printf(out,
                      "fits        NO mesh: the smallest needs about %.4g GiB per rank (pp %d × "
                      "dp_replicate %d × dp_shard %d × cp %d × tp %d",
                      gib * s->smallest.bytes, (int)d->pp, (int)d->dp_replicate, (int)d->dp_shard,
                      (int)d->cp, (int)d->tp);
        if (s->experts)
            tt_str_printf(out, ", ep %d", (int)d->ep);
        tt_str_add(out, ")\n");
        return;
    }
    tt_str_printf(out,
                  "  pp repl shard  cp  tp%s   s/step tok/s/rank  MFU%% bubble%%  comm s exposed"
                  "    GiB\n",
                  s->experts ? "  ep" : "");
    for (int i = 0; i < s->n; i++) {
        const tt_found *f = &s->best[i];
        print_degrees(f, s->experts, false, out);
        add_column(out, 8, f->time.step);
        tt_str_printf(out, "%11.5g%6.1f%8.1f", f->time.tokens_per_second / o->world,
                      100 * f->time.mfu, 100 * f->time.bubble);
        add_column(out, 7, f->time.comm);
        add_column(out, 7, f->time.exposed);
        add_column(out, 6, gib * f->bytes);
        tt_str_addc(out, '\n');
    }
    tt_str_add(out,
               "            repl, shard: degrees of dp_replicate and dp_shard; GiB: per rank;\n"
               "            comm s: communication, of which exposed is not hidden\n");
    tt_str_add(out, "best       "); /* one line, to be pasted or cut out by a script */
    for (int k = 0; k < (s->experts ? DEGREES : EP); k++) {
        tt_found first = s->best[0];
        tt_str_printf(out, " --%s %d", keys[k], (int)*degree(&first.degrees, k));
    }
    tt_str_printf(out, " --training.global_batch_size %lld\n", (long long)s->global_batch);
}
