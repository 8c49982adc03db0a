/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>
#include <ttrun/ttrun.h>

/* A function pointer of a vtable; optional ones may be NULL. */
typedef struct slot {
    const char *name;
    size_t offset;
    bool optional;
} slot;

typedef tt_status (*data_check)(const tt_check *c, const tt_component *k, tt_error *err);

typedef struct kind_info {
    const char *name, *folder;
    size_t v1_0, size; /* bytes of the vtable in minor 0 and today */
    const slot *slots;
    size_t n_slots;
    data_check data; /* checks the fields that are not functions; NULL = there are none */
} kind_info;

#define NEED(type, f)                                                                              \
    {                                                                                              \
#f, offsetof(type, f), false                                                               \
    }
#define MAY(type, f)                                                                               \
    {                                                                                              \
#f, offsetof(type, f), true                                                                \
    }

static const slot model_slots[] = {
    MAY(tt_model_vt, finish),
    NEED(tt_model_vt, describe),
    NEED(tt_model_vt, vocab_size),
    NEED(tt_model_vt, attention_width),
};
static const slot tokenizer_slots[] = {
    NEED(tt_tokenizer_vt, open),   NEED(tt_tokenizer_vt, close),  NEED(tt_tokenizer_vt, info),
    NEED(tt_tokenizer_vt, encode), NEED(tt_tokenizer_vt, decode),
};
static const slot dataloader_slots[] = {
    NEED(tt_dataloader_vt, open),       NEED(tt_dataloader_vt, close),
    NEED(tt_dataloader_vt, n_samples),  NEED(tt_dataloader_vt, read),
    MAY(tt_dataloader_vt, info),        MAY(tt_dataloader_vt, inputs),
    MAY(tt_dataloader_vt, one_segment),
};
static const slot loss_slots[] = {NEED(tt_loss_vt, describe)};
static const slot optimizer_slots[] = {NEED(tt_optimizer_vt, describe_update)};
static const slot lr_scheduler_slots[] = {NEED(tt_lr_scheduler_vt, factor)};
static const slot metrics_slots[] = {NEED(tt_metrics_vt, open), NEED(tt_metrics_vt, log),
                                     NEED(tt_metrics_vt, close)};
static const slot converter_slots[] = {NEED(tt_converter_vt, linear),
                                       MAY(tt_converter_vt, described)};
static const slot backend_slots[] = {
    NEED(tt_backend_vt, open),     NEED(tt_backend_vt, close),
    NEED(tt_backend_vt, kernel),   NEED(tt_backend_vt, peak_flops),
    NEED(tt_backend_vt, describe), MAY(tt_backend_vt, peak_vector_flops),
    MAY(tt_backend_vt, target),
};
static const slot device_slots[] = {
    NEED(tt_device_vt, alloc),        NEED(tt_device_vt, free),
    NEED(tt_device_vt, alloc_pinned), NEED(tt_device_vt, free_pinned),
    NEED(tt_device_vt, memory),       NEED(tt_device_vt, enter),
    NEED(tt_device_vt, queue_new),    NEED(tt_device_vt, queue_free),
    NEED(tt_device_vt, event_new),    NEED(tt_device_vt, event_free),
    NEED(tt_device_vt, record),       NEED(tt_device_vt, wait),
    NEED(tt_device_vt, sync),         NEED(tt_device_vt, done),
    NEED(tt_device_vt, seconds),      NEED(tt_device_vt, copy),
    NEED(tt_device_vt, fill),         MAY(tt_device_vt, capture_begin),
    MAY(tt_device_vt, capture_end),   MAY(tt_device_vt, launch),
    MAY(tt_device_vt, graph_free),    MAY(tt_device_vt, reaches),
};
static const slot comm_slots[] = {
    NEED(tt_comm_vt, group),      NEED(tt_comm_vt, group_free),
    NEED(tt_comm_vt, all_gather), NEED(tt_comm_vt, reduce_scatter),
    NEED(tt_comm_vt, all_reduce), NEED(tt_comm_vt, all_to_all),
    NEED(tt_comm_vt, send),       NEED(tt_comm_vt, recv),
    NEED(tt_comm_vt, barrier),    NEED(tt_comm_vt, abort),
    MAY(tt_comm_vt, open),        MAY(tt_comm_vt, close),
    MAY(tt_comm_vt, set_timeout), MAY(tt_comm_vt, concurrent),
    MAY(tt_comm_vt, on),          MAY(tt_comm_vt, poll),
};
static const slot hook_slots[] = {
    NEED(tt_hook_vt, open),
    MAY(tt_hook_vt, before_step),
    MAY(tt_hook_vt, after_step),
    NEED(tt_hook_vt, close),
};
static const slot op_def_slots[] = {
    NEED(tt_op_def, infer),      MAY(tt_op_def, rule_for), MAY(tt_op_def, vjp),
    MAY(tt_op_def, decompose),   MAY(tt_op_def, expand),   MAY(tt_op_def, cost),
    MAY(tt_op_def, print_attrs), MAY(tt_op_def, memory),   MAY(tt_op_def, incremental),
    MAY(tt_op_def, immediate),
};

static const slot kernel_slots[] = {
    NEED(tt_kernel, run),
    MAY(tt_kernel, scratch_bytes),
    MAY(tt_kernel, supports),
};

#define KERNELS_MAX 4096
#define DEVICE_ALIGNMENT_MAX 65536

/* Slots that were appended after the plugin's minor version are beyond its `size` bytes. */
static tt_status check_slots(const tt_check *c, const void *vt, size_t size, const slot *slots,
                             size_t n, tt_error *err)
{
    for (size_t i = 0; i < n; i++) {
        uintptr_t fn = 0;
        if (slots[i].offset + sizeof fn > size)
            continue;
        memcpy(&fn, (const char *)vt + slots[i].offset, sizeof fn);
        if (!fn && !slots[i].optional)
            return TT_FAIL(err, TT_EABI, "its function %s is NULL", slots[i].name);
        if (fn && !tt_image_code(&c->image, fn))
            return TT_FAIL(err, TT_EABI, "%s points to no function", slots[i].name);
    }
    return TT_OK;
}

static tt_status check_train_spec(const tt_check *c, const tt_component *k, tt_error *err)
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

static tt_status check_model(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_model_vt *v = k->vtable;
    if (TT_HAS(v, tt_model_vt, blocks))
        TT_TRY(tt_check_text(c, "blocks", v->blocks, false, err));
    TT_TRY(tt_check_array(c, "flavors", v->flavors, v->n_flavors, sizeof *v->flavors, err));
    for (size_t i = 0; i < v->n_flavors; i++)
        TT_TRY(check_flavor(c, &v->flavors[i], err));
    return TT_OK;
}

static tt_status check_optimizer(const tt_check *c, const tt_component *k, tt_error *err)
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
    return check_slots(c, d, d->struct_size, device_slots, TT_COUNT(device_slots), err);
}

static tt_status check_backend(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_backend_vt *v = k->vtable;
    const tt_device_vt *d = TT_HAS(v, tt_backend_vt, device) ? v->device : NULL;
    if (!d && !v->host_memory)
        return TT_FAIL(err, TT_EABI, "host_memory is 0 and it has no device");
    if (d && v->host_memory)
        return TT_FAIL(err, TT_EABI, "host_memory is 1, but it has a device");
    return d ? check_device(c, d, err) : TT_OK;
}

static tt_status check_comm(const tt_check *c, const tt_component *k, tt_error *err)
{
    const tt_comm_vt *v = k->vtable;
    if (TT_HAS(v, tt_comm_vt, poll) && v->device_memory && (!v->on || !v->poll || !v->open))
        return TT_FAIL(err, TT_EABI, "device_memory needs the functions open, on and poll");
    return TT_HAS(v, tt_comm_vt, launcher) ? tt_check_text(c, "launcher", v->launcher, false, err)
                                           : TT_OK;
}

static tt_status check_op(const tt_check *c, const tt_component *k, tt_error *err)
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
    return check_slots(c, d, d->struct_size, op_def_slots, TT_COUNT(op_def_slots), err);
}

/* The row i of a table of kernels, which may be longer than ours. */
static const tt_kernel *kernel_at(const tt_kernels_vt *v, size_t i)
{
    return (const void *)((const char *)v->kernels + i * v->kernel_size);
}

static tt_status check_kernel(const tt_check *c, const tt_kernels_vt *v, size_t i, tt_error *err)
{
    const tt_kernel *k = kernel_at(v, i);
    TT_TRY(tt_check_size(c, "tt_kernel", k->struct_size, TT_V1_0(tt_kernel, supports), sizeof *k,
                         err));
    if (k->struct_size > v->kernel_size)
        return TT_FAIL(err, TT_EABI, "struct_size %zu exceeds the table's stride of %zu",
                       k->struct_size, v->kernel_size);
    TT_TRY(tt_check_text(c, "its op", k->op, true, err));
    TT_TRY(check_slots(c, k, k->struct_size, kernel_slots, TT_COUNT(kernel_slots), err));
    for (size_t j = 0; j < i; j++)
        if (strcmp(kernel_at(v, j)->op, k->op) == 0)
            return TT_FAIL(err, TT_EEXIST, "the op \"%.64s\" has two kernels", k->op);
    return TT_OK;
}

static tt_status check_kernels(const tt_check *c, const tt_component *k, tt_error *err)
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

#define KIND(name, folder, type, last, slots, data)                                                \
    {                                                                                              \
        name, folder, TT_V1_0(type, last), sizeof(type), slots, TT_COUNT(slots), data              \
    }

/* Indexed by tt_kind. */
static const kind_info kinds[TT_KIND_END] = {
    [TT_KIND_TRAIN_SPEC] = {"train_spec", "specs",   TT_V1_0(tt_train_spec_vt, n_rules),
                            sizeof(tt_train_spec_vt),                                                          NULL, 0, check_train_spec},
    [TT_KIND_MODEL] =
        KIND("model", "models", tt_model_vt, attention_width, model_slots, check_model),
    [TT_KIND_TOKENIZER] =
        KIND("tokenizer", "tokenizers", tt_tokenizer_vt, decode, tokenizer_slots, NULL),
    [TT_KIND_DATALOADER] = KIND("dataloader", "dataloaders", tt_dataloader_vt, needs_tokenizer,
                                dataloader_slots, NULL),
    [TT_KIND_LOSS] = KIND("loss", "losses", tt_loss_vt, describe, loss_slots, NULL),
    [TT_KIND_OPTIMIZER] = KIND("optimizer", "optimizers", tt_optimizer_vt, describe_update,
                               optimizer_slots, check_optimizer),
    [TT_KIND_LR_SCHEDULER] =
        KIND("lr_scheduler", "lr_schedulers", tt_lr_scheduler_vt, factor, lr_scheduler_slots, NULL),
    [TT_KIND_METRICS] = KIND("metrics", "metrics", tt_metrics_vt, close, metrics_slots, NULL),
    [TT_KIND_CONVERTER] =
        KIND("converter", "converters", tt_converter_vt, linear, converter_slots, NULL),
    [TT_KIND_BACKEND] =
        KIND("backend", "backends", tt_backend_vt, describe, backend_slots, check_backend),
    [TT_KIND_COMM] = KIND("comm", "comms", tt_comm_vt, abort, comm_slots, check_comm),
    [TT_KIND_HOOK] = KIND("hook", "hooks", tt_hook_vt, close, hook_slots, NULL),
    [TT_KIND_OP] = {"op",         "ops",     TT_V1_0(tt_op_vt,         def),         sizeof(tt_op_vt), NULL, 0, check_op        },
    [TT_KIND_KERNELS] = {"kernels",    "kernels", TT_V1_0(tt_kernels_vt,    kernel_size),
                            sizeof(tt_kernels_vt),                                                             NULL, 0, check_kernels   },
};

bool tt_kind_known(tt_kind k)
{
    return (int)k >= 1 && (int)k < (int)TT_KIND_END && kinds[k].name;
}

const char *tt_kind_name(tt_kind k)
{
    return tt_kind_known(k) ? kinds[k].name : "unknown kind";
}

const char *tt_kind_folder(tt_kind k)
{
    return tt_kind_known(k) ? kinds[k].folder : "unknown";
}

tt_status tt_kind_parse(const char *name, tt_kind *out, tt_error *err)
{
    const char *names[TT_KIND_END];
    size_t n = 0;
    for (int k = 1; k < (int)TT_KIND_END; k++) {
        if (strcmp(kinds[k].name, name) == 0 || strcmp(kinds[k].folder, name) == 0) {
            *out = (tt_kind)k;
            return TT_OK;
        }
        names[n++] = kinds[k].name;
    }
    tt_str list = {0};
    for (size_t i = 0; i < n; i++)
        tt_str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const char *near = tt_nearest(name, names, n);
    TT_FAIL(err, TT_EINVAL, "\"%s\": unknown kind of plugin%s%s%s; there are %s", name,
            near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", tt_str_get(&list));
    tt_str_free(&list);
    return TT_EINVAL;
}

tt_status tt_check_vtable(const tt_check *c, const tt_component *k, tt_error *err)
{
    const kind_info *info = &kinds[k->kind];
    size_t size = 0;
    if (!k->vtable)
        return TT_FAIL(err, TT_EABI, "its vtable is NULL");
    TT_TRY(tt_check_array(c, "vtable", k->vtable, 1, sizeof size, err));
    memcpy(&size, k->vtable, sizeof size);
    TT_TRY(tt_check_size(c, "vtable", size, info->v1_0, info->size, err));
    TT_TRY(tt_check_array(c, "vtable", k->vtable, 1, size, err));
    TT_TRY(check_slots(c, k->vtable, size, info->slots, info->n_slots, err));
    return info->data ? info->data(c, k, err) : TT_OK;
}
