/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "conformance/check_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/backend.h>

/* The stage "describes": compiles a small model with components that are part of the graph, and
 * calls other components a few times. */

/* ---- parts of the graph ---- */

static void print_count(tt_str *out, int64_t n)
{
    char digits[32];
    const int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++)
        tt_str_printf(out, "%s%c", i && (len - i) % 3 == 0 ? "," : "", digits[i]);
}

static void print_states(const tt_graph *g, tt_str *out)
{
    const char *seen[32];
    size_t n = 0;
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        bool known = s->kind != TT_STATE_OPTIMIZER || n == TT_COUNT(seen);
        for (size_t k = 0; k < n && !known; k++)
            known = strcmp(seen[k], s->suffix) == 0;
        if (!known)
            tt_str_printf(out, "%s%s", n ? ", " : "state: ", seen[n] = s->suffix), n++;
    }
    if (n == 0)
        tt_str_add(out, "no state");
}

static int64_t numel(const tt_type *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->dims[d].size;
    return n;
}

static void print_model(const tt_rig *rig, tt_str *out)
{
    const tt_graph *g = rig->s.graph;
    int64_t n = 0;
    for (size_t i = 0; i < g->params.n; i++)
        n += numel(&g->params.items[i]->type);
    print_count(out, n);
    tt_str_printf(out, " parameters in %zu tensors, %d block%s; outputs:", g->params.n, g->n_blocks,
                  g->n_blocks == 1 ? "" : "s");
    for (size_t i = 0; i < tt_map_size(g->outputs); i++)
        tt_str_printf(out, " %s", tt_map_key(g->outputs, i));
}

static tt_status describe_graph(const tt_check_job *job, const tt_component *c, tt_str *note,
                                tt_error *err)
{
    tt_rig *rig = NULL;
    tt_status s = TT_OK;
    if (c->kind == TT_KIND_OP)
        TT_TRY(tt_check_op_rule(c, err));
    if (c->kind == TT_KIND_MODEL)
        TT_TRY(tt_check_flavors(job, c, err));
    TT_TRY(tt_rig_new(&(tt_rig_opts){.job = job, .part = c}, &rig, err));
    if (c->kind == TT_KIND_MODEL) {
        print_model(rig, note);
        tt_check_note_params(rig, note);
        s = tt_check_vocabulary(rig, note, err);
    } else if (c->kind == TT_KIND_OPTIMIZER) {
        print_states(rig->s.graph, note);
        s = tt_check_states(rig, err);
    } else if (c->kind == TT_KIND_CONVERTER) {
        tt_str_printf(note, "replaces %d of the %d linears and products of a small model",
                      rig->converted, rig->asked);
    } else {
        tt_str_add(note, "compiles with a small model");
    }
    tt_rig_free(rig);
    return s;
}

/* ---- lr_scheduler ---- */

static tt_status describe_schedule(const tt_part *p, tt_str *note, tt_error *err)
{
    static const int64_t totals[] = {1, 2, 10, 1000, 100000};
    const tt_lr_scheduler_vt *vt = p->component->vtable;
    double most = 0;
    for (size_t k = 0; k < TT_COUNT(totals); k++) {
        const int64_t every = TT_MAXV(totals[k] / 1000, (int64_t)1);
        for (int64_t step = 0; step < totals[k]; step += every) {
            const double f = vt->factor(p->config, step, totals[k]);
            if (!isfinite(f) || f < 0)
                return TT_FAIL(err, TT_EINVAL, "the factor of step %lld of %lld is %g",
                               (long long)step, (long long)totals[k], f);
            if (f != vt->factor(p->config, step, totals[k]))
                return TT_FAIL(
                    err, TT_EINVAL,
                    "two calls give different factors for step %lld: the factor must be a "
                    "function of the step",
                    (long long)step);
            most = fmax(most, f);
        }
    }
    tt_str_printf(note, "in a run of 1000 steps: factor %.3g at step 1, %.3g at 500, %.3g at 1000",
                  vt->factor(p->config, 0, 1000), vt->factor(p->config, 499, 1000),
                  vt->factor(p->config, 999, 1000));
    return TT_OK;
}

/* ---- tokenizer ---- */

static tt_status round_trip(const tt_tokenizer_vt *vt, void *self, int64_t vocab, const char *text,
                            tt_error *err)
{
    tt_ids ids = {0};
    tt_str back = {0};
    tt_status s =
        TT_PLUGIN_CALL(vt->encode(self, text, strlen(text), &ids, err), err, "encode()", NULL);
    for (size_t i = 0; i < ids.n && s == TT_OK; i++) {
        char piece[4096];
        if (ids.ids[i] < 0 || ids.ids[i] >= vocab) {
            s = TT_FAIL(err, TT_EINVAL, "encode() of \"%s\" gives the id %d; vocab_size is %lld",
                        text, (int)ids.ids[i], (long long)vocab);
            break;
        }
        tt_str_addn(&back, piece,
                    TT_MIN(vt->decode(self, ids.ids[i], piece, sizeof piece), sizeof piece));
    }
    if (s == TT_OK && strcmp(tt_str_get(&back), text) != 0)
        s = TT_FAIL(err, TT_EINVAL, "encode() and decode() turn \"%s\" into \"%s\"", text,
                    tt_str_get(&back));
    tt_str_free(&back);
    tt_ids_free(&ids);
    return s;
}

static tt_status talk(const tt_tokenizer_vt *vt, void *self, tt_str *note, tt_error *err)
{
    static const char *const texts[] = {"",
                                        "a",
                                        "The quick brown fox.",
                                        "  two  blanks\n\ttab\n",
                                        "int main(void) { return 0; }",
                                        "na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82"};
    tt_tokenizer_info info = {.struct_size = sizeof info};
    char piece[64];
    vt->info(self, &info);
    if (info.vocab_size < 1 || info.bos >= info.vocab_size || info.eos >= info.vocab_size)
        return TT_FAIL(err, TT_EINVAL, "info() says vocab_size %lld, bos %d, eos %d",
                       (long long)info.vocab_size, (int)info.bos, (int)info.eos);
    if (!info.fingerprint[0] || !memchr(info.fingerprint, 0, sizeof info.fingerprint))
        return TT_FAIL(err, TT_EINVAL, "info() gives no fingerprint");
    for (size_t i = 0; i < TT_COUNT(texts); i++)
        TT_TRY(round_trip(vt, self, info.vocab_size, texts[i], err));
    vt->decode(self, -1, piece, sizeof piece); /* an id that is out of range must not crash it */
    vt->decode(self, INT32_MAX, piece, sizeof piece);
    tt_str_printf(note, "%lld ids; %zu texts are unchanged after encode() and decode()",
                  (long long)info.vocab_size, TT_COUNT(texts));
    return TT_OK;
}

/* Whether the command line has options of the section. */
static bool configured(const tt_check_opts *o, const char *section)
{
    const size_t n = strlen(section);
    for (size_t i = 0; i < o->n_overrides; i++)
        if (!strncmp(o->overrides[i].key, section, n) &&
            (!o->overrides[i].key[n] || o->overrides[i].key[n] == '.'))
            return true;
    return false;
}

/* A refusal by open() is a failure only if options of the section were given. Without them the
 * component may need options, and the stage is skipped. */
static tt_status needs(const tt_check_opts *o, const char *section, const tt_error *why,
                       tt_error *err)
{
    if (configured(o, section))
        return TT_FAIL(err, why->code == TT_EUNSUPPORTED ? TT_EINVAL : why->code,
                       "does not open with the given options --%s.…: %s", section, why->text);
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "does not open with its defaults (%s): set its options with --%s.KEY VALUE",
                   why->text, section);
}

static tt_status describe_tokenizer(const tt_check_opts *o, const tt_part *p, tt_str *note,
                                    tt_error *err)
{
    const tt_tokenizer_vt *vt = p->component->vtable;
    void *self = NULL;
    tt_error why = {0};
    if (TT_PLUGIN_CALL(vt->open(p->config, &self, &why), &why, "open()", NULL) != TT_OK)
        return needs(o, "tokenizer", &why, err);
    const tt_status s = talk(vt, self, note, err);
    vt->close(self);
    return s;
}

/* ---- dataloader ---- */

#define SAMPLE 16      /* tokens */
#define LOOKED_AT 1000 /* samples */

typedef struct sample_memory {
    int32_t ids[SAMPLE], labels[SAMPLE], pos[SAMPLE], seg[SAMPLE];
    float own[TT_MAX_INPUTS][SAMPLE]; /* f32 or i32, as the input declares */
} sample_memory;

static tt_status read_one(const tt_dataloader_vt *vt, void *self, int64_t at, int64_t vocab,
                          sample_memory *m, tt_error *err)
{
    void *own[TT_MAX_INPUTS];
    tt_sample s = {sizeof s, SAMPLE, m->ids, m->labels, m->pos, m->seg, own};
    memset(m, 0x7f, sizeof *m); /* so that a field that read() does not write is noticed */
    memset(m->own, 0, sizeof m->own);
    for (int i = 0; i < TT_MAX_INPUTS; i++)
        own[i] = m->own[i];
    for (int i = 0; i < SAMPLE; i++) {
        m->pos[i] = i;
        m->seg[i] = 0;
    }
    TT_TRY(TT_PLUGIN_CALL(vt->read(self, at, &s, err), err, "read()", NULL));
    for (int i = 0; i < SAMPLE; i++)
        if (m->ids[i] < 0 || m->ids[i] >= vocab || m->labels[i] >= vocab || m->pos[i] < 0 ||
            m->seg[i] < 0)
            return TT_FAIL(err, TT_EINVAL,
                           "token %d of sample %lld: id %d, label %d, pos %d, seg %d; the "
                           "vocabulary has %lld",
                           i, (long long)at, (int)m->ids[i], (int)m->labels[i], (int)m->pos[i],
                           (int)m->seg[i], (long long)vocab);
    return TT_OK;
}

/* Lists the inputs that the loader declares, and checks that those of the first sample are finite.
 */
static tt_status note_inputs(const tt_inputs *t, const sample_memory *m, tt_str *note,
                             tt_error *err)
{
    for (int i = 0; i < t->n; i++) {
        char text[128];
        tt_input_print(&t->items[i], text, sizeof text);
        tt_str_printf(note, "%s%s", i ? ", " : "; also gives ", text);
        for (int k = 0; t->items[i].dtype == TT_F32 && k < SAMPLE; k++)
            if (!isfinite(m->own[i][k]))
                return TT_FAIL(err, TT_EINVAL, "input %s of sample 0 is %g at position %d", text,
                               (double)m->own[i][k], k);
    }
    return TT_OK;
}

static tt_status read_some(const tt_dataloader_vt *vt, const void *config, void *self,
                           int64_t vocab, tt_str *note, tt_error *err)
{
    sample_memory first, other;
    tt_inputs inputs;
    TT_TRY(tt_inputs_of(vt, config, &inputs, err));
    const int64_t n = vt->n_samples(self);
    if (n < 1)
        return TT_FAIL(err, TT_EINVAL, "n_samples() is %lld", (long long)n);
    TT_TRY(read_one(vt, self, 0, vocab, &first, err));
    TT_TRY(read_one(vt, self, n - 1, vocab, &other, err));
    for (int64_t k = 0; k < LOOKED_AT; k++) { /* every sample of a small set, else samples at equal
                                                 distances */
        const int64_t at = n <= LOOKED_AT ? k : (int64_t)((double)n * (double)k / LOOKED_AT);
        if (at < n)
            TT_TRY(read_one(vt, self, at, vocab, &other, err));
    }
    TT_TRY(read_one(vt, self, 0, vocab, &other, err));
    if (memcmp(&first, &other, sizeof first) != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "sample 0 differs after other samples were read: a sample must depend on "
                       "its number alone");
    print_count(note, n);
    tt_str_printf(note, " samples of %d tokens per epoch; they can be read in any order", SAMPLE);
    return note_inputs(&inputs, &first, note, err);
}

static tt_status describe_loader(const tt_check_job *job, tt_job *j, const tt_part *p, tt_arena *a,
                                 tt_str *note, tt_error *err)
{
    const tt_dataloader_vt *vt = p->component->vtable;
    const tt_tokenizer_vt *tvt = NULL;
    tt_part tokenizer;
    void *self = NULL, *tself = NULL;
    tt_error why = {0};
    tt_tokenizer_info info = {.struct_size = sizeof info, .vocab_size = 262};
    if (vt->needs_tokenizer) {
        if (tt_registry_part(job->registry, j, TT_KIND_TOKENIZER, "tokenizer", "byte", NULL, a,
                             &tokenizer, &why) != TT_OK)
            return needs(job->opts, "tokenizer", &why, err);
        tvt = tokenizer.component->vtable;
        TT_TRY(TT_PLUGIN_CALL(tvt->open(tokenizer.config, &tself, err), err, "tokenizer",
                              tokenizer.name));
        tvt->info(tself, &info);
    }
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = SAMPLE,
                                   .vocab_size = info.vocab_size,
                                   .tokenizer = tvt,
                                   .tokenizer_self = tself,
                                   .job_dir = "."};
    tt_status s = TT_OK;
    if (TT_PLUGIN_CALL(vt->open(p->config, &env, &self, &why), &why, "open()", NULL) != TT_OK) {
        s = needs(job->opts, "dataloader", &why, err);
    } else {
        s = read_some(vt, p->config, self, info.vocab_size, note, err);
        vt->close(self);
    }
    if (tvt)
        tvt->close(tself);
    return s;
}

/* ---- metrics, hook: called as in a run of two steps, with a temporary folder ---- */

static tt_metrics_record record_of(int64_t step, const tt_metric *m, size_t n)
{
    return (tt_metrics_record){.struct_size = sizeof(tt_metrics_record),
                               .step = step,
                               .wall_time = tt_wall_seconds(),
                               .metrics = m,
                               .n_metrics = n};
}

static const tt_metric numbers[] = {
    {"loss",      5.5 },
    {"grad_norm", 1.25},
    {"lr",        1e-3},
};

static tt_status feed_sink(const tt_part *p, const char *folder, tt_str *note, tt_error *err)
{
    const tt_metrics_vt *vt = p->component->vtable;
    void *self = NULL;
    tt_status s = TT_OK;
    for (int64_t run = 0; run < 2 && s == TT_OK; run++) { /* the second resumes after step 1 */
        const tt_metrics_env env = {sizeof env, folder, run, 0, 0, 1};
        TT_TRY(TT_PLUGIN_CALL(vt->open(p->config, &env, &self, err), err, "open()", NULL));
        for (int64_t step = 1; step <= 2 && s == TT_OK; step++) {
            const tt_metrics_record r = record_of(run + step, numbers, TT_COUNT(numbers));
            s = TT_PLUGIN_CALL(vt->log(self, &r, err), err, "log()", NULL);
        }
        vt->close(self);
    }
    tt_str_add(note, "recorded two steps, and two more after a resume");
    return s;
}

/* Calls a member of the hook if it has one. */
#define CALL_HOOK(vt, self, member, argument, err)                                                 \
    if ((vt)->member)                                                                              \
    TT_TRY(TT_PLUGIN_CALL((vt)->member((self), (argument), (err)), (err), #member "()", NULL))

static tt_status call_steps(const tt_hook_vt *vt, void *self, const char *folder, tt_error *err)
{
    tt_hook_progress at = {.struct_size = sizeof at, .steps = 2, .loss = 5.5, .lr = 1e-3};
    const tt_hook_saved saved = {
        .struct_size = sizeof saved, .folder = folder, .step = 2, .at = &at};
    CALL_HOOK(vt, self, start, &at, err);
    for (at.step = 1; at.step <= 2; at.step++) {
        const tt_metrics_record r = record_of(at.step, numbers, TT_COUNT(numbers));
        CALL_HOOK(vt, self, before_step, at.step, err);
        CALL_HOOK(vt, self, after_backward, &at, err);
        CALL_HOOK(vt, self, after_step, &r, err);
    }
    at.step = 2;
    tt_metrics_record r = record_of(at.step, numbers, 1);
    r.validation = 1;
    CALL_HOOK(vt, self, saved, &saved, err);
    CALL_HOOK(vt, self, validated, &r, err);
    if (vt->end)
        vt->end(self, &at, TT_OK, "");
    return TT_OK;
}

static tt_status call_hook(const tt_part *p, const char *folder, tt_str *note, tt_error *err)
{
    const tt_hook_vt *vt = p->component->vtable;
    const tt_hook_env env = {sizeof env, folder, 0, 1};
    void *self = NULL;
    TT_TRY(TT_PLUGIN_CALL(vt->open(p->config, &env, &self, err), err, "open()", NULL));
    const tt_status s = call_steps(vt, self, folder, err);
    vt->close(self);
    tt_str_add(note, "was called as in a run of two steps");
    return s;
}

static tt_status in_folder(const tt_part *p, tt_str *note, tt_error *err)
{
    tt_temporary t;
    tt_temporary_clear("check"); /* a check whose plugin crashed leaves its own */
    if (!tt_temporary_new("check", &t))
        return TT_FAIL(err, TT_EUNSUPPORTED, "no temporary folder can be made; set TMPDIR");
    const tt_status s = p->component->kind == TT_KIND_METRICS ? feed_sink(p, t.path, note, err)
                                                              : call_hook(p, t.path, note, err);
    tt_temporary_remove(&t);
    return s;
}

/* ---- train_spec ---- */

static tt_status describe_spec(const tt_check_job *job, const tt_component *c, tt_str *note,
                               tt_error *err)
{
    const tt_train_spec_vt *vt = c->vtable;
    const struct {
        tt_kind kind;
        const char *name;
    } parts[] = {
        {TT_KIND_MODEL,        vt->model       },
        {TT_KIND_TOKENIZER,    vt->tokenizer   },
        {TT_KIND_DATALOADER,   vt->dataloader  },
        {TT_KIND_LOSS,         vt->loss        },
        {TT_KIND_OPTIMIZER,    vt->optimizer   },
        {TT_KIND_LR_SCHEDULER, vt->lr_scheduler},
    };
    const tt_component *part = NULL;
    tt_label_table labels;
    for (size_t i = 0; i < TT_COUNT(parts); i++) {
        if (parts[i].name &&
            tt_registry_find(job->registry, parts[i].kind, parts[i].name, &part, NULL) != TT_OK)
            return TT_FAIL(err, TT_EUNSUPPORTED, "its %s \"%s\" is in none of the plugin folders",
                           tt_kind_name(parts[i].kind), parts[i].name);
        tt_str_printf(note, "%s%s", i ? ", " : "", parts[i].name ? parts[i].name : "(none)");
    }
    return vt->rules ? tt_label_table_parse(vt->rules, vt->n_rules, &labels, err) : TT_OK;
}

/* ---- by kind ---- */

static tt_status describe_called(const tt_check_job *job, const tt_component *c,
                                 const char *section, tt_str *note, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_job *j = NULL;
    tt_part p;
    tt_status s = tt_job_load_text(a, "check", "{}", 2, job->opts->overrides,
                                   job->opts->n_overrides, &j, err);
    if (s == TT_OK)
        s = tt_registry_part(job->registry, j, c->kind, section, c->name, NULL, a, &p, err);
    if (s == TT_OK)
        s = c->kind == TT_KIND_LR_SCHEDULER ? describe_schedule(&p, note, err)
            : c->kind == TT_KIND_TOKENIZER  ? describe_tokenizer(job->opts, &p, note, err)
            : c->kind == TT_KIND_DATALOADER ? describe_loader(job, j, &p, a, note, err)
                                            : in_folder(&p, note, err);
    tt_arena_free(a);
    return s;
}

tt_status tt_check_describes(const tt_check_job *job, const tt_component *c, tt_str *note,
                             tt_error *err)
{
    switch (c->kind) {
    case TT_KIND_MODEL:
    case TT_KIND_LOSS:
    case TT_KIND_OPTIMIZER:
    case TT_KIND_CONVERTER:
    case TT_KIND_BACKEND:
    case TT_KIND_OP:
        return describe_graph(job, c, note, err);
    case TT_KIND_KERNELS:
        return tt_check_kernels(job, c, note, err);
    case TT_KIND_LR_SCHEDULER:
        return describe_called(job, c, "lr_scheduler", note, err);
    case TT_KIND_TOKENIZER:
        return describe_called(job, c, "tokenizer", note, err);
    case TT_KIND_DATALOADER:
        return describe_called(job, c, "dataloader", note, err);
    case TT_KIND_METRICS:
        return describe_called(job, c, "metrics.sinks[0]", note, err);
    case TT_KIND_HOOK:
        return describe_called(job, c, "hooks[0]", note, err);
    case TT_KIND_TRAIN_SPEC:
        return describe_spec(job, c, note, err);
    default:
        return TT_FAIL(err, TT_EUNSUPPORTED, "nothing to check of a %s", tt_kind_name(c->kind));
    }
}
