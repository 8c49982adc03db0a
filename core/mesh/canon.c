/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <string.h>

/* The canonical placement that dims' labels give (R3): one ordered pass over a table, no solver. */

#define MAX_ENTRIES                                                                                \
    (int)(sizeof((tt_label_table *)0)->entries / sizeof((tt_label_table *)0)->entries[0])
#define MAX_AXES (int)(sizeof((tt_label_entry *)0)->axes / sizeof((tt_label_entry *)0)->axes[0])

static const char *const known_axes[] = {"dp_replicate", "dp_shard", "cp", "tp",
                                         "ep",           "efsdp",    "dp"};
static const char *const policy_names[] = {[TT_POLICY_ERROR] = "error",
                                           [TT_POLICY_PAD] = "pad",
                                           [TT_POLICY_REPLICATE] = "replicate",
                                           [TT_POLICY_PREFIX] = "prefix"};

void tt_label_table_default(tt_label_table *t)
{
    static const tt_label_entry entries[] = {
        {.label = "experts",  .axes = {"ep"},              .n_axes = 1, .policy = TT_POLICY_ERROR },
        {.label = "heads",    .axes = {"tp"},              .n_axes = 1, .policy = TT_POLICY_ERROR },
        {.label = "kv_heads", .axes = {"tp"},              .n_axes = 1, .policy = TT_POLICY_PREFIX},
        {.label = "ffn",      .axes = {"tp"},              .n_axes = 1, .policy = TT_POLICY_PAD   },
        {.label = "vocab",    .axes = {"tp"},              .n_axes = 1, .policy = TT_POLICY_PAD   },
        {.label = "tokens",
         .axes = {"dp_replicate", "dp_shard", "cp", "tp"},
         .n_axes = 4,
         .policy = TT_POLICY_PAD                                                                  },
    };
    memset(t, 0, sizeof *t);
    t->n = (int)(sizeof entries / sizeof entries[0]);
    memcpy(t->entries, entries, sizeof entries);
    t->sequence_parallel = true;
}

static tt_status parse_policy(const char *label, const char *text, tt_policy *out, tt_error *err)
{
    for (int i = 0; i < (int)(sizeof policy_names / sizeof policy_names[0]); i++) {
        if (text != NULL && strcmp(text, policy_names[i]) == 0) {
            *out = (tt_policy)i;
            return TT_OK;
        }
    }
    return TT_FAIL(
        err, TT_EINVAL,
        "sharding rule of label \"%s\": policy \"%s\" is not one of error, pad, replicate, prefix",
        label, text != NULL ? text : "");
}

/* Axis names point into known_axes, so of the caller's strings the table keeps only the labels. */
static tt_status parse_axes(const char *label, const char *text, tt_label_entry *out, tt_error *err)
{
    const char *p = text != NULL ? text : "";
    while (*p != '\0') {
        p += strspn(p, " ");
        size_t n = strcspn(p, ", ");
        const char *axis = NULL;
        for (size_t i = 0; i < sizeof known_axes / sizeof known_axes[0]; i++)
            if (strlen(known_axes[i]) == n && strncmp(known_axes[i], p, n) == 0)
                axis = known_axes[i];
        if (axis == NULL)
            return TT_FAIL(err, TT_EINVAL,
                           "sharding rule of label \"%s\": axis \"%.*s\" in \"%s\" is not one of "
                           "dp_replicate, dp_shard, "
                           "cp, tp, ep, efsdp, dp",
                           label, (int)TT_MIN(n, (size_t)60), p, text);
        if (out->n_axes == MAX_AXES)
            return TT_FAIL(err, TT_EINVAL, "sharding rule of label \"%s\": more than %d axes",
                           label, MAX_AXES);
        out->axes[out->n_axes++] = axis;
        p += n;
        p += strspn(p, " ");
        if (*p == ',') {
            p++;
            if (p[strspn(p, " ")] == '\0')
                return TT_FAIL(err, TT_EINVAL,
                               "sharding rule of label \"%s\": \"%s\" ends in a comma", label,
                               text);
        } else if (*p != '\0') {
            return TT_FAIL(err, TT_EINVAL,
                           "sharding rule of label \"%s\": axes in \"%s\" are separated by commas",
                           label, text);
        }
    }
    return TT_OK;
}

tt_status tt_label_table_parse(const tt_label_rule *rules, size_t n, tt_label_table *out,
                               tt_error *err)
{
    tt_label_table t;
    memset(&t, 0, sizeof t);
    t.sequence_parallel = true;
    if (n > (size_t)MAX_ENTRIES)
        return TT_FAIL(err, TT_EINVAL, "sharding rules: %zu labels, at most %d", n, MAX_ENTRIES);
    for (size_t i = 0; i < n; i++) {
        tt_label_entry *e = &t.entries[t.n++];
        if (rules[i].label == NULL || rules[i].label[0] == '\0')
            return TT_FAIL(err, TT_EINVAL, "sharding rule %zu has no label", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(rules[k].label, rules[i].label) == 0)
                return TT_FAIL(err, TT_EINVAL, "sharding rules: label \"%s\" stands twice",
                               rules[i].label);
        e->label = rules[i].label;
        TT_TRY(parse_axes(e->label, rules[i].axes, e, err));
        TT_TRY(parse_policy(e->label, rules[i].policy, &e->policy, err));
    }
    *out = t;
    return TT_OK;
}

int tt_prefix_dividing(const tt_mesh *m, const tt_atom_list *atoms, int64_t count)
{
    int64_t degree = 1;
    int n = 0;
    for (; n < atoms->n; n++) {
        degree *= m->atom_size[TT_ATOM(atoms->atom[n])];
        if (count % degree != 0)
            break;
    }
    return n;
}

/* Claims and returns the atoms of those axes of the entry that have no claimed atom yet, in the
 * entry's order. */
static tt_atom_list claim(const tt_mesh *m, const tt_label_entry *e, bool sequence_parallel,
                          uint16_t *claimed)
{
    tt_atom_list l = {0};
    bool no_tp = !sequence_parallel && strcmp(e->label, "tokens") == 0;
    for (int i = 0; i < e->n_axes; i++) {
        const tt_axis *axis = tt_mesh_axis(m, e->axes[i]);
        if (axis == NULL || (tt_atom_list_mask(&axis->atoms) & *claimed) != 0)
            continue;
        if (no_tp && strcmp(e->axes[i], "tp") == 0)
            continue;
        for (int k = 0; k < axis->atoms.n; k++)
            l.atom[l.n++] = axis->atoms.atom[k];
        *claimed |= tt_atom_list_mask(&axis->atoms);
    }
    return l;
}

/* Reduces the atoms that the entry claimed for a dim to those that the policy lets it keep. */
static tt_status apply_policy(const tt_mesh *m, const tt_label_entry *e, const tt_dim *d,
                              tt_atom_list *l, tt_error *err)
{
    int64_t units = d->size / (d->unit > 1 ? d->unit : 1);
    int degree = tt_mesh_degree(m, l), keep = l->n;
    if (e->policy == TT_POLICY_PREFIX)
        keep = tt_prefix_dividing(m, l, units);
    if (e->policy == TT_POLICY_REPLICATE && units % degree != 0)
        keep = 0;
    if (e->policy == TT_POLICY_ERROR && units % degree != 0) {
        char axes[128];
        if (e->n_axes == 1) /* ep, whose ranks are those of other axes, too */
            snprintf(axes, sizeof axes, "%s", e->axes[0]);
        else
            tt_mesh_print_axes(m, l, axes, sizeof axes);
        return TT_FAIL(err, TT_EINVAL,
                       "%lld %s do not divide over the %d ranks of %s; choose a degree of %s that "
                       "divides %lld",
                       (long long)units, e->label, degree, axes, axes, (long long)units);
    }
    memset(&l->atom[keep], 0, (size_t)(TT_MAX_ATOMS - keep) * sizeof l->atom[0]);
    l->n = (uint8_t)keep;
    return TT_OK;
}

tt_status tt_canon(const tt_mesh *m, const tt_label_table *t, const tt_dim *dims, int n,
                   tt_atom_list *out, tt_error *err)
{
    tt_atom_list got[TT_MAX_LETTERS];
    uint16_t claimed = 0;
    TT_ASSERT(n <= TT_MAX_LETTERS);
    memset(got, 0, sizeof got);
    for (int i = 0; i < n; i++)
        if (dims[i].lines > 1 && dims[i].size % dims[i].lines != 0)
            return TT_FAIL(err, TT_EINVAL, "%lld %s are not %lld equal sequences",
                           (long long)dims[i].size, dims[i].label != NULL ? dims[i].label : "rows",
                           (long long)dims[i].lines);
    for (int k = 0; k < t->n; k++) {
        const tt_label_entry *e = &t->entries[k];
        for (int i = 0; i < n; i++) {
            if (dims[i].label == NULL || strcmp(dims[i].label, e->label) != 0)
                continue;
            got[i] = claim(m, e, t->sequence_parallel, &claimed);
            TT_TRY(apply_policy(m, e, &dims[i], &got[i], err));
            break; /* only the first letter with this label is cut */
        }
    }
    memcpy(out, got, (size_t)n * sizeof got[0]);
    return TT_OK;
}

/* The atoms of FSDP: those of dp_shard and cp, except those that already cut the parameter (some
 * may belong to ep). */
static tt_atom_list fsdp_atoms(const tt_mesh *m, uint16_t used)
{
    static const char *const names[] = {"dp_shard", "cp"};
    tt_atom_list l = {0};
    for (int i = 0; i < 2; i++) {
        const tt_axis *axis = tt_mesh_axis(m, names[i]);
        for (int k = 0; axis != NULL && k < axis->atoms.n; k++)
            if (!(used >> axis->atoms.atom[k] & 1))
                l.atom[l.n++] = axis->atoms.atom[k];
    }
    return l;
}

tt_status tt_param_placements(const tt_mesh *m, const tt_label_table *t, const tt_dim *dims,
                              int n_dims, tt_placement *compute, tt_placement *storage,
                              tt_error *err)
{
    tt_atom_list lists[TT_MAX_DIMS];
    tt_placement p;
    int pick = -1, largest = 0;
    int64_t local[TT_MAX_DIMS];
    TT_TRY(tt_canon(m, t, dims, n_dims, lists, err));
    memset(&p, 0, sizeof p);
    for (int d = 0; d < n_dims; d++) {
        p.n[d] = lists[d].n;
        memcpy(p.atom[d], lists[d].atom, sizeof p.atom[d]);
    }
    *compute = p;
    tt_atom_list fsdp = fsdp_atoms(m, tt_placement_shard_atoms(&p, n_dims));
    int degree = tt_mesh_degree(m, &fsdp);
    for (int d = 0; d < n_dims; d++) {
        local[d] = tt_chunk(m, &dims[d], p.atom[d], p.n[d]);
        if (pick < 0 && local[d] >= degree)
            pick = d;
        if (local[d] > local[largest])
            largest = d;
    }
    if (pick < 0)
        pick = largest;
    for (int k = 0; n_dims > 0 && k < fsdp.n; k++)
        p.atom[pick][p.n[pick]++] =
            (uint16_t)(fsdp.atom[k] | (dims[pick].unit > 1 ? TT_IGNORE_UNIT : 0u));
    *storage = p;
    return TT_OK;
}
