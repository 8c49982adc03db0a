/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* Before a program runs, each kernel is asked whether it takes this rank's operands. The passes asked
 * about the whole tensors; a kernel may refuse a part of them. */

/* As the kernel will see it: in a loop, a chunk of its rows. */
static void asked_operands(const tt_exec *x, const int *o, int n, tt_tensor *out)
{
    for (int j = 0; j < n; j++) {
        const tt_operand *p = &x->p->operands[o[j]];
        out[j] = p->tensor;
        out[j].data = NULL;
        if (p->rows)
            out[j].shape[0] = TT_MIN(out[j].shape[0], x->p->chunk_rows);
    }
}

/* "f32[12,48], f32[70,48]" */
static void print_operands(const tt_tensor *t, int n, tt_str *o)
{
    for (int j = 0; j < n; j++) {
        tt_str_printf(o, "%s%s[", j ? ", " : "", tt_dtype_name(t[j].dtype));
        for (int d = 0; d < t[j].n_dims; d++)
            tt_str_printf(o, "%s%lld", d ? "," : "", (long long)t[j].shape[d]);
        tt_str_addc(o, ']');
    }
}

static tt_status refused(const tt_instr *i, const tt_kernel_call *c, tt_error *err)
{
    tt_str s = {0};
    print_operands(c->in, c->n_in, &s);
    tt_str_add(&s, " to ");
    print_operands(c->out, c->n_out, &s);
    const tt_status st = TT_FAIL(
        err, TT_EUNSUPPORTED,
        "the backend's kernel for op %s (in \"%s\") does not take %s%s, which this rank has; "
        "choose other dtypes (training.dtype, training.mixed_precision_param), another mesh or "
        "another backend.name",
        i->kernel, i->scope, tt_str_get(&s), c->accumulate ? ", adding to the result" : "");
    tt_str_free(&s);
    return st;
}

tt_status tt_exec_ask_kernel(const tt_exec *x, const tt_bound *b, tt_error *err)
{
    const tt_instr *i = b->instr;
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    if (!b->kernel->supports)
        return TT_OK;
    TT_ASSERT(i->n_in <= TT_MAX_INS && i->n_out <= TT_MAX_OUTS);
    asked_operands(x, i->in, i->n_in, in);
    asked_operands(x, i->out, i->n_out, out);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = b->kernel->op,
                        .in = in,
                        .n_in = i->n_in,
                        .out = out,
                        .n_out = i->n_out,
                        .attrs = i->attrs,
                        .backend = x->o.device.backend};
    for (c.accumulate = 0; c.accumulate < 2; c.accumulate++) {
        const tt_predicate when = c.accumulate ? i->predicate & i->adds : i->predicate & ~i->adds;
        if (when && !b->kernel->supports(&c))
            return refused(i, &c, err);
    }
    return TT_OK;
}
