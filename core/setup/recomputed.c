/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/recomputed.h"
#include "base/wrapped.h"
#include <string.h>

static const double gib = 1.0 / (1 << 30), mib = 1.0 / (1 << 20);

/* Do they compute the same again and keep as much, on the device and in host memory together? How much
 * of it is offloaded may differ a little from layer to layer, as copies fill the link's time. */
static bool alike(const tt_recomputed_block *x, const tt_recomputed_block *y)
{
    const int64_t most = TT_MAXV(x->moved, y->moved), apart = most - TT_MIN(x->moved, y->moved);
    return x->stage == y->stage && x->kept + x->moved == y->kept + y->moved && x->made == y->made &&
           apart <= most / 8 && x->flops <= y->flops && x->flops >= y->flops &&
           !strcmp(x->again, y->again);
}

static double flops_again(const tt_recompute_found *f)
{
    double sum = 0;
    for (int i = 0; i < f->n_blocks; i++)
        sum += f->blocks[i].flops;
    return sum;
}

/* The part of a micro-batch's FLOPs, over all stages, that are done a second time. */
static double part_again(const tt_setup *s)
{
    double all = 0;
    for (size_t i = 0; s->graph && i < s->graph->nodes.n; i++)
        if (s->graph->nodes.items[i]->when->region <= TT_BACKWARD)
            all += tt_node_work(s->graph, s->graph->nodes.items[i]).flops;
    return all > 0 ? flops_again(&s->recomputed) / all : 0;
}

/* The pipeline rank that has the least room. */
static int tightest(const tt_recompute_choice *c)
{
    int r = 0;
    for (int i = 1; i < c->n; i++)
        if (c->budget[i] - c->bytes[i] < c->budget[r] - c->bytes[r])
            r = i;
    return r;
}

static const char *const modes[] = {[TT_CHECKPOINT_NONE] = "none",
                                    [TT_CHECKPOINT_SELECTIVE] = "selective",
                                    [TT_CHECKPOINT_FULL] = "full",
                                    [TT_CHECKPOINT_BUDGET] = "budget"};

void tt_recomputed_text(const tt_setup *s, tt_str *o)
{
    const tt_recompute_choice *c = s->recompute_choice;
    const tt_checkpoint_mode mode = s->core.activation_checkpoint.mode;
    if (mode == TT_CHECKPOINT_NONE)
        return;
    if (!c) {
        tt_str_printf(o, "%s: %.1f %% of the FLOPs are done again", modes[mode],
                      100 * part_again(s));
        return;
    }
    const int r = tightest(c);
    tt_str_printf(o, "budget: training takes %.3f of %.3f GiB per rank", gib * c->bytes[r],
                  gib * c->budget[r]);
    if (c->n > 1)
        tt_str_printf(o, " on pipeline rank %d", r);
    tt_str_printf(o, " (none %.3f, full %.3f); %.1f %% of the FLOPs are done again",
                  gib * c->none[r], gib * c->full[r], 100 * part_again(s));
}

static bool any_moved(const tt_recompute_found *f)
{
    bool any = false;
    for (int i = 0; i < f->n_blocks; i++)
        any |= f->blocks[i].moved > 0;
    return any;
}

/* Of layers whose activations wait in host memory, the times of the copies and of computing again, which
 * the choice weighs; the mean of layers that are alike. */
static void moved_row(const tt_recomputed_block *b, int n, int indent, const char *name, tt_str *o)
{
    double kept = 0, moved = 0, copy = 0;
    for (int i = 0; i < n; i++) {
        kept += mib / n * (double)b[i].kept;
        moved += mib / n * (double)b[i].moved;
        copy += 1e3 / n * b[i].copy;
    }
    tt_str_printf(o, "%*s%9s%9.1f%9.1f%8.3f%9.1f%8.3f  ", indent, "", name, kept, moved, copy,
                  mib * (double)b->made, 1e3 * b->cost);
    tt_wrapped_text(o, indent + 54, *b->again ? b->again : "nothing");
}

static void recomputed_row(const tt_recomputed_block *b, int indent, const char *name, tt_str *o)
{
    tt_str_printf(o, "%*s%9s%10.1f%10.1f%10.3f  ", indent, "", name, mib * (double)b->kept,
                  mib * (double)b->made, b->flops * 1e-9);
    tt_wrapped_text(o, indent + 41, *b->again ? b->again : "nothing");
}

void tt_recomputed_table(const tt_setup *s, int indent, tt_str *o)
{
    const tt_recompute_found *f = &s->recomputed;
    const bool moved = any_moved(f);
    if ((s->core.activation_checkpoint.mode == TT_CHECKPOINT_NONE && !moved) || !f->n_blocks)
        return;
    tt_str_printf(o, "%*s   layers%s\n", indent, "",
                  moved ? " keep MiB host MiB copy ms make MiB make ms  made again"
                        : "  keep MiB  make MiB     GFLOP  computed again");
    for (int i = 0, j; i < f->n_blocks; i = j) {
        const tt_recomputed_block *b = &f->blocks[i];
        char name[32];
        for (j = i + 1; j < f->n_blocks && alike(b, &f->blocks[j]); j++)
            ;
        snprintf(name, sizeof name, j - i > 1 ? "%d-%d" : "%d", b->block, f->blocks[j - 1].block);
        if (moved)
            moved_row(b, j - i, indent, name, o);
        else
            recomputed_row(b, indent, name, o);
    }
}

static void json_bytes(tt_str *o, const char *key, const double *bytes, int n)
{
    tt_str_printf(o, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        tt_str_printf(o, "%s%.0f", i ? "," : "", bytes[i]);
    tt_str_addc(o, ']');
}

/* By pipeline rank. */
static void json_choice(const tt_recompute_choice *c, tt_str *o)
{
    json_bytes(o, "budget", c->budget, c->n);
    json_bytes(o, "bytes", c->bytes, c->n);
    json_bytes(o, "bytes_none", c->none, c->n);
    json_bytes(o, "bytes_full", c->full, c->n);
}

void tt_recomputed_json(const tt_setup *s, tt_str *o)
{
    const tt_checkpoint_mode mode = s->core.activation_checkpoint.mode;
    if (mode == TT_CHECKPOINT_NONE)
        return;
    tt_str_printf(o, ",\"recompute\":{\"mode\":\"%s\",\"flops\":", modes[mode]);
    tt_str_json_number(o, flops_again(&s->recomputed));
    tt_str_printf(o, ",\"part\":%.6f", part_again(s));
    if (s->recompute_choice)
        json_choice(s->recompute_choice, o);
    tt_str_add(o, ",\"layers\":[");
    for (int i = 0; i < s->recomputed.n_blocks; i++) {
        const tt_recomputed_block *b = &s->recomputed.blocks[i];
        tt_str_add(o, i ? ",{\"name\":" : "{\"name\":");
        tt_str_json(o, b->name);
        tt_str_printf(o, ",\"stage\":%d,\"kept\":%lld,\"made\":%lld,\"flops\":", b->stage,
                      (long long)b->kept, (long long)b->made);
        tt_str_json_number(o, b->flops);
        if (tt_setup_has_device(s)) {
            tt_str_printf(o, ",\"offloaded\":%lld,\"copy_s\":", (long long)b->moved);
            tt_str_json_number(o, b->copy);
            tt_str_add(o, ",\"again_s\":");
            tt_str_json_number(o, b->cost);
        }
        tt_str_add(o, ",\"again\":");
        tt_str_json(o, b->again);
        tt_str_addc(o, '}');
    }
    tt_str_add(o, "]}");
}
