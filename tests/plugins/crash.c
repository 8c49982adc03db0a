/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <ttrun/kernels.h>
#include <ttrun/ttrun.h>

/* crash.so: a component of every kind that has functions, each of which crashes when it is called.
 * "late" crashes in a function of no vtable, which both hooks call. Built by test_crash.sh against the
 * public headers alone. */

typedef struct {
    double lr, weight_decay;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "0.1", 0, 1, "learning rate"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0", 0, 1, "decay"),
};

/* A function that writes to an address of its own, so that the compiler merges none of them. */
#define CRASH(name, address)                                                                       \
    __attribute__((noinline)) static void name(void)                                               \
    {                                                                                              \
        *(volatile int *)(address) = 1;                                                            \
    }
CRASH(model_crash, 8)
CRASH(loss_crash, 16)
CRASH(optimizer_crash, 24)
CRASH(lr_scheduler_crash, 32)
CRASH(metrics_crash, 40)
CRASH(tokenizer_crash, 48)
CRASH(dataloader_crash, 56)
CRASH(converter_crash, 64)
CRASH(backend_crash, 72)
CRASH(comm_crash, 80)
CRASH(hook_crash, 88)
CRASH(infer_crash, 96)

#define F(name) (void *)name
static const tt_model_vt model_vt = {.struct_size = sizeof(tt_model_vt),
                                     .finish = F(model_crash),
                                     .describe = F(model_crash),
                                     .vocab_size = F(model_crash),
                                     .attention_width = F(model_crash)};
static const tt_loss_vt loss_vt = {.struct_size = sizeof(loss_vt), .describe = F(loss_crash)};
static const tt_optimizer_vt optimizer_vt = {sizeof(optimizer_vt), F(optimizer_crash), "lr"};
static const tt_lr_scheduler_vt lr_scheduler_vt = {sizeof(lr_scheduler_vt), F(lr_scheduler_crash)};
static const tt_metrics_vt metrics_vt = {sizeof(metrics_vt), F(metrics_crash), F(metrics_crash),
                                         F(metrics_crash)};
static const tt_tokenizer_vt tokenizer_vt = {.struct_size = sizeof(tokenizer_vt),
                                             .open = F(tokenizer_crash),
                                             .close = F(tokenizer_crash),
                                             .info = F(tokenizer_crash),
                                             .encode = F(tokenizer_crash),
                                             .decode = F(tokenizer_crash)};
static const tt_dataloader_vt dataloader_vt = {.struct_size = sizeof(dataloader_vt),
                                               .open = F(dataloader_crash),
                                               .close = F(dataloader_crash),
                                               .n_samples = F(dataloader_crash),
                                               .read = F(dataloader_crash)};
static const tt_converter_vt converter_vt = {.struct_size = sizeof(converter_vt),
                                             .linear = F(converter_crash)};
static const tt_backend_vt backend_vt = {.struct_size = sizeof(backend_vt),
                                         .open = F(backend_crash),
                                         .close = F(backend_crash),
                                         .kernel = F(backend_crash),
                                         .host_memory = 1,
                                         .peak_flops = F(backend_crash),
                                         .describe = F(backend_crash)};
static const tt_comm_vt comm_vt = {.struct_size = sizeof(comm_vt),
                                   .group = F(comm_crash),
                                   .group_free = F(comm_crash),
                                   .all_gather = F(comm_crash),
                                   .reduce_scatter = F(comm_crash),
                                   .all_reduce = F(comm_crash),
                                   .all_to_all = F(comm_crash),
                                   .send = F(comm_crash),
                                   .recv = F(comm_crash),
                                   .barrier = F(comm_crash),
                                   .abort = F(comm_crash),
                                   .open = F(comm_crash),
                                   .close = F(comm_crash),
                                   .set_timeout = F(comm_crash)};
static const tt_hook_vt hook_vt = {sizeof(hook_vt), 0, F(hook_crash), NULL, NULL, F(hook_crash)};

static const tt_op_def infer_def =
    TT_OP_DEF("crash", "crashes", "* -> *", TT_OP_POINTWISE, F(infer_crash), NULL, NULL, NULL);
static const tt_op_vt op_vt = {sizeof(op_vt), &infer_def};

/* ---- the model whose loss calls the op ---- */

static tt_value *loss_of_op(const void *c, tt_builder *b)
{
    tt_value *x = tt_get_output(b, "logits"), *y = NULL;
    (void)c;
    tt_op(b, "crash", &x, 1, NULL, &y, 1);
    return y;
}
static const tt_loss_vt loss_of_op_vt = {sizeof(loss_of_op_vt), loss_of_op, NULL};

/* ---- a kernel that crashes in a thread of the pool ---- */

static void range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)arg, (void)begin, (void)end;
    if (thread) /* the caller's own pieces do nothing */
        *(volatile int *)104 = 1;
    for (volatile int i = 0; i < 20000000; i++) /* until a worker has taken one */
        continue;
}

static tt_status run(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    tt_parallel_for(c->pool, 1000, 1, range, NULL);
    return TT_OK;
}
static const tt_kernel kernel = {sizeof(kernel), "rms_norm", run, NULL, 0, 0, NULL};
static const tt_kernels_vt kernels_vt = {sizeof(kernels_vt), "cpu", &kernel, 1, sizeof(kernel)};

/* ---- two hooks of one table ---- */

static tt_status open_hook(const void *c, const tt_hook_env *env, void **self, tt_error *err)
{
    (void)c, (void)env, (void)err;
    *self = NULL;
    return TT_OK;
}
__attribute__((noinline)) static void deep(int n)
{
    if (n)
        deep(n - 1);
    *(volatile int *)112 = n;
}
static tt_status after_step(void *self, const tt_metrics_record *r, tt_error *err)
{
    (void)self, (void)err;
    deep(r->step > 0 ? 3 : 0);
    return TT_OK;
}
static tt_status calls_abort(void *self, int64_t step, tt_error *err)
{
    (void)self, (void)err;
    if (step > 0)
        abort();
    return TT_OK;
}
static void close_hook(void *self)
{
    (void)self;
}
static const tt_hook_vt shared_vt = {sizeof(shared_vt), 0, open_hook, NULL, after_step, close_hook};
static const tt_hook_vt abort_vt = {sizeof(abort_vt), 0, open_hook, calls_abort, NULL, close_hook};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "crash", "crashes", config, options, &optimizer_vt),
    TT_COMPONENT_PLAIN(TT_KIND_MODEL, "crash", "crashes", &model_vt),
    TT_COMPONENT_PLAIN(TT_KIND_LOSS, "crash", "crashes", &loss_vt),
    TT_COMPONENT_PLAIN(TT_KIND_LOSS, "loss_of_op", "uses an op that crashes", &loss_of_op_vt),
    TT_COMPONENT_PLAIN(TT_KIND_LR_SCHEDULER, "crash", "crashes", &lr_scheduler_vt),
    TT_COMPONENT_PLAIN(TT_KIND_METRICS, "crash", "crashes", &metrics_vt),
    TT_COMPONENT_PLAIN(TT_KIND_TOKENIZER, "crash", "crashes", &tokenizer_vt),
    TT_COMPONENT_PLAIN(TT_KIND_DATALOADER, "crash", "crashes", &dataloader_vt),
    TT_COMPONENT_PLAIN(TT_KIND_CONVERTER, "crash", "crashes", &converter_vt),
    TT_COMPONENT_PLAIN(TT_KIND_BACKEND, "crash", "crashes", &backend_vt),
    TT_COMPONENT_PLAIN(TT_KIND_COMM, "crash", "crashes", &comm_vt),
    TT_COMPONENT_PLAIN(TT_KIND_HOOK, "crash", "crashes", &hook_vt),
    TT_COMPONENT_PLAIN(TT_KIND_OP, "crash", "crashes", &op_vt),
    TT_COMPONENT_PLAIN(TT_KIND_KERNELS, "crash", "crash in a worker", &kernels_vt),
    TT_COMPONENT_PLAIN(TT_KIND_HOOK, "one", "crashes after a step", &shared_vt),
    TT_COMPONENT_PLAIN(TT_KIND_HOOK, "two", "crashes after a step", &shared_vt),
    TT_COMPONENT_PLAIN(TT_KIND_HOOK, "aborts", "calls abort()", &abort_vt),
};
TT_PLUGIN("crash", "1.0", components);
