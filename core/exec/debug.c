/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>

/* A quiet NaN in every width: f32 0x7fffffff, bf16 0x7fff, f64 NaN. */
void tt_exec_poison(void *p, size_t bytes)
{
    uint8_t *b = p;
    for (size_t i = 0; i < bytes; i++)
        b[i] = (i & 1) ? 0x7f : 0xff;
    for (size_t i = 3; i < bytes; i += 4)
        b[i - 1] = 0xff;
}

static bool finite_at(const tt_tensor *t, int64_t i, double *value)
{
    *value = t->dtype == TT_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
    return isfinite(*value);
}

/* -inf is a legal maximum and log-sum of nothing. */
static bool may_be_infinite(const tt_node *n)
{
    static const char *const ops[] = {"max_last", "attention", "reduce_max"};
    for (size_t i = 0; i < TT_COUNT(ops); i++)
        if (!strcmp(n->op->name, ops[i])) return true;
    return n->n_out && n->out[0]->place.partial_max;
}

tt_status tt_exec_check_finite(tt_exec *x, const tt_instr *i, const tt_tensor *out, int n, int micro,
                               tt_error *err)
{
    for (int o = 0; o < n; o++) {
        double v;
        if (!out[o].data || (out[o].dtype != TT_F32 && out[o].dtype != TT_F64)) continue;
        for (int64_t k = 0; k < tt_tensor_numel(&out[o]); k++)
            if (!finite_at(&out[o], k, &v) && !(v < 0 && isinf(v) && may_be_infinite(i->node)))
                return TT_FAIL(err, TT_ENUMERIC,
                               "debug.detect_nan: step %lld, rank %d, micro-batch %d: %s in \"%s\" "
                               "wrote %s at element %lld of output %d (value %%%d)",
                               (long long)x->step, x->o.dist->rank, micro, i->node->op->name,
                               i->node->scope ? i->node->scope : "", isnan(v) ? "NaN" : "Inf",
                               (long long)k, o, i->node->n_out > o ? i->node->out[o]->id : -1);
    }
    return TT_OK;
}
