/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>
#include <ttrun/ttrun.h>

/* Checks of what a vtable holds besides functions, one function per kind. */

#define KERNELS_MAX 4096
#define DEVICE_ALIGNMENT_MAX 65536

tt_status tt_check_train_spec_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_train_spec_vt *v = k->vtable;
    TT_TRY(tt_check_text(c, "model", v->model, true, err));
    TT_TRY(tt_check_text(c, "tokenizer", v->tokenizer, false, err));
    TT_TRY(tt_check_text(c, "dataloader", v->dataloader, false, err));
    TT_TRY(tt_check_text(c, "loss", v->loss, false, err));
    TT_TRY(tt_check_text(c, "optimizer", v->optimizer, false, err));
    TT_TRY(tt_check_text(c, "lr_scheduler", v->lr_scheduler, false, err));
    TT_TRY(tt_check_text(c, "metrics", v->metrics, false, err));
    TT_TRY(tt_check_array(c, "rules", v->rules, v->n_rules, sizeof *v->rules, err));
    for (size_t i = 0; i < v->n_rules; i++) {
        TT_TRY(tt_check_text(c, "a rule's label", v->rules[i].label, true, err));
        TT_TRY(tt_check_text(c, "a rule's axes", v->rules[i].axes, false, err));
        TT_TRY(tt_check_text(c, "a rule's policy", v->rules[i].policy, false, err));
    }
    return TT_OK;
}

static tt_status check_flavor(const tt_check *c, const tt_flavor *f, tt_error *err)
{
    const tt_json *v = NULL;
    tt_error why;
    TT_TRY(tt_check_text(c, "a flavor's name", f->name, true, err));
    if (tt_check_text(c, "args_json", f->args_json, true, err) != TT_OK)
        return tt_error_context(err, "flavor \"%s\"", f->name);
    if (tt_json_parse(c->arena, "args_json", f->args_json, strlen(f->args_json), &v, &why) != TT_OK)
        return TT_FAIL(err, TT_EABI, "flavor \"%s\": %s", f->name, why.text);
    return v->type == TT_JSON_OBJECT
               ? TT_OK
               : TT_FAIL(err, TT_EABI, "flavor \"%s\": args_json is not an object", f->name);
}

tt_status tt_check_model_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_model_vt *v = k->vtable;
    if (TT_HAS(v, tt_model_vt, blocks))
        TT_TRY(tt_check_text(c, "blocks", v->blocks, false, err));
    TT_TRY(tt_check_array(c, "flavors", v->flavors, v->n_flavors, sizeof *v->flavors, err));
    for (size_t i = 0; i < v->n_flavors; i++)
        TT_TRY(check_flavor(c, &v->flavors[i], err));
    return TT_OK;
}

tt_status tt_check_optimizer_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_optimizer_vt *v = k->vtable;
    const bool says = TT_HAS(v, tt_optimizer_vt, rate) && v->rate;
    const char *const keys[] = {says ? v->rate : "lr", "weight_decay"}; /* schedules, groups */
    if (says)
        TT_TRY(tt_check_text(c, "rate", v->rate, true, err));
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        bool found = false;
        for (size_t j = 0; j < k->n_options && !found; j++) {
            const tt_option *o = tt_option_at(k, j);
            found = o->type == TT_OPT_FLOAT && strcmp(o->name, keys[i]) == 0;
        }
        if (!found)
            return TT_FAIL(err, TT_EABI,
                           "it lacks the option \"%s\" (TT_OPT_FLOAT), which every optimizer needs",
                           keys[i]);
    }
    return TT_OK;
}

static tt_status check_device(const tt_check *c, const tt_device_vt *d, tt_error *err)
{
    TT_TRY(tt_check_array(c, "device", d, 1, sizeof d->struct_size, err));
    TT_TRY(tt_check_size(c, "tt_device_vt", d->struct_size, TT_V1_0(tt_device_vt, graph_free),
                         sizeof *d, err));
    TT_TRY(tt_check_array(c, "device", d, 1, d->struct_size, err));
    if (d->alignment < 64 || d->alignment > DEVICE_ALIGNMENT_MAX ||
        (d->alignment & (d->alignment - 1)))
        return TT_FAIL(err, TT_EABI,
                       "its device's alignment %zu is not a power of two from 64 to %d",
                       d->alignment, DEVICE_ALIGNMENT_MAX);
    const int n = !!d->capture_begin + !!d->capture_end + !!d->launch + !!d->graph_free;
    if (n != 0 && n != 4)
        return TT_FAIL(err, TT_EABI,
                       "its device has %d of capture_begin, capture_end, launch and graph_free; "
                       "all four or none are needed",
                       n);
    return tt_check_functions(c, d, d->struct_size, &tt_device_functions, err);
}

tt_status tt_check_backend_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_backend_vt *v = k->vtable;
    const tt_device_vt *d = TT_HAS(v, tt_backend_vt, device) ? v->device : NULL;
    if (!d && !v->host_memory)
        return TT_FAIL(err, TT_EABI, "host_memory is 0 and it has no device");
    if (d && v->host_memory)
        return TT_FAIL(err, TT_EABI, "host_memory is 1, but it has a device");
    return d ? check_device(c, d, err) : TT_OK;
}

tt_status tt_check_converter_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_converter_vt *v = k->vtable;
    (void)c;
    if (!v->linear && !(TT_HAS(v, tt_converter_vt, product) && v->product))
        return TT_FAIL(err, TT_EABI, "its functions linear and product are both NULL");
    return TT_OK;
}

tt_status tt_check_comm_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_comm_vt *v = k->vtable;
    if (TT_HAS(v, tt_comm_vt, poll) && v->device_memory && (!v->on || !v->poll || !v->open))
        return TT_FAIL(err, TT_EABI, "device_memory needs the functions open, on and poll");
    return TT_HAS(v, tt_comm_vt, launcher) ? tt_check_text(c, "launcher", v->launcher, false, err)
                                           : TT_OK;
}

tt_status tt_check_op_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_op_def *d = ((const tt_op_vt *)k->vtable)->def;
    TT_TRY(tt_check_array(c, "tt_op_def", d, 1, sizeof d->struct_size, err));
    TT_TRY(tt_check_size(c, "tt_op_def", d->struct_size, TT_V1_0(tt_op_def, print_attrs), sizeof *d,
                         err));
    TT_TRY(tt_check_array(c, "tt_op_def", d, 1, d->struct_size, err));
    TT_TRY(tt_check_text(c, "the op's name", d->name, true, err));
    TT_TRY(tt_check_text(c, "the op's doc", d->doc, true, err));
    TT_TRY(tt_check_text(c, "rule", d->rule, false, err));
    TT_TRY(tt_check_text(c, "expand_letters", d->expand_letters, false, err));
    if (strcmp(d->name, k->name) != 0)
        return TT_FAIL(err, TT_EABI, "the op calls itself \"%.64s\"", d->name);
    if (d->n_out < 1 || d->n_out > TT_MAX_OUTS)
        return TT_FAIL(err, TT_EABI, "n_out %d is not 1 to %d", d->n_out, TT_MAX_OUTS);
    if (d->attrs_size > TT_STRUCT_MAX)
        return TT_FAIL(err, TT_EABI, "attrs_size %zu is more than %d", d->attrs_size,
                       TT_STRUCT_MAX);
    if (!d->rule && !d->rule_for)
        return TT_FAIL(err, TT_EABI, "it has neither a rule nor rule_for");
    if ((d->flags & TT_OP_LOCAL) && !d->decompose)
        return TT_FAIL(err, TT_EABI, "it has the flag TT_OP_LOCAL, but decompose is NULL");
    if (TT_HAS(d, tt_op_def, rope_form)) {
        TT_TRY(tt_check_text(c, "ring_form", d->ring_form, false, err));
        TT_TRY(tt_check_text(c, "epilogue_form", d->epilogue_form, false, err));
        TT_TRY(tt_check_text(c, "rope_form", d->rope_form, false, err));
    }
    if (TT_HAS(d, tt_op_def, table) && (d->table < 0 || d->table >= TT_MAX_INS))
        return TT_FAIL(err, TT_EABI, "table %d is not 0 to %d", d->table, TT_MAX_INS - 1);
    return tt_check_functions(c, d, d->struct_size, &tt_op_functions, err);
}

static tt_status check_kernel(const tt_check *c, const tt_kernels_vt *v, size_t i, tt_error *err)
{
    const tt_kernel *k = tt_kernel_at(v, i);
    TT_TRY(tt_check_size(c, "tt_kernel", k->struct_size, TT_V1_0(tt_kernel, supports), sizeof *k,
                         err));
    if (k->struct_size > v->kernel_size)
        return TT_FAIL(err, TT_EABI, "struct_size %zu exceeds the table's stride of %zu",
                       k->struct_size, v->kernel_size);
    TT_TRY(tt_check_text(c, "its op", k->op, true, err));
    TT_TRY(tt_check_functions(c, k, k->struct_size, &tt_kernel_functions, err));
    for (size_t j = 0; j < i; j++)
        if (strcmp(tt_kernel_at(v, j)->op, k->op) == 0)
            return TT_FAIL(err, TT_EEXIST, "the op \"%.64s\" has two kernels", k->op);
    return TT_OK;
}

tt_status tt_check_kernels_vt(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_kernels_vt *v = k->vtable;
    TT_TRY(tt_check_text(c, "backend", v->backend, true, err));
    if (k->n_options)
        return TT_FAIL(err, TT_EABI, "kernels have no options");
    if (v->n_kernels == 0 || v->n_kernels > KERNELS_MAX)
        return TT_FAIL(err, TT_EABI, "it claims %zu kernels; 1 to %d are possible", v->n_kernels,
                       KERNELS_MAX);
    if (v->kernel_size < TT_V1_0(tt_kernel, supports) || v->kernel_size > TT_STRUCT_MAX ||
        v->kernel_size % sizeof(void *) != 0)
        return TT_FAIL(err, TT_EABI, "kernel_size %zu is not a size of tt_kernel", v->kernel_size);
    TT_TRY(tt_check_array(c, "kernels", v->kernels, v->n_kernels, v->kernel_size, err));
    for (size_t i = 0; i < v->n_kernels; i++)
        if (check_kernel(c, v, i, err) != TT_OK)
            return tt_error_context(err, "kernel %zu", i);
    return TT_OK;
}
