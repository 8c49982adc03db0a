/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* tt_place (R1, R3) places an op: it gives each letter of the op's rule atoms of the mesh, redistributes
 * the inputs to match, and reads off the placements of the outputs. In canonical mode the label table
 * gives the atoms of a letter by the label of its dim; a letter whose label is not in the table keeps
 * the atoms that the inputs have. In follow mode all letters do. */

static void rule_text(const tt_op_def *def, const tt_shape_query *q, char *text, size_t size)
{
    if (def->rule)
        snprintf(text, size, "%s", def->rule);
    else
        def->rule_for(q, text, size);
}

tt_status tt_op_rule(tt_builder *b, const tt_op_def *def, const tt_shape_query *q,
                     const tt_type *out, const tt_rule **rule, tt_error *err)
{
    char text[512], key[640];
    rule_text(def, q, text, sizeof text);
    int in_ranks[TT_MAX_INS], out_ranks[TT_MAX_OUTS];
    int len = snprintf(key, sizeof key, "%s|", text);
    for (int i = 0; i < q->n_in; i++) {
        in_ranks[i] = q->in[i]->n_dims;
        len += snprintf(key + len, sizeof key - (size_t)len, "%d", in_ranks[i]);
    }
    len += snprintf(key + len, sizeof key - (size_t)len, ">");
    for (int i = 0; i < def->n_out; i++) {
        out_ranks[i] = out[i].n_dims;
        len += snprintf(key + len, sizeof key - (size_t)len, "%d", out_ranks[i]);
    }
    tt_rule *r = tt_map_get(b->rules, key);
    if (!r) {
        r = tt_arena_alloc(b->arena, sizeof *r);
        if (tt_rule_parse(text, in_ranks, q->n_in, out_ranks, def->n_out, r, err) != TT_OK)
            return tt_error_context(err, "op %s, rule \"%s\"", def->name, text);
        tt_map_set(b->rules, key, r);
    }
    *rule = r;
    return TT_OK;
}

const tt_rule *tt_node_rule(const tt_node *n, tt_rule *room)
{
    char text[512];
    const tt_type *in[TT_MAX_INS];
    int in_ranks[TT_MAX_INS], out_ranks[TT_MAX_OUTS];
    if (n->rule)
        return n->rule;
    if ((!n->op->rule && !n->op->rule_for) || n->n_in > TT_MAX_INS || n->n_out > TT_MAX_OUTS)
        return NULL;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = &n->in[i]->type;
        in_ranks[i] = in[i]->n_dims;
    }
    for (int i = 0; i < n->n_out; i++)
        out_ranks[i] = n->out[i]->type.n_dims;
    const tt_shape_query q = {sizeof q, n->n_in, in, n->attrs, n->op->name};
    rule_text(n->op, &q, text, sizeof text);
    return tt_rule_parse(text, in_ranks, n->n_in, out_ranks, n->n_out, room, NULL) == TT_OK ? room
                                                                                            : NULL;
}

static int64_t units(const tt_dim *d)
{
    return d->size / d->unit;
}

static bool in_table(const tt_label_table *t, const tt_dim *d)
{
    for (int i = 0; d->label && i < t->n; i++)
        if (!strcmp(t->entries[i].label, d->label))
            return true;
    return false;
}

/* Binds every letter to a dim. All dims with one letter must have the same number of units; the letter's
 * label is the first of theirs that the table has. */
static tt_status bind_letters(const tt_label_table *labels, const tt_op_def *def,
                              const tt_shape_query *q, const tt_type *out, const tt_rule *r,
                              tt_dim *dim, bool *bound, tt_error *err)
{
    for (int s = 0; s < r->n_in + r->n_out; s++) {
        const bool is_in = s < r->n_in;
        const int o = is_in ? s : s - r->n_in;
        const tt_type *t = is_in ? q->in[o] : &out[o];
        const int8_t *names = is_in ? r->in[o] : r->out[o];
        const int n = is_in ? r->n_in_dims[o] : r->n_out_dims[o];
        if (n != t->n_dims)
            return TT_FAIL(err, TT_EINVAL,
                           "op %s: its rule has %d dims for operand %d, which has %d", def->name, n,
                           s, t->n_dims);
        for (int d = 0; d < n; d++) {
            const int x = names[d];
            if (!bound[x]) {
                dim[x] = t->dims[d];
                bound[x] = true;
            } else if (units(&dim[x]) != units(&t->dims[d])) {
                return TT_FAIL(err, TT_EINVAL,
                               "op %s: letter %s of its rule has %lld units in one operand and "
                               "%lld in another",
                               def->name, r->name[x], (long long)units(&dim[x]),
                               (long long)units(&t->dims[d]));
            } else if (!in_table(labels, &dim[x])) {
                dim[x].label = t->dims[d].label;
            }
        }
    }
    return TT_OK;
}

static tt_atom_list prefix_of(const tt_mesh *m, const tt_atom_list *atoms, int64_t count)
{
    tt_atom_list p = *atoms;
    p.n = (uint8_t)tt_prefix_dividing(m, atoms, count);
    for (int i = p.n; i < TT_MAX_ATOMS; i++)
        p.atom[i] = 0;
    return p;
}

/* b of x=(a b) is a letter of a dim, too: it has the atoms of x after those of a, or x has its. */
static void apply_rest(const tt_atom_list *first, tt_atom_list *x, tt_atom_list *rest)
{
    const bool given = rest->n > 0;
    for (int i = first->n; !given && i < x->n; i++)
        rest->atom[rest->n++] = x->atom[i];
    *x = *first;
    for (int i = 0; i < rest->n; i++)
        x->atom[x->n++] = rest->atom[i];
}

/* For x=(a b), a gets the longest prefix of x's atoms that cuts a exactly, and b gets the rest; two
 * groups with the same a get the same prefix. If no label and no input places x, x gets the atoms of a
 * (dims that are merged). */
static void apply_groups(const tt_mesh *m, const tt_rule *r, const tt_dim *dim, const bool *bound,
                         const bool *placed, tt_atom_list *ax)
{
    bool have[TT_MAX_LETTERS] = {false};
    tt_atom_list first[TT_MAX_LETTERS];
    for (int i = 0; i < r->n_groups; i++) {
        const int x = r->groups[i].x, a = r->groups[i].first, rest = r->groups[i].rest;
        if (!placed[x] && !(r->whole >> x & 1u) && !ax[x].n)
            ax[x] = ax[a];
        if (!have[a]) {
            const int64_t count = bound[a] ? units(&dim[a]) : dim[x].lines;
            first[a] = prefix_of(m, &ax[x], count);
            have[a] = true;
        }
        ax[a] = first[a];
        if (r->whole >> rest & 1u)
            ax[x] = first[a];
        else if (bound[rest])
            apply_rest(&first[a], &ax[x], &ax[rest]);
    }
}

/* Must the op be expanded (R5)? Yes, if one of its expand_letters gets atoms; if it has an empty list,
 * always. */
static bool expands(const tt_op_def *def, const tt_rule *r, const tt_atom_list *ax)
{
    if (def->expand && def->expand_letters && !def->expand_letters[0])
        return true;
    for (int x = 0; def->expand && def->expand_letters && x < r->n_letters; x++)
        if (ax[x].n && strstr(def->expand_letters, r->name[x]))
            return true;
    return false;
}

/* Ulysses (Jacobs et al. 2023, arXiv:2309.14509): the atoms that cut tokens inside sequences now cut
 * heads, after the atoms that already cut heads, so each rank has whole sequences of fewer heads. The
 * redistribute is one all-to-all. An op without heads keeps the cut of its tokens, or gathers those of a
 * sequence if its rule wants them whole, "t=(b !q) h"; so does such an op whose heads do not divide. The
 * first group of the rule is that of the output's tokens. */
static tt_status sequences_to_heads(tt_builder *b, const tt_rule *r, const tt_dim *dim,
                                    const bool *bound, tt_atom_list *ax, tt_error *err)
{
    const tt_mesh *m = b->g->mesh;
    int t = -1, h = -1;
    bool gathers = false;
    for (int i = 0; t < 0 && i < r->n_groups; i++) {
        gathers = (r->whole >> r->groups[i].rest & 1u) != 0;
        if (dim[r->groups[i].x].lines > 0)
            t = r->groups[i].x;
    }
    for (int x = 0; h < 0 && x < r->n_letters; x++)
        if (bound[x] && dim[x].label && !strcmp(dim[x].label, "heads"))
            h = x;
    if (t < 0 || h < 0)
        return TT_OK;
    tt_atom_list whole = prefix_of(m, &ax[t], dim[t].lines), all = ax[h];
    for (int i = whole.n; i < ax[t].n; i++)
        all.atom[all.n++] = ax[t].atom[i];
    const bool divides = units(&dim[h]) % tt_mesh_degree(m, &all) == 0;
    if (!divides && gathers)
        return TT_OK;
    if (!divides)
        return TT_FAIL(err, TT_EINVAL,
                       "%lld heads do not divide over the %d ranks that tensor and context "
                       "parallelism (ulysses) cut them over; choose degrees that divide them",
                       (long long)units(&dim[h]), tt_mesh_degree(m, &all));
    ax[t] = whole;
    ax[h] = all;
    return TT_OK;
}

/* Gives a letter the atoms of input i's dim d, up to the first atom that an earlier letter has (an atom
 * cuts one letter only) or that has a bit of `refused`. */
static void take_free(const tt_rule *r, tt_value *const *in, int i, int d, unsigned refused,
                      uint16_t *taken, tt_atom_list *ax)
{
    const tt_placement *p = &in[i]->place;
    tt_atom_list *out = &ax[r->in[i][d]];
    for (int k = 0; k < p->n[d]; k++) {
        const uint16_t atom = p->atom[d][k], bit = (uint16_t)(1u << TT_ATOM(atom));
        if ((*taken & bit) || (atom & refused))
            return;
        out->atom[out->n++] = atom;
        *taken |= bit;
    }
}

/* Do all dims with letter x have the same unit? Only then a cut that ignores the unit is the same for
 * all of them. */
static bool has_one_unit(const tt_rule *r, tt_value *const *in, const tt_type *out, int x,
                         int64_t unit)
{
    bool one = true;
    for (int s = 0; s < r->n_in + r->n_out; s++) {
        const int o = s < r->n_in ? s : s - r->n_in;
        const tt_type *t = s < r->n_in ? &in[o]->type : &out[o];
        const int8_t *names = s < r->n_in ? r->in[o] : r->out[o];
        for (int d = 0; d < t->n_dims; d++)
            one = one && (names[d] != x || t->dims[d].unit == unit);
    }
    return one;
}

/* A letter whose label is not in the table keeps the cut of the first input that has one (R3). Shifted
 * atoms belong to one op, and atoms that ignore the unit to storage: these are not kept. In an op that
 * expands the letters that are otherwise whole have their atoms, too. */
static void keep_unlabelled(const tt_rule *r, const bool *labelled, tt_value *const *in,
                            bool expand, tt_atom_list *ax)
{
    uint16_t taken = 0;
    for (int x = 0; x < r->n_letters; x++)
        if (expand || !(r->whole >> x & 1u))
            taken |= tt_atom_list_mask(&ax[x]);
    for (int i = 0; i < r->n_in; i++)
        for (int d = 0; d < r->n_in_dims[i]; d++) {
            const int x = r->in[i][d];
            if (labelled[x] || (r->whole >> x & 1u) || ax[x].n)
                continue;
            take_free(r, in, i, d, TT_SHIFT_BITS | TT_IGNORE_UNIT, &taken, ax);
        }
}

static tt_status letters_canonical(tt_builder *b, const tt_op_def *def, const tt_dim *dim,
                                   const bool *bound, tt_value *const *in, tt_placing *p,
                                   tt_error *err)
{
    const tt_rule *r = p->rule;
    tt_atom_list *ax = p->letters;
    tt_dim dims[TT_MAX_LETTERS];
    int at[TT_MAX_LETTERS], n = 0;
    tt_atom_list got[TT_MAX_LETTERS];
    bool labelled[TT_MAX_LETTERS] = {false};
    for (int x = 0; x < r->n_letters; x++) {
        if (!bound[x])
            continue;
        labelled[x] = in_table(b->g->labels, &dim[x]);
        at[n] = x;
        dims[n++] = dim[x];
    }
    TT_TRY(tt_canon(b->g->mesh, b->g->labels, dims, n, got, err));
    for (int i = 0; i < n; i++)
        ax[at[i]] = got[i];
    if (b->g->context == TT_CONTEXT_HEADS && (def->flags & TT_OP_MIXES_TOKENS))
        TT_TRY(sequences_to_heads(b, r, dim, bound, ax, err));
    p->expand = expands(def, r, ax);
    keep_unlabelled(r, labelled, in, p->expand, ax);
    for (int x = 0; !p->expand && x < r->n_letters; x++)
        if (r->whole >> x & 1u)
            memset(&ax[x], 0, sizeof ax[x]);
    apply_groups(b->g->mesh, r, dim, bound, labelled, ax);
    return TT_OK;
}

/* The dim of letter x that is cut by the most atoms, of all inputs: the first if several are. */
static void finest_dim(const tt_rule *r, tt_value *const *in, int x, int *input, int *dim)
{
    int most = -1;
    for (int i = 0; i < r->n_in; i++)
        for (int d = 0; d < r->n_in_dims[i]; d++)
            if (r->in[i][d] == x && in[i]->place.n[d] > most) {
                most = in[i]->place.n[d];
                *input = i;
                *dim = d;
            }
}

static void letters_follow(const tt_mesh *m, const tt_rule *r, const tt_dim *dim, const bool *bound,
                           tt_value *const *in, const tt_type *out, bool finest, tt_atom_list *ax)
{
    bool fixed[TT_MAX_LETTERS] = {false};
    uint16_t taken = 0;
    for (int i = 0; i < r->n_in; i++)
        for (int d = 0; d < r->n_in_dims[i]; d++) {
            const int x = r->in[i][d];
            if (fixed[x])
                continue;
            fixed[x] = true;
            int from = i, at = d;
            if (finest)
                finest_dim(r, in, x, &from, &at);
            if (!(r->whole >> x & 1u))
                take_free(r, in, from, at,
                          has_one_unit(r, in, out, x, dim[x].unit) ? 0 : TT_IGNORE_UNIT, &taken,
                          ax);
        }
    apply_groups(m, r, dim, bound, fixed, ax);
}

static uint16_t used_atoms(const tt_rule *r, const tt_atom_list *ax)
{
    uint16_t used = 0;
    for (int x = 0; x < r->n_letters; x++)
        for (int i = 0; i < ax[x].n; i++)
            used |= (uint16_t)(1u << TT_ATOM(ax[x].atom[i]));
    return used;
}

/* Is this an op that only arranges elements, of operands that are all pending maxima? These stay pending. */
static bool keeps_max(const tt_op_def *def, bool follow, tt_value *const *in, int n_in)
{
    bool all = follow && (def == &tt_op_concat || def == &tt_op_reshape);
    for (int i = 0; all && i < n_in; i++)
        all = in[i]->place.partial_max != 0;
    return all;
}

/* For each input the atoms over which it may stay a partial sum: only atoms by which the op does not
 * shard, and only if the op is linear in that input (R1). */
static uint16_t keep_partials(const tt_op_def *def, bool follow, tt_value *const *in, int n_in,
                              uint16_t used, uint16_t *keep)
{
    uint16_t sums[TT_MAX_INS], all = 0, kept = 0;
    for (int i = 0; i < n_in; i++) {
        keep[i] = 0;
        const bool forced = in[i]->place.partial_max && !keeps_max(def, follow, in, n_in);
        sums[i] = forced ? 0 : (uint16_t)(in[i]->place.partial & ~used);
        all |= sums[i];
    }
    if (def->linear_inputs == TT_LINEAR_JOINT) {
        for (int i = 0; follow && i < n_in; i++)
            keep[i] = all;
    } else if (def->linear_inputs) {
        for (int i = 0; i < n_in; i++)
            if (def->linear_inputs >> i & 1u) {
                keep[i] = sums[i];
                break;
            }
    }
    for (int i = 0; i < n_in; i++)
        kept |= keep[i];
    return kept;
}

/* The placement of an operand from the atoms of its letters. `t+2` shifts by two steps the atoms that
 * cut t inside the first letter of its group. */
static tt_placement operand_place(const tt_mesh *m, const tt_rule *r, const int8_t *names, int n,
                                  int shift, const tt_atom_list *ax)
{
    tt_placement p = {0};
    for (int d = 0; d < n; d++) {
        p.n[d] = ax[names[d]].n;
        memcpy(p.atom[d], ax[names[d]].atom, sizeof p.atom[d]);
    }
    for (int i = 0; shift && i < r->n_groups; i++)
        if (r->groups[i].x == names[0])
            tt_shift_atoms(m, shift, ax[r->groups[i].first].n, p.atom[0], p.n[0]);
    return p;
}

tt_placement tt_place_input(const tt_mesh *m, const tt_rule *r, int i, const tt_atom_list *ax)
{
    return operand_place(m, r, r->in[i], r->n_in_dims[i], r->in_shift[i], ax);
}

tt_placement tt_place_output(const tt_mesh *m, const tt_rule *r, int o, const tt_atom_list *ax)
{
    return operand_place(m, r, r->out[o], r->n_out_dims[o], r->out_shift[o], ax);
}

tt_status tt_place(tt_builder *b, const tt_op_def *def, const tt_shape_query *q, const tt_type *out,
                   tt_value *const *in, tt_value **args, tt_placing *p, tt_error *err)
{
    tt_dim dim[TT_MAX_LETTERS];
    bool bound[TT_MAX_LETTERS] = {false};
    TT_TRY(tt_op_rule(b, def, q, out, &p->rule, err));
    const tt_rule *r = p->rule;
    TT_TRY(bind_letters(b->g->labels, def, q, out, r, dim, bound, err));
    p->expand = expands(def, r, p->letters); /* an empty list expands in follow mode, too */
    if (b->follow)
        letters_follow(b->g->mesh, r, dim, bound, in, out, b->finest, p->letters);
    else if (letters_canonical(b, def, dim, bound, in, p, err) != TT_OK)
        return tt_error_context(err, "op %s", def->name);
    const uint16_t used = used_atoms(r, p->letters);
    const uint16_t kept = keep_partials(def, b->follow, in, q->n_in, used, p->keep);
    const bool max = kept && keeps_max(def, b->follow, in, q->n_in);
    for (int i = 0; i < q->n_in; i++) {
        tt_placement want = tt_place_input(b->g->mesh, r, i, p->letters);
        want.partial = p->keep[i];
        want.partial_max = want.partial && max;
        args[i] = tt_redistribute(b, in[i], &want);
    }
    for (int o = 0; o < r->n_out; o++) {
        tt_placement *pl = &p->out[o];
        *pl = tt_place_output(b->g->mesh, r, o, p->letters);
        const uint16_t mine = tt_placement_shard_atoms(pl, r->n_out_dims[o]);
        pl->partial = (uint16_t)((used & ~mine) | kept);
        pl->partial_max = pl->partial && (def->reduce_max || max);
    }
    return TT_OK;
}
