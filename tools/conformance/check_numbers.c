/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance/check_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/converter.h>

/* The stages that compare numbers: gradients, two ranks against one, kernels, training. */

/* Kinds of components that become part of a step's graph. */
static bool in_graph(tt_kind k)
{
    return k == TT_KIND_MODEL || k == TT_KIND_LOSS || k == TT_KIND_OP || k == TT_KIND_BACKEND ||
           k == TT_KIND_CONVERTER || k == TT_KIND_KERNELS;
}

/* An op is tried on numbers between -1 and 1. It is not a fault if the op is not defined on all of
 * them. */
static tt_status check_finite(const tt_component *c, double loss, int64_t step, tt_error *err)
{
    if (isfinite(loss))
        return TT_OK;
    if (c->kind == TT_KIND_OP)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "not finite for all inputs from -1 to 1: check a model that uses it");
    return TT_FAIL(err, TT_EINVAL, "the loss of step %lld is %g", (long long)step, loss);
}

/* Returns a tenth of the gradient of the mean loss: adamw's first moment after a step with learning
 * rate 0 and beta1 0.9. */
static tt_status gradient(const tt_rig *rig, tt_rank *r, double *loss, tt_whole *out, tt_error *err)
{
    TT_TRY(tt_rig_step(rig, r, 1, 0.0, loss, err));
    return tt_rig_gather(rig, r, "exp_avg", out, err);
}

static double norm(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * (double)x[i];
    return sqrt(s);
}

/* ---- gradients against finite differences ----
 * For each parameter and two directions r of random signs, g·r is compared with the slope of the
 * loss along r. The slope comes from central differences at h and 2h, combined so that their h²
 * errors cancel (Richardson). Because E(g·r)² = |g|², an error as large as the gradient is visible
 * in a random direction, however it is spread over the elements. h is 2 % of the parameter's rms,
 * or less if the loss is curved. The remaining truncation error, O(h⁴), is below 0.2 % for ttrun's
 * models; relus near their kink add some. The losses are f32 sums of about 30 tokens, so rounding
 * hides slopes below NOISE units in their last place, divided by h. The allowed difference is 2 %
 * of |g| plus that noise. A wrong derivative differs by tens of per cent.
 *   Some losses turn within h: a norm of a vector that is not longer than the root of its epsilon
 * gives its sign, and the first output of a delta rule is that short if its query and key are nearly
 * orthogonal. Slopes at h and 2h may then agree and not be the derivative, so h is also reduced while
 * the slope is not the gradient's. It counts against the gradient if it is the same at 4h; else
 * rounding forbids the h that is small enough, and nothing is known. */
#define RELATIVE_STEP 0.02
#define TOLERANCE 0.02
#define NOISE 8.0
#define DIRECTIONS 2

typedef struct slope {
    const tt_rig *rig;
    tt_rank *rank;
    float *data;          /* where the parameter's elements are: memory of the backend */
    float *start, *moved; /* their values at the start, and moved along the direction */
    int8_t *sign;
    int64_t n, evaluations;
} slope;

/* Computes the loss with h·r added to the parameter. */
static tt_status loss_at(slope *s, double h, double *loss, tt_error *err)
{
    const size_t bytes = (size_t)s->n * sizeof *s->data;
    for (int64_t i = 0; i < s->n; i++)
        s->moved[i] = (float)((double)s->start[i] + h * s->sign[i]);
    s->evaluations++;
    TT_TRY(tt_exec_write(s->rank->exec, s->data, s->moved, bytes, err));
    TT_TRY(tt_rig_loss(s->rig, s->rank, 1, loss, err));
    return tt_exec_write(s->rank->exec, s->data, s->start, bytes, err);
}

static tt_status central(slope *s, double h, double *out, tt_error *err)
{
    double up, down;
    TT_TRY(loss_at(s, h, &up, err));
    TT_TRY(loss_at(s, -h, &down, err));
    *out = (up - down) / (2 * h);
    return TT_OK;
}

/* What is known of the slope along r. */
typedef struct measured {
    double slope, noise; /* noise: by how much rounding may change the slope */
    bool agrees;         /* it is that of the gradient */
    bool sure;           /* if it is not: the gradient is wrong */
} measured;

/* wanted: the gradient's slope; size: the gradient's norm; unit: the rounding of a loss. h is reduced
 * as long as rounding allows, until the slopes at h and 2h are the same, and the gradient's. */
static tt_status measure(slope *s, double size, double unit, double wanted, measured *out,
                         tt_error *err)
{
    const double rms = norm(s->start, s->n) / sqrt((double)s->n), allowed = TOLERANCE * size;
    double near = 0, far = 0, before = 0, h = 4 * RELATIVE_STEP * (rms > 0 ? rms : 0.5);
    bool first = true, level;
    do {
        h /= 4;
        TT_TRY(central(s, h, &near, err));
        TT_TRY(central(s, 2 * h, &far, err));
        *out = (measured){.slope = (4 * near - far) / 3, .noise = unit / h};
        const double tolerance = allowed + out->noise;
        level = fabs(near - far) <= tolerance;
        out->agrees = fabs(out->slope - wanted) <= tolerance;
        out->sure = level && (first || fabs(out->slope - before) <= tolerance);
        before = out->slope;
        first = false;
    } while (!(level && out->agrees) && 4 * unit / h < allowed);
    return TT_OK;
}

/* Compares the gradient of one parameter with measured slopes. *seen: the gradient is well above
 * the noise. */
static tt_status numbers_compare(slope *s, const tt_whole *g, double loss, bool *seen,
                                 tt_error *err)
{
    const double tokens = (double)s->rig->batch.counted;
    const double size = 10 * tokens * norm(g->data, g->n); /* the gradient's norm for the sum of the
                                                              token losses */
    const double unit = NOISE * ldexp(fabs(loss) * tokens + 1, -24);
    *seen = true;
    for (int d = 0; d < DIRECTIONS; d++) {
        const tt_rng_key key = tt_rng_key_make((uint64_t)d, g->name, 0);
        double wanted = 0;
        measured m;
        for (int64_t i = 0; i < s->n; i++) {
            s->sign[i] = tt_rng_uniform(key, (uint64_t)i) < 0.5 ? -1 : 1;
            wanted += 10 * tokens * (double)g->data[i] * s->sign[i];
        }
        TT_TRY(measure(s, size, unit, wanted, &m, err));
        if (!m.agrees && m.sure)
            return TT_FAIL(
                err, TT_EINVAL,
                "the gradient of %s is wrong: along a direction of random signs the "
                "loss's slope is %.4g, but the gradient gives %.4g (allowed difference: %.2g)",
                g->name, m.slope, wanted, TOLERANCE * size + m.noise);
        *seen = *seen && m.agrees && m.noise < 3 * TOLERANCE * size;
    }
    return TT_OK;
}

/* Initial values are often so small that rounding hides the slopes. Matrices are scaled up until
 * their outputs are about as large as their inputs; a matrix of zeros gets random values. */
static void enliven(const tt_exec_tensor *t, float *p)
{
    const int64_t n = tt_tensor_numel(&t->tensor);
    if (t->tensor.n_dims < 2 || n == 0)
        return;
    const double wanted = 1 / sqrt((double)t->tensor.shape[t->tensor.n_dims - 1]);
    const double rms = norm(p, n) / sqrt((double)n);
    const tt_rng_key key = tt_rng_key_make(0, t->name, 1);
    for (int64_t i = 0; i < n && rms < wanted; i++)
        p[i] = (float)(rms > 0 ? (double)p[i] * wanted / rms
                               : wanted * tt_normal_quantile(tt_rng_uniform(key, (uint64_t)i)));
}

typedef struct gradients {
    const tt_component *part;
    int seen, all;
} gradients;

static tt_status compare_all(const tt_rig *rig, tt_rank *r, void *user, tt_error *err)
{
    gradients *out = user;
    tt_exec_tensor *t = NULL;
    double loss;
    tt_whole *g = tt_rig_whole(rig);
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n; i++)
        if (!t[i].suffix && !t[i].param->frozen) {
            void *data;
            TT_TRY(tt_exec_map(r->exec, &t[i].tensor, true, &data, err));
            enliven(&t[i], data);
            TT_TRY(tt_exec_unmap(r->exec, &t[i].tensor, data, true, err));
        }
    TT_TRY(gradient(rig, r, &loss, g, err));
    TT_TRY(check_finite(out->part, loss, 1, err));
    for (size_t i = 0; i < n; i++) {
        const tt_whole *w = g;
        if (t[i].suffix || t[i].param->frozen)
            continue;
        while (w->param != t[i].param)
            w++;
        slope s = {.rig = rig, .rank = r, .data = t[i].tensor.data, .n = w->n};
        s.start = tt_arena_array(r->arena, (size_t)s.n + 1, sizeof *s.start);
        s.moved = tt_arena_array(r->arena, (size_t)s.n + 1, sizeof *s.moved);
        TT_TRY(tt_exec_read(r->exec, s.start, s.data, (size_t)s.n * sizeof *s.data, err));
        s.sign = tt_arena_alloc(r->arena, (size_t)s.n + 1);
        bool seen = false;
        TT_TRY(numbers_compare(&s, w, loss, &seen, err));
        out->all++;
        out->seen += seen;
    }
    return TT_OK;
}

/* Returns the reason why a difference is not a fault for this component, or NULL. */
static const char *intent(const tt_rig *rig)
{
    if (rig->rounds)
        return "it computes in less than 32 bits, and rounded losses give no usable slopes";
    if (rig->s.graph->losses.n)
        return "it has auxiliary losses, which are not part of the loss that is measured";
    return NULL;
}

/* Returns the function with which a model stops a gradient or defines its own, so that the gradient
 * may differ from the slope on purpose; NULL = it uses none. */
static const char *by_hand(const tt_rig *rig)
{
    for (size_t i = 0; i < rig->s.graph->nodes.n; i++)
        if (rig->s.graph->nodes.items[i]->op->flags & TT_OP_STOPS_GRADIENT)
            return "tt_stop_gradient";
    return rig->s.graph->custom_vjp ? "tt_custom_vjp" : NULL;
}

/* The same of a component: a converter's product() has the gradient of the layer as it was. */
static const char *by_hand_in(const tt_rig *rig, const tt_component *c)
{
    const tt_converter_vt *vt = c->kind == TT_KIND_CONVERTER ? c->vtable : NULL;
    if (vt && TT_HAS(vt, tt_converter_vt, product) && vt->product)
        return "product(), whose gradient is that of the layer as it was";
    return by_hand(rig);
}

tt_status tt_check_gradients(const tt_check_job *job, const tt_component *c, tt_str *note,
                             tt_error *err)
{
    tt_rig *rig = NULL;
    gradients g = {c, 0, 0};
    tt_error why = {0};
    if (!in_graph(c->kind))
        return TT_FAIL(err, TT_EUNSUPPORTED, "has no derivative");
    TT_TRY(tt_rig_new(&(tt_rig_opts){.job = job, .part = c, .fixed_choice = true}, &rig, err));
    tt_status s = TT_OK;
    if (intent(rig))
        s = TT_FAIL(err, TT_EUNSUPPORTED, "%s", intent(rig));
    else if (tt_rig_run(rig, compare_all, &g, &why) != TT_OK)
        s = c->kind != TT_KIND_OP && by_hand_in(rig, c) && strstr(why.text, "is wrong:")
                ? TT_FAIL(err, TT_EUNSUPPORTED, "%s; this is allowed, because it uses %s", why.text,
                          by_hand_in(rig, c))
                : TT_FAIL(err, why.code, "%s", why.text);
    if (s == TT_OK)
        tt_str_printf(note, "%d parameters, %d of them with gradients well above the noise", g.all,
                      g.seen);
    tt_rig_free(rig);
    return s;
}

/* ---- two ranks against one ----
 * The sums are the same, added in another order: f32 rounding is 6e-8 per term, and cancellation
 * enlarges it. A thousandth of a gradient's rms is far above that, and far below the effect of a
 * missing or doubled reduction. Values that are rounded to 16 bits differ by 2^-8 anyway. Two ranks
 * are used in two ways: tensor parallelism, and parameters sharded over data-parallel ranks (FSDP).
 */
#define STEPS 3
#define RATE 1e-3

typedef struct trace {
    double loss[STEPS + 1];
    tt_whole *initial, *grad,
        *final; /* grad: adamw's exp_avg; NULL if another optimizer is checked */
    double rate;
} trace;

static tt_status record(const tt_rig *rig, tt_rank *r, void *user, tt_error *err)
{
    trace *t = user;
    double loss[STEPS + 1] = {0};
    TT_TRY(tt_rig_gather(rig, r, NULL, t->initial, err));
    if (t->grad)
        TT_TRY(gradient(rig, r, &loss[0], t->grad, err));
    for (int i = 1; i <= STEPS; i++)
        TT_TRY(tt_rig_step(rig, r, i + 1, t->rate, &loss[i], err));
    TT_TRY(tt_rig_gather(rig, r, NULL, t->final, err));
    if (r->dist.rank == 0)
        memcpy(t->loss, loss, sizeof loss);
    return TT_OK;
}

/* Returns the optimizer's own default rate if an optimizer is checked. */
static double rate_of(const tt_rig *rig, const tt_component *c)
{
    if (c->kind != TT_KIND_OPTIMIZER)
        return RATE;
    const double *own = tt_optimizer_rate(c, rig->s.optimizer.config);
    return own ? *own : RATE;
}

static tt_status trace_of(const tt_rig_opts *o, tt_rig **rig, trace *t, tt_error *err)
{
    TT_TRY(tt_rig_new(o, rig, err));
    *t = (trace){.initial = tt_rig_whole(*rig), .final = tt_rig_whole(*rig)};
    if (o->part->kind != TT_KIND_OPTIMIZER)
        t->grad = tt_rig_whole(*rig);
    t->rate = rate_of(*rig, o->part);
    return tt_rig_run(*rig, record, t, err);
}

static double farthest(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= most))
            most = fabs((double)a[i] - (double)b[i]);
    return most;
}

static tt_status same_gradients(const tt_rig *rig, const trace *one, const trace *two, double tol,
                                const char *between, tt_error *err)
{
    const size_t n = rig->s.graph->params.n;
    double squares = 0, elements = 1;
    for (size_t i = 0; i < n; i++) {
        squares += pow(norm(one->grad[i].data, one->grad[i].n), 2);
        elements += (double)one->grad[i].n;
    }
    for (size_t i = 0; i < n; i++) {
        const tt_whole *a = &one->grad[i], *b = &two->grad[i];
        const double rms = norm(a->data, a->n) / sqrt((double)a->n + 1e-300);
        const double scale = fmax(rms, 0.01 * sqrt(squares / elements));
        const double apart = farthest(a->data, b->data, a->n);
        if (!(apart <= tol * scale))
            return TT_FAIL(err, TT_EINVAL,
                           "the gradient of %s differs between %s: by %.2g, while its rms is %.2g",
                           a->name, between, 10 * apart, 10 * rms);
    }
    return TT_OK;
}

/* Compares the distance between the two runs' parameters with the distance from the initial values.
 */
static tt_status same_updates(const tt_rig *rig, const trace *one, const trace *two, double tol,
                              tt_error *err)
{
    for (size_t i = 0; i < rig->s.graph->params.n; i++) {
        const tt_whole *a = &one->final[i], *b = &two->final[i], *from = &one->initial[i];
        double apart = 0, went = 0;
        for (int64_t k = 0; k < a->n; k++) {
            apart += pow((double)a->data[k] - (double)b->data[k], 2);
            went += pow((double)a->data[k] - (double)from->data[k], 2);
        }
        if (!(sqrt(apart) <= tol * sqrt(went)))
            return TT_FAIL(err, TT_EINVAL,
                           "after %d steps %s differs by %.2g from that of one rank, which changed "
                           "it by %.2g",
                           STEPS, a->name, sqrt(apart), sqrt(went));
    }
    return TT_OK;
}

static tt_status same(const tt_rig *rig, const trace *one, const trace *two, tt_error *err)
{
    const double tol = rig->rounds ? 0.1 : 1e-3;
    for (size_t i = 0; i < rig->s.graph->params.n; i++)
        if (memcmp(one->initial[i].data, two->initial[i].data,
                   (size_t)one->initial[i].n * sizeof(float)) != 0)
            return TT_FAIL(err, TT_EINTERNAL, "the initial values of %s differ",
                           one->initial[i].name);
    for (int i = one->grad ? 0 : 1; i <= STEPS; i++)
        if (!(fabs(one->loss[i] - two->loss[i]) <= tol * fabs(one->loss[i])))
            return TT_FAIL(err, TT_EINVAL, "the loss of step %d is %.7g on one rank, %.7g on two",
                           TT_MAXV(i, 1), one->loss[i], two->loss[i]);
    /* a gradient that is only noise may move an element either way: so some elements may differ */
    return one->grad
               ? same_gradients(rig, one, two, tol,
                                "one rank and two (a dim's label or an op's rule is wrong)", err)
               : same_updates(rig, one, two, 0.05, err);
}

tt_status tt_check_tp(const tt_check_job *job, const tt_component *c, tt_str *note, tt_error *err)
{
    tt_rig *alone = NULL;
    trace one, two = {.loss = {0}};
    tt_rig_opts o = {.job = job, .part = c};
    if (!in_graph(c->kind) && c->kind != TT_KIND_OPTIMIZER)
        return TT_FAIL(err, TT_EUNSUPPORTED, "runs outside the graph of a step");
    tt_status s = trace_of(&o, &alone, &one, err);
    if (s == TT_OK)
        s = check_finite(c, one.loss[STEPS], STEPS, err);
    if (s == TT_OK)
        tt_str_printf(note, "losses after %d steps: %.6g", STEPS, one.loss[STEPS]);
    for (int tp = 2; tp >= 1 && s == TT_OK; tp--) {
        tt_rig *rig = NULL;
        o.tp = tp;
        o.fsdp = 3 - tp;
        s = trace_of(&o, &rig, &two, err);
        if (s == TT_OK)
            s = same(alone, &one, &two, err);
        if (s == TT_OK)
            tt_str_printf(note, ", %s %.6g", tp == 2 ? "TP 2" : "FSDP 2", two.loss[STEPS]);
        else if (s != TT_EUNSUPPORTED)
            tt_error_context(err, "%s", tp == 2 ? "TP 2" : "FSDP 2");
        tt_rig_free(rig);
    }
    tt_rig_free(alone);
    return s;
}

/* ---- kernels against the backend without them: its own kernels, or the ops' decompositions ----
 */

static int on_kernels(const tt_rig *rig, const tt_kernels_vt *vt, tt_str *ops)
{
    int n = 0;
    for (size_t k = 0; k < vt->n_kernels; k++) {
        const tt_kernel *kernel = (const void *)((const char *)vt->kernels + k * vt->kernel_size);
        const tt_op_def *op = tt_op_find(rig->s.graph->ops, kernel->op);
        int of_op = 0;
        for (size_t i = 0; i < rig->s.graph->nodes.n; i++)
            of_op += rig->s.graph->nodes.items[i]->op == op;
        if (of_op)
            tt_str_printf(ops, "%s%s", n ? ", " : "", kernel->op);
        n += of_op;
    }
    return n;
}

static tt_status same_without(const tt_rig *rig, const trace *with, const trace *without,
                              tt_error *err)
{
    const double tol = rig->rounds ? 0.1 : 1e-3;
    for (int i = 0; i <= STEPS; i++)
        if (!(fabs(with->loss[i] - without->loss[i]) <= tol * fabs(without->loss[i])))
            return TT_FAIL(err, TT_EINVAL,
                           "the loss of step %d is %.7g with these kernels, %.7g without",
                           TT_MAXV(i, 1), with->loss[i], without->loss[i]);
    return same_gradients(rig, with, without, tol, "these kernels and the backend without them",
                          err);
}

tt_status tt_check_kernels(const tt_check_job *job, const tt_component *c, tt_str *note,
                           tt_error *err)
{
    tt_rig *rig = NULL, *bare = NULL;
    trace with, without = {.loss = {0}};
    tt_rig_opts o = {.job = job, .part = c};
    tt_str ops = {0};
    tt_status s = trace_of(&o, &rig, &with, err);
    if (s == TT_OK && !on_kernels(rig, c->vtable, &ops))
        s = TT_FAIL(err, TT_EUNSUPPORTED,
                    "no op of the small model runs on these kernels: check a model that uses them");
    o.backend_alone = true;
    if (s == TT_OK)
        s = trace_of(&o, &bare, &without, err);
    if (s == TT_OK)
        s = same_without(rig, &with, &without, err);
    if (s == TT_OK)
        tt_str_printf(note, "%s: losses after %d steps: %.6g, without these kernels %.6g",
                      tt_str_get(&ops), STEPS, with.loss[STEPS], without.loss[STEPS]);
    tt_str_free(&ops);
    tt_rig_free(bare);
    tt_rig_free(rig);
    return s;
}

/* ---- training ---- */
#define TRAIN_STEPS 30
#define TRAIN_RATE 3e-3

typedef struct course {
    const tt_component *part;
    double first, last;
} course;

static double factor_at(const tt_rig *rig, int64_t step)
{
    return tt_setup_lr_factor(&rig->s, step - 1, TRAIN_STEPS);
}

static tt_status train(const tt_rig *rig, tt_rank *r, void *user, tt_error *err)
{
    course *c = user;
    const double rate = c->part->kind == TT_KIND_OPTIMIZER ? rate_of(rig, c->part) : TRAIN_RATE;
    for (int64_t step = 1; step <= TRAIN_STEPS; step++) {
        TT_TRY(tt_rig_step(rig, r, step, rate * factor_at(rig, step), &c->last, err));
        if (step == 1)
            c->first = c->last;
        TT_TRY(check_finite(c->part, c->last, step, err));
    }
    return TT_OK;
}

/* Trains on the same batch again and again, which a model learns by heart: with adamw the loss
 * falls by far more than a tenth in 30 steps. Optimizers and schedules have their own rates, so for
 * them any fall is enough. */
tt_status tt_check_trains(const tt_check_job *job, const tt_component *c, tt_str *note,
                          tt_error *err)
{
    tt_rig *rig = NULL;
    course t = {.part = c};
    const bool own_rate = c->kind == TT_KIND_OPTIMIZER || c->kind == TT_KIND_LR_SCHEDULER;
    if (!in_graph(c->kind) && !own_rate)
        return TT_FAIL(err, TT_EUNSUPPORTED, "runs outside the graph of a step");
    TT_TRY(tt_rig_new(&(tt_rig_opts){.job = job, .part = c}, &rig, err));
    tt_status s = tt_rig_run(rig, train, &t, err);
    if (s == TT_OK && !(t.last < t.first * (own_rate ? 1.0 : 0.9)))
        s = TT_FAIL(err, TT_EINVAL,
                    "does not learn one batch by heart: the loss went from %.5g to %.5g in %d "
                    "steps",
                    t.first, t.last, TRAIN_STEPS);
    if (s == TT_OK)
        tt_str_printf(note, "loss %.4g to %.4g in %d steps on one batch", t.first, t.last,
                      TRAIN_STEPS);
    tt_rig_free(rig);
    return s;
}
