/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>
#include <ttrun/ttrun.h>

/* The tables of what each kind of component is: names, size and functions of its vtable. */

typedef tt_slot slot;
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
    NEED(tt_tokenizer_vt, open),   NEED(tt_tokenizer_vt, close),       NEED(tt_tokenizer_vt, info),
    NEED(tt_tokenizer_vt, encode), NEED(tt_tokenizer_vt, decode),      MAY(tt_tokenizer_vt, cut),
    MAY(tt_tokenizer_vt, train),   MAY(tt_tokenizer_vt, decode_first),
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
static const slot converter_slots[] = {MAY(tt_converter_vt, linear), MAY(tt_converter_vt, product),
                                       MAY(tt_converter_vt, described)};
static const slot backend_slots[] = {
    NEED(tt_backend_vt, open),     NEED(tt_backend_vt, close),
    NEED(tt_backend_vt, kernel),   NEED(tt_backend_vt, peak_flops),
    NEED(tt_backend_vt, describe), MAY(tt_backend_vt, peak_vector_flops),
    MAY(tt_backend_vt, target),    MAY(tt_backend_vt, prepare),
    MAY(tt_backend_vt, devices),
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
    MAY(tt_device_vt, identity),
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
    MAY(tt_comm_vt, works),       MAY(tt_comm_vt, scratch_bytes),
    MAY(tt_comm_vt, use_memory),  MAY(tt_comm_vt, forget_memory),
};
static const slot hook_slots[] = {
    NEED(tt_hook_vt, open),  MAY(tt_hook_vt, before_step), MAY(tt_hook_vt, after_step),
    NEED(tt_hook_vt, close), MAY(tt_hook_vt, start),       MAY(tt_hook_vt, after_backward),
    MAY(tt_hook_vt, saved),  MAY(tt_hook_vt, validated),   MAY(tt_hook_vt, end),
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

const tt_slots tt_device_functions = {device_slots, TT_COUNT(device_slots)};
const tt_slots tt_op_functions = {op_def_slots, TT_COUNT(op_def_slots)};
const tt_slots tt_kernel_functions = {kernel_slots, TT_COUNT(kernel_slots)};

/* The function that slot i points to; 0: NULL, or the struct of `size` bytes ends before it. */
static uintptr_t function_of(const void *vt, size_t size, const slot *s)
{
    uintptr_t fn = 0;
    if (s->offset + sizeof fn <= size)
        memcpy(&fn, (const char *)vt + s->offset, sizeof fn);
    return fn;
}

/* Slots that were appended after the plugin's minor version are beyond its `size` bytes. */
tt_status tt_check_functions(const tt_check *c, const void *vt, size_t size, const tt_slots *slots,
                             tt_error *err)
{
    for (size_t i = 0; i < slots->n; i++) {
        const slot *s = &slots->items[i];
        const uintptr_t fn = function_of(vt, size, s);
        if (s->offset + sizeof fn > size)
            continue;
        if (!fn && !s->optional)
            return TT_FAIL(err, TT_EABI, "its function %s is NULL", s->name);
        if (fn && !tt_image_code(&c->image, fn))
            return TT_FAIL(err, TT_EABI, "%s points to no function", s->name);
    }
    return TT_OK;
}

#define KIND(name, folder, type, last, slots, data)                                                \
    {                                                                                              \
        name, folder, TT_V1_0(type, last), sizeof(type), slots, TT_COUNT(slots), data              \
    }

/* Indexed by tt_kind. */
static const kind_info kinds[TT_KIND_END] = {
    [TT_KIND_TRAIN_SPEC] = {"train_spec", "specs",   TT_V1_0(tt_train_spec_vt, n_rules),
                            sizeof(tt_train_spec_vt),                                                          NULL, 0, tt_check_train_spec_vt},
    [TT_KIND_MODEL] =
        KIND("model", "models", tt_model_vt, attention_width, model_slots, tt_check_model_vt),
    [TT_KIND_TOKENIZER] =
        KIND("tokenizer", "tokenizers", tt_tokenizer_vt, decode, tokenizer_slots, NULL),
    [TT_KIND_DATALOADER] = KIND("dataloader", "dataloaders", tt_dataloader_vt, needs_tokenizer,
                                dataloader_slots, NULL),
    [TT_KIND_LOSS] = KIND("loss", "losses", tt_loss_vt, describe, loss_slots, NULL),
    [TT_KIND_OPTIMIZER] = KIND("optimizer", "optimizers", tt_optimizer_vt, describe_update,
                               optimizer_slots, tt_check_optimizer_vt),
    [TT_KIND_LR_SCHEDULER] =
        KIND("lr_scheduler", "lr_schedulers", tt_lr_scheduler_vt, factor, lr_scheduler_slots, NULL),
    [TT_KIND_METRICS] = KIND("metrics", "metrics", tt_metrics_vt, close, metrics_slots, NULL),
    [TT_KIND_CONVERTER] = KIND("converter", "converters", tt_converter_vt, linear, converter_slots,
                               tt_check_converter_vt),
    [TT_KIND_BACKEND] =
        KIND("backend", "backends", tt_backend_vt, describe, backend_slots, tt_check_backend_vt),
    [TT_KIND_COMM] = KIND("comm", "comms", tt_comm_vt, abort, comm_slots, tt_check_comm_vt),
    [TT_KIND_HOOK] = KIND("hook", "hooks", tt_hook_vt, close, hook_slots, NULL),
    [TT_KIND_OP] = {"op",         "ops",     TT_V1_0(tt_op_vt,         def),         sizeof(tt_op_vt), NULL, 0, tt_check_op_vt        },
    [TT_KIND_KERNELS] = {"kernels",    "kernels", TT_V1_0(tt_kernels_vt,    kernel_size),
                            sizeof(tt_kernels_vt),                                                             NULL, 0, tt_check_kernels_vt   },
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
    TT_TRY(tt_check_functions(c, k->vtable, size, &(tt_slots){info->slots, info->n_slots}, err));
    return info->data ? info->data(c, k, err) : TT_OK;
}

static void each_function(const void *vt, size_t size, const tt_slots *slots,
                          void (*fn)(void *arg, uintptr_t code), void *arg)
{
    for (size_t i = 0; i < slots->n; i++) {
        const uintptr_t code = function_of(vt, size, &slots->items[i]);
        if (code)
            fn(arg, code);
    }
}

void tt_component_functions(const tt_component *k, void (*fn)(void *arg, uintptr_t code), void *arg)
{
    const kind_info *info = &kinds[k->kind];
    size_t size = 0;
    memcpy(&size, k->vtable, sizeof size);
    each_function(k->vtable, size, &(tt_slots){info->slots, info->n_slots}, fn, arg);
    if (k->extension)
        fn(arg, (uintptr_t)k->extension);
    if (k->kind == TT_KIND_OP) {
        const tt_op_def *d = ((const tt_op_vt *)k->vtable)->def;
        each_function(d, d->struct_size, &tt_op_functions, fn, arg);
    }
    const tt_backend_vt *b = k->kind == TT_KIND_BACKEND ? k->vtable : NULL;
    if (b && TT_HAS(b, tt_backend_vt, device) && b->device)
        each_function(b->device, b->device->struct_size, &tt_device_functions, fn, arg);
    const tt_kernels_vt *v = k->kind == TT_KIND_KERNELS ? k->vtable : NULL;
    for (size_t i = 0; v && i < v->n_kernels; i++) {
        const tt_kernel *kernel = tt_kernel_at(v, i);
        each_function(kernel, kernel->struct_size, &tt_kernel_functions, fn, arg);
    }
}
