/* SPDX-License-Identifier: Apache-2.0 */
#include "dnn.h"
#include <string.h>

/* Graphs of cuDNN operations: descriptors, plans, runs. */

static void graph_fail(dnn_graph *g, const char *what, int status)
{
    char text[256] = "";
    if (g->status != TT_OK)
        return;
    g->d->api.cudnnGetLastErrorString(text, sizeof text);
    g->status = TT_FAIL(g->err, TT_EUNSUPPORTED, "cuDNN: %s: %s%s%s", what,
                        g->d->api.cudnnGetErrorString(status), text[0] ? ": " : "", text);
}

void dnn_graph_start(dnn_graph *g, cuda_dnn *d, tt_error *err)
{
    *g = (dnn_graph){.d = d, .next = 1000, .err = err};
}

void dnn_graph_free(dnn_graph *g)
{
    while (g->n_made > 0)
        g->d->api.cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
}

static void *graph_create(dnn_graph *g, int type)
{
    void *out = NULL;
    if (g->status != TT_OK)
        return NULL;
    const int s = g->n_made < (int)TT_COUNT(g->made)
                      ? g->d->api.cudnnBackendCreateDescriptor(type, &out)
                      : -1;
    if (s != 0) {
        graph_fail(g, "a descriptor cannot be made", s);
        return NULL;
    }
    g->made[g->n_made++] = out;
    return out;
}

static void graph_set(dnn_graph *g, void *d, int name, int type, int64_t n, const void *values)
{
    if (g->status != TT_OK)
        return;
    const int s = g->d->api.cudnnBackendSetAttribute(d, name, type, n, values);
    if (s != 0)
        graph_fail(g, "an attribute is refused", s);
}

static void graph_set_int(dnn_graph *g, void *d, int name, int type, int value)
{
    graph_set(g, d, name, type, 1, &value); /* enums are ints in C */
}

static void graph_set_descriptor(dnn_graph *g, void *d, int name, void *value)
{
    if (value)
        graph_set(g, d, name, DNN_TYPE_DESCRIPTOR, 1, &value);
}

static void graph_finish(dnn_graph *g, void *d, const char *what)
{
    if (g->status != TT_OK)
        return;
    const int s = g->d->api.cudnnBackendFinalize(d);
    if (s != 0)
        graph_fail(g, what, s);
}

static void *make_tensor(dnn_graph *g, int64_t id, int type, const dnn_shape *s, bool by_value)
{
    void *t = graph_create(g, DNN_TENSOR);
    const int64_t alignment = 16, uid = id > 0 ? id : g->next++;
    const bool yes = true;
    graph_set_int(g, t, DNN_ATTR_TENSOR_DATA_TYPE, DNN_TYPE_DATA_TYPE, type);
    graph_set(g, t, DNN_ATTR_TENSOR_DIMENSIONS, DNN_TYPE_INT64, 4, s->size);
    graph_set(g, t, DNN_ATTR_TENSOR_STRIDES, DNN_TYPE_INT64, 4, s->stride);
    graph_set(g, t, DNN_ATTR_TENSOR_UNIQUE_ID, DNN_TYPE_INT64, 1, &uid);
    graph_set(g, t, DNN_ATTR_TENSOR_BYTE_ALIGNMENT, DNN_TYPE_INT64, 1, &alignment);
    if (by_value)
        graph_set(g, t, DNN_ATTR_TENSOR_IS_BY_VALUE, DNN_TYPE_BOOLEAN, 1, &yes);
    if (id <= 0)
        graph_set(g, t, DNN_ATTR_TENSOR_IS_VIRTUAL, DNN_TYPE_BOOLEAN, 1, &yes);
    graph_finish(g, t, "a tensor is refused");
    return t;
}

void *dnn_tensor(dnn_graph *g, int64_t id, int type, const dnn_shape *s)
{
    return make_tensor(g, id, type, s, false);
}

void *dnn_value(dnn_graph *g, int64_t id)
{
    const dnn_shape one = {
        {1, 1, 1, 1},
        {1, 1, 1, 1}
    };
    return make_tensor(g, id, DNN_F32, &one, true);
}

static void add_op(dnn_graph *g, void *op, const char *what)
{
    graph_finish(g, op, what);
    if (g->status == TT_OK)
        g->ops[g->n_ops++] = op;
}

void dnn_pointwise(dnn_graph *g, int mode, int math, void *x, void *b, void *t, void *y,
                   int64_t axis)
{
    void *p = graph_create(g, DNN_POINTWISE);
    graph_set_int(g, p, DNN_ATTR_POINTWISE_MODE, DNN_TYPE_POINTWISE_MODE, mode);
    graph_set_int(g, p, DNN_ATTR_POINTWISE_MATH_PREC, DNN_TYPE_DATA_TYPE, math);
    if (mode == DNN_INDEX)
        graph_set(g, p, DNN_ATTR_POINTWISE_AXIS, DNN_TYPE_INT64, 1, &axis);
    graph_finish(g, p, "a pointwise operation is refused");
    void *op = graph_create(g, DNN_OPERATION_POINTWISE);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op, "a pointwise operation is refused");
}

void dnn_matmul(dnn_graph *g, void *a, void *b, void *c)
{
    void *m = graph_create(g, DNN_MATMUL);
    graph_set_int(g, m, DNN_ATTR_MATMUL_COMP_TYPE, DNN_TYPE_DATA_TYPE, DNN_F32);
    graph_finish(g, m, "a product is refused");
    void *op = graph_create(g, DNN_OPERATION_MATMUL);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_MATMUL_ADESC, a);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_MATMUL_BDESC, b);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_MATMUL_CDESC, c);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_MATMUL_DESC, m);
    add_op(g, op, "a product is refused");
}

void dnn_reduce(dnn_graph *g, int how, void *x, void *y)
{
    void *r = graph_create(g, DNN_REDUCTION);
    graph_set_int(g, r, DNN_ATTR_REDUCTION_COMP_TYPE, DNN_TYPE_DATA_TYPE, DNN_F32);
    graph_set_int(g, r, DNN_ATTR_REDUCTION_OPERATOR, DNN_TYPE_REDUCTION_OPERATOR, how);
    graph_finish(g, r, "a reduction is refused");
    void *op = graph_create(g, DNN_OPERATION_REDUCTION);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_REDUCTION_DESC, r);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(g, op, "a reduction is refused");
}

void dnn_reshape(dnn_graph *g, void *x, void *y)
{
    void *op = graph_create(g, DNN_OPERATION_RESHAPE);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    graph_set_descriptor(g, op, DNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "a reshape is refused");
}

/* ---- plans ---- */

/* Does an engine repeat its bits? */
static bool repeats(dnn_graph *g, void *config)
{
    const dnn_api *api = &g->d->api;
    void *engine = graph_create(g, DNN_ENGINE);
    int notes[DNN_N_NOTES];
    int64_t n = 0;
    if (!engine ||
        api->cudnnBackendGetAttribute(config, DNN_ATTR_ENGINECFG_ENGINE, DNN_TYPE_DESCRIPTOR, 1, &n,
                                      &engine) != 0 ||
        api->cudnnBackendGetAttribute(engine, DNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      DNN_TYPE_NUMERICAL_NOTE, DNN_N_NOTES, &n, notes) != 0)
        return false;
    for (int64_t i = 0; i < n && i < DNN_N_NOTES; i++)
        if (notes[i] == DNN_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

static bool build(dnn_graph *g, void *config, void **out, int64_t *workspace)
{
    const dnn_api *api = &g->d->api;
    void *plan = NULL;
    int64_t n = 0;
    bool ok =
        api->cudnnBackendCreateDescriptor(DNN_EXECUTION_PLAN, &plan) == 0 &&
        (!g->d->handle || api->cudnnBackendSetAttribute(plan, DNN_ATTR_PLAN_HANDLE, DNN_TYPE_HANDLE,
                                                        1, &g->d->handle) == 0) &&
        api->cudnnBackendSetAttribute(plan, DNN_ATTR_PLAN_ENGINE_CONFIG, DNN_TYPE_DESCRIPTOR, 1,
                                      &config) == 0 &&
        api->cudnnBackendFinalize(plan) == 0 &&
        api->cudnnBackendGetAttribute(plan, DNN_ATTR_PLAN_WORKSPACE_SIZE, DNN_TYPE_INT64, 1, &n,
                                      workspace) == 0;
    if (!ok && plan)
        api->cudnnBackendDestroyDescriptor(plan);
    *out = ok ? plan : NULL;
    return ok;
}

/* The engines that the library proposes for the graph, best first. */
static int ask_engines(dnn_graph *g, void **configs, int room)
{
    const dnn_api *api = &g->d->api;
    void *graph = graph_create(g, DNN_OPERATIONGRAPH);
    if (g->d->handle)
        graph_set(g, graph, DNN_ATTR_OPERATIONGRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &g->d->handle);
    graph_set(g, graph, DNN_ATTR_OPERATIONGRAPH_OPS, DNN_TYPE_DESCRIPTOR, g->n_ops, g->ops);
    graph_finish(g, graph, "the graph is refused");
    void *ask = graph_create(g, DNN_ENGINEHEUR);
    graph_set_descriptor(g, ask, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    graph_set_int(g, ask, DNN_ATTR_ENGINEHEUR_MODE, DNN_TYPE_HEUR_MODE, DNN_HEUR_A);
    if (!g->d->handle)
        graph_set_descriptor(g, ask, DNN_ATTR_ENGINEHEUR_DEVICEPROP, g->d->chip);
    graph_finish(g, ask, "no engine takes the graph");
    for (int i = 0; i < room; i++)
        configs[i] = graph_create(g, DNN_ENGINECFG);
    if (g->status != TT_OK)
        return 0;
    int64_t n = 0;
    const int s = api->cudnnBackendGetAttribute(ask, DNN_ATTR_ENGINEHEUR_RESULTS,
                                                DNN_TYPE_DESCRIPTOR, room, &n, configs);
    if (s != 0)
        graph_fail(g, "engines are not told", s);
    return s == 0 && n < room ? (int)n : s == 0 ? room : 0;
}

tt_status dnn_graph_plan(dnn_graph *g, bool any_order, void **plan, int64_t *workspace)
{
    void *configs[8];
    const int n = ask_engines(g, configs, (int)TT_COUNT(configs));
    *plan = NULL;
    for (int i = 0; i < n; i++)
        if ((any_order || repeats(g, configs[i])) && build(g, configs[i], plan, workspace))
            return TT_OK;
    if (g->status == TT_OK)
        g->status = TT_FAIL(g->err, TT_EUNSUPPORTED,
                            "cuDNN %zu has no engine for this attention on this chip",
                            g->d->api.cudnnGetVersion());
    return g->status;
}

void dnn_plan_free(cuda_dnn *d, void *plan)
{
    if (plan)
        d->api.cudnnBackendDestroyDescriptor(plan);
}

tt_status dnn_run(cuda_dnn *d, void *plan, tt_device_queue *q, int n, const int64_t *ids,
                  void *const *addresses, void *workspace, tt_error *err)
{
    dnn_graph g;
    dnn_graph_start(&g, d, err);
    void *pack = graph_create(&g, DNN_VARIANT_PACK);
    graph_set(&g, pack, DNN_ATTR_PACK_UNIQUE_IDS, DNN_TYPE_INT64, n, ids);
    graph_set(&g, pack, DNN_ATTR_PACK_DATA_POINTERS, DNN_TYPE_VOID_PTR, n, addresses);
    if (workspace)
        graph_set(&g, pack, DNN_ATTR_PACK_WORKSPACE, DNN_TYPE_VOID_PTR, 1, &workspace);
    graph_finish(&g, pack, "the operands are refused");
    int s = 0;
    if (g.status == TT_OK && ((s = d->api.cudnnSetStream(d->handle, q)) != 0 ||
                              (s = d->api.cudnnBackendExecute(d->handle, plan, pack)) != 0))
        graph_fail(&g, "attention does not run", s);
    dnn_graph_free(&g);
    return g.status;
}
