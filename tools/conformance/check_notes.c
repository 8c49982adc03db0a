/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "conformance/check_rig.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/op.h>

/* Finds mistakes that give no wrong number: in flavors, labels, names, states and rules. */

/* ---- model ---- */

static tt_status try_flavor(const tt_component *c, const tt_flavor *f, tt_arena *a, tt_error *err)
{
    const tt_model_vt *vt = c->vtable;
    void *config = tt_arena_alloc(a, c->config_size + 1);
    tt_job *j = NULL;
    TT_TRY(tt_job_load_text(a, "check", "{}", 2, NULL, 0, &j, err));
    TT_TRY(tt_job_section_over(j, "model.args", tt_arena_printf(a, "flavor %s", f->name),
                               f->args_json, c->options, c->n_options, c->option_size, NULL, config,
                               err));
    const tt_status s =
        vt->finish ? TT_PLUGIN_CALL(vt->finish(config, err), err, "finish()", NULL) : TT_OK;
    return s == TT_OK ? s : tt_error_context(err, "flavor %s", f->name);
}

tt_status tt_check_flavors(const tt_check_job *job, const tt_component *c, tt_error *err)
{
    const tt_model_vt *vt = c->vtable;
    tt_status s = TT_OK;
    (void)job;
    for (size_t i = 0; i < vt->n_flavors && s == TT_OK; i++) {
        tt_arena *a = tt_arena_new();
        tt_error why = {0};
        s = try_flavor(c, &vt->flavors[i], a, &why);
        if (s != TT_OK)
            s = TT_FAIL(err, TT_EINVAL, "%s", why.text);
        tt_arena_free(a);
    }
    return s;
}

static bool has_rule(const tt_label_table *t, const char *label)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->entries[i].label, label))
            return true;
    return !strcmp(label, "embed"); /* the width of the model, which no table cuts */
}

/* Notes each label that no sharding rule names, once, with the rule's label that was probably
 * meant. */
static void note_label(const tt_label_table *t, const char *label, tt_map *seen, tt_str *note)
{
    const char *known[sizeof t->entries / sizeof t->entries[0]];
    if (has_rule(t, label) || tt_map_get(seen, label))
        return;
    tt_map_set(seen, label, note);
    for (int i = 0; i < t->n; i++)
        known[i] = t->entries[i].label;
    const char *near = tt_nearest(label, known, (size_t)t->n);
    tt_str_printf(note,
                  "; NOTE no sharding rule names the label \"%s\"%s%s%s: such dims are whole "
                  "on every rank",
                  label, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* Data have ids below vocab_size(): there must be a logit for each. More of them, as padding, are the
 * model's choice. */
tt_status tt_check_vocabulary(const tt_rig *rig, tt_str *note, tt_error *err)
{
    const tt_model_vt *vt = rig->s.model.component->vtable;
    const int64_t vocab = vt->vocab_size(rig->s.model.config);
    const tt_value *logits = tt_map_get(rig->s.graph->outputs, "logits");
    const tt_type *t = logits ? tt_value_type(logits) : NULL;
    if (!t || t->n_dims < 1)
        return TT_OK;
    const int64_t columns = t->dims[t->n_dims - 1].size;
    if (columns < vocab)
        return TT_FAIL(
            err, TT_EINVAL,
            "vocab_size() is %lld, but the output \"logits\" has %lld columns: ids up to "
            "%lld may be among the labels",
            (long long)vocab, (long long)columns, (long long)vocab - 1);
    if (columns > vocab)
        tt_str_printf(note,
                      "; NOTE logits have %lld columns, and vocab_size() is %lld: a tokenizer may "
                      "have no more tokens than that",
                      (long long)columns, (long long)vocab);
    return TT_OK;
}

void tt_check_note_params(const tt_rig *rig, tt_str *note)
{
    const tt_graph *g = rig->s.graph;
    const char *unlabelled = NULL;
    int n_unlabelled = 0;
    tt_map *seen = tt_map_new(rig->arena);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        bool bare = false;
        for (int d = 0; d < p->type.n_dims; d++) {
            if (p->type.dims[d].label)
                note_label(&rig->s.labels, p->type.dims[d].label, seen, note);
            bare = bare || !p->type.dims[d].label;
        }
        if (bare && !n_unlabelled++)
            unlabelled = p->name;
        if (p->declared > 1)
            tt_str_printf(note, "; NOTE %s is declared %d times: the uses share one parameter",
                          p->name, p->declared);
    }
    if (n_unlabelled)
        tt_str_printf(note,
                      "; NOTE %d parameter%s a dim without a label, first %s: such dims are "
                      "whole on every rank",
                      n_unlabelled, n_unlabelled == 1 ? " has" : "s have", unlabelled);
}

/* ---- optimizer ---- */

static bool assigned(const tt_graph *g, const tt_state *s)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op == &tt_op_assign && n->state == s)
            return true;
        for (int k = 0; n->assign_to && k < n->n_out; k++)
            if (n->assign_to[k] == s)
                return true;
    }
    return false;
}

tt_status tt_check_states(const tt_rig *rig, tt_error *err)
{
    const tt_graph *g = rig->s.graph;
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        if (s->kind == TT_STATE_OPTIMIZER && !assigned(g, s))
            return TT_FAIL(err, TT_EINVAL,
                           "the state \"%s\" is never assigned, so it stays what it was at step 1: "
                           "call tt_assign, or do without it",
                           s->suffix);
    }
    return TT_OK;
}

/* ---- op ---- */

/* Counts the words of one operand in a rule: its dims, of which `*` may stand for any number. A
 * group x=(a b) is one word. */
static int words(const char *p, const char *end)
{
    int n = 0, depth = 0;
    bool in = false;
    for (; p < end; p++) {
        depth += (*p == '(') - (*p == ')');
        const bool blank = *p == ' ' || *p == '\t';
        n += !blank && !in && !depth;
        in = !blank || depth > 0;
    }
    return n;
}

/* Counts the words of each operand in the text up to `end`. Returns the number of operands, or -1
 * if there are more than `most`. */
static int operands(const char *p, const char *end, int *ranks, int most)
{
    int n = 0;
    while (n < most) {
        int depth = 0;
        const char *q = p;
        for (; q < end && (*q != ',' || depth); q++)
            depth += (*q == '(') - (*q == ')');
        ranks[n++] = words(p, q);
        if (q == end)
            return n;
        p = q + 1;
    }
    return -1;
}

tt_status tt_check_op_rule(const tt_component *c, tt_error *err)
{
    const tt_op_def *def = ((const tt_op_vt *)c->vtable)->def;
    int in[TT_MAX_INS], out[TT_MAX_OUTS];
    tt_rule rule;
    if (!def->rule)
        return TT_OK;
    const char *arrow = strstr(def->rule, "->");
    if (!arrow)
        return TT_FAIL(err, TT_EINVAL,
                       "its rule \"%s\" has no -> between the inputs and the outputs", def->rule);
    const int n_in = operands(def->rule, arrow, in, TT_MAX_INS);
    const int n_out = operands(arrow + 2, arrow + strlen(arrow), out, TT_MAX_OUTS);
    if (n_in < 0 || n_out < 0)
        return TT_FAIL(err, TT_EINVAL, "its rule \"%s\" has more than %d inputs or %d outputs",
                       def->rule, TT_MAX_INS, TT_MAX_OUTS);
    if (n_out != def->n_out)
        return TT_FAIL(err, TT_EINVAL, "its rule \"%s\" has %d outputs, n_out is %d", def->rule,
                       n_out, def->n_out);
    return tt_rule_parse(def->rule, in, n_in, out, n_out, &rule, err);
}
