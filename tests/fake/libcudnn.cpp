/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend API for tests: graphs of products, pointwise operations, reductions and reshapes, computed one operation
 * after the other in f32, each value rounded to its type. It is asked for engines twice the same way as the library: the
 * first that it proposes does not repeat its bits, the second does; each wants workspace, which it fills with NaN. */
#include "queue.h"
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>
#define API extern "C" __attribute__((visibility("default")))

namespace {
enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { POINTWISE = 0, ENGINE = 2, CONFIG = 3, HEUR = 4, PLAN = 5, OP_POINTWISE = 13, GRAPH = 15, PACK = 16, TENSOR = 17, OP_MATMUL = 19, REDUCTION = 21, OP_REDUCTION = 22, OP_RESHAPE = 31 };
enum { F32 = 0, I32 = 4, BF16 = 9, BOOL = 11 };

struct Graph;
struct Descriptor {
    int type = 0;
    bool finished = false;
    int engine = -1; /* of a configuration and of its engine: 0 is any order, 1 repeats */
    std::map<int, std::string> values;
    std::shared_ptr<Graph> graph; /* of a graph, and of what is made of it */
};
thread_local std::string last_error;

int fail(int status, const std::string &text)
{
    last_error = "fake cuDNN: " + text;
    return status;
}

size_t size_of_type(int type) /* cudnnBackendAttributeType_t */
{
    switch (type) {
    case 0: case 3: case 6: case 15: return 8;
    case 2: case 24: return 1;
    default: return 4;
    }
}

template <class T> T value(const Descriptor *d, int name, T otherwise = T())
{
    auto at = d->values.find(name);
    if (at == d->values.end() || at->second.size() < sizeof(T))
        return otherwise;
    T v;
    memcpy(&v, at->second.data(), sizeof v);
    return v;
}
Descriptor *child(const Descriptor *d, int name)
{
    return value<Descriptor *>(d, name);
}

/* ---- values ---- */
struct Tensor {
    int type;
    int64_t size[4], stride[4], id;
    bool inside, by_value;
    std::vector<float> v; /* in the order of size, while a graph runs */
    int64_t numel() const { return size[0] * size[1] * size[2] * size[3]; }
    int64_t offset(const int64_t *i) const { return i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2] + i[3] * stride[3]; }
    int64_t reach() const
    {
        const int64_t last[4] = {size[0] - 1, size[1] - 1, size[2] - 1, size[3] - 1};
        return offset(last) + 1;
    }
};
struct Op {
    int type, mode, axis;
    int x, b, t, y; /* indices of tensors, -1: none */
};
struct Graph {
    std::vector<Tensor> tensors;
    std::vector<Op> ops;
};

float bf16_round(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) <= 0x7f800000)
        u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
    memcpy(&f, &u, 4);
    return f;
}
size_t bytes_of(int type)
{
    return type == BF16 ? 2 : type == BOOL ? 1 : 4;
}

int64_t flat(const Tensor &t, const int64_t *i) /* of an index of a larger tensor; dims of size 1 stretch, heads are shared */
{
    int64_t at = 0;
    for (int d = 0; d < 4; d++)
        at = at * t.size[d] + (t.size[d] == 1 ? 0 : i[d]);
    return at;
}
template <class F> void each(const int64_t *size, F f)
{
    int64_t i[4];
    for (i[0] = 0; i[0] < size[0]; i[0]++)
        for (i[1] = 0; i[1] < size[1]; i[1]++)
            for (i[2] = 0; i[2] < size[2]; i[2]++)
                for (i[3] = 0; i[3] < size[3]; i[3]++)
                    f(i);
}

void matmul(const Tensor &a, const Tensor &b, Tensor &c)
{
    const int64_t K = a.size[3], group = a.size[1] / b.size[1];
    each(c.size, [&](const int64_t *i) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++) {
            const int64_t ia[4] = {i[0], i[1], i[2], k}, ib[4] = {i[0], i[1] / group, k, i[3]};
            sum += (double)a.v[flat(a, ia)] * b.v[flat(b, ib)];
        }
        c.v[flat(c, i)] = (float)sum;
    });
}

void pointwise(const Op &o, const Tensor &x, const Tensor *b, const Tensor *t, Tensor &y)
{
    each(y.size, [&](const int64_t *i) {
        const float p = x.v[flat(x, i)], q = b ? b->v[flat(*b, i)] : 0;
        float r = 0;
        switch (o.mode) {
        case 0: r = p + q; break;
        case 1: r = p * q; break;
        case 6: r = p / q; break;
        case 9: r = p - q; break;
        case 13: r = expf(p); break;
        case 15: r = logf(p); break;
        case 21: r = p; break;
        case 302: r = p > q; break;
        case 303: r = p >= q; break;
        case 501: r = (float)i[o.axis]; break;
        case 601: r = t->v[flat(*t, i)] != 0 ? p : q; break;
        }
        y.v[flat(y, i)] = r;
    });
}

void reduce(const Op &o, const Tensor &x, Tensor &y)
{
    const int64_t group = x.size[1] / y.size[1];
    std::fill(y.v.begin(), y.v.end(), o.mode == 3 ? -std::numeric_limits<float>::infinity() : 0.0f);
    each(x.size, [&](const int64_t *i) {
        const int64_t j[4] = {i[0], i[1] / group, i[2], i[3]};
        float &to = y.v[flat(y, j)];
        const float v = x.v[flat(x, i)];
        to = o.mode == 3 ? (v > to ? v : to) : to + v;
    });
}

/* y is x's memory in other dims. */
void reshape(const Tensor &x, Tensor &y)
{
    std::vector<float> memory((size_t)x.reach());
    each(x.size, [&](const int64_t *i) { memory[(size_t)x.offset(i)] = x.v[flat(x, i)]; });
    each(y.size, [&](const int64_t *i) { y.v[flat(y, i)] = memory[(size_t)y.offset(i)]; });
}

/* ---- a run ---- */
struct Run {
    std::shared_ptr<Graph> graph;
    std::map<int64_t, void *> at;
    std::map<int64_t, float> given; /* by value */
    void *workspace;
    size_t workspace_bytes;
};

void read(const Run &r, Tensor &t)
{
    t.v.assign((size_t)t.numel(), NAN);
    if (t.by_value) {
        t.v[0] = r.given.at(t.id);
        return;
    }
    if (t.inside)
        return;
    const char *p = (const char *)r.at.at(t.id);
    each(t.size, [&](const int64_t *i) {
        const char *e = p + t.offset(i) * (int64_t)bytes_of(t.type);
        uint32_t u = 0;
        memcpy(t.type == BF16 ? (char *)&u + 2 : (char *)&u, e, bytes_of(t.type));
        float f;
        memcpy(&f, &u, 4);
        t.v[flat(t, i)] = f;
    });
}

void write(const Run &r, Tensor &t)
{
    if (t.type == BF16)
        for (float &f : t.v)
            f = bf16_round(f);
    if (t.inside)
        return;
    char *p = (char *)r.at.at(t.id);
    each(t.size, [&](const int64_t *i) {
        memcpy(p + t.offset(i) * (int64_t)bytes_of(t.type), (char *)&t.v[flat(t, i)] + (t.type == BF16 ? 2 : 0), bytes_of(t.type));
    });
}

void run(void *arg)
{
    const Run &r = *(Run *)arg;
    Graph g = *r.graph;
    if (r.workspace)
        memset(r.workspace, 0xff, r.workspace_bytes);
    for (Tensor &t : g.tensors)
        read(r, t);
    for (const Op &o : g.ops) {
        Tensor *b = o.b >= 0 ? &g.tensors[o.b] : nullptr, *t = o.t >= 0 ? &g.tensors[o.t] : nullptr;
        Tensor &x = g.tensors[o.x], &y = g.tensors[o.y];
        if (o.type == OP_MATMUL)
            matmul(x, *b, y);
        else if (o.type == OP_POINTWISE)
            pointwise(o, x, b, t, y);
        else if (o.type == OP_REDUCTION)
            reduce(o, x, y);
        else
            reshape(x, y);
        write(r, y);
    }
}

/* ---- descriptors ---- */
int tensor_of(Graph &g, std::map<Descriptor *, int> &known, Descriptor *d)
{
    if (!d)
        return -1;
    auto at = known.find(d);
    if (at != known.end())
        return at->second;
    Tensor t = {};
    t.type = value<int>(d, 901);
    t.id = value<int64_t>(d, 906);
    t.inside = value<bool>(d, 907);
    t.by_value = value<bool>(d, 908);
    memcpy(t.size, d->values[902].data(), sizeof t.size);
    memcpy(t.stride, d->values[903].data(), sizeof t.stride);
    g.tensors.push_back(t);
    return known[d] = (int)g.tensors.size() - 1;
}

int finish_graph(Descriptor *d)
{
    auto g = std::make_shared<Graph>();
    std::map<Descriptor *, int> known;
    const std::string &ops = d->values[801];
    for (size_t i = 0; i < ops.size() / 8; i++) {
        Descriptor *o;
        memcpy(&o, ops.data() + 8 * i, 8);
        if (!o->finished)
            return fail(BAD_PARAM, "an operation is not finalised");
        static const std::map<int, std::vector<int>> names = {{OP_MATMUL, {1520, 1521, 0, 1522}}, {OP_POINTWISE, {751, 752, 758, 753}}, {OP_REDUCTION, {1610, 0, 0, 1611}}, {OP_RESHAPE, {2200, 0, 0, 2201}}};
        const std::vector<int> &n = names.at(o->type);
        Op op = {o->type, 0, 0, tensor_of(*g, known, child(o, n[0])), n[1] ? tensor_of(*g, known, child(o, n[1])) : -1, n[2] ? tensor_of(*g, known, child(o, n[2])) : -1, tensor_of(*g, known, child(o, n[3]))};
        if (op.x < 0 || op.y < 0)
            return fail(BAD_PARAM, "an operation without operands");
        if (o->type == OP_POINTWISE) {
            op.mode = value<int>(child(o, 750), 0);
            op.axis = (int)value<int64_t>(child(o, 750), 9);
        } else if (o->type == OP_REDUCTION) {
            op.mode = value<int>(child(o, 1612), 1600);
        }
        g->ops.push_back(op);
    }
    d->graph = g;
    return OK;
}

size_t workspace_of(const Descriptor *plan)
{
    return plan->engine == 1 ? 4096 : 1024;
}
} // namespace

API size_t cudnnGetVersion() { return 91900; }
API const char *cudnnGetErrorString(int s) { return s == OK ? "CUDNN_STATUS_SUCCESS" : s < 3000 ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED"; }
API void cudnnGetLastErrorString(char *text, size_t n) { snprintf(text, n, "%s", last_error.c_str()); }
struct Handle {
    void *stream = nullptr;
};
API int cudnnCreate(Handle **out)
{
    *out = new Handle;
    return fake_injected("cudnnCreate");
}
API int cudnnDestroy(Handle *h)
{
    delete h;
    return OK;
}
API int cudnnSetStream(Handle *h, void *stream)
{
    h->stream = stream;
    return OK;
}
API int cudnnBackendCreateDescriptor(int type, Descriptor **out)
{
    *out = new Descriptor;
    (*out)->type = type;
    return OK;
}
API int cudnnBackendDestroyDescriptor(Descriptor *d)
{
    delete d;
    return OK;
}
API int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t n, const void *v)
{
    if (d->finished)
        return fail(BAD_PARAM, "the descriptor is finalised");
    d->values[name] = std::string((const char *)v, size_of_type(type) * (size_t)n);
    return OK;
}
API int cudnnBackendFinalize(Descriptor *d)
{
    if (d->type == TENSOR && d->values[902].size() != 32)
        return fail(BAD_PARAM, "a tensor needs 4 dims");
    if (d->type == GRAPH)
        if (int s = finish_graph(d))
            return s;
    if (d->type == HEUR)
        d->graph = child(d, 201)->graph;
    if (d->type == PLAN) {
        Descriptor *c = child(d, 401);
        if (!c || c->engine < 0)
            return fail(BAD_PARAM, "a plan without an engine");
        d->engine = c->engine;
        d->graph = c->graph;
    }
    d->finished = true;
    return OK;
}
API int cudnnBackendGetAttribute(Descriptor *d, int name, int, int64_t room, int64_t *n, void *out)
{
    if (d->type == HEUR && name == 202) {
        *n = room < 2 ? room : 2;
        for (int i = 0; i < *n; i++) {
            Descriptor *c = ((Descriptor **)out)[i];
            c->engine = i;
            c->graph = d->graph;
        }
    } else if (d->type == CONFIG && name == 300) {
        (*(Descriptor **)out)->engine = d->engine;
        *n = 1;
    } else if (d->type == ENGINE && name == 1303) {
        *n = d->engine == 0;
        if (*n)
            *(int *)out = 4;
    } else if (d->type == PLAN && name == 402) {
        *(int64_t *)out = (int64_t)workspace_of(d);
        *n = 1;
    } else {
        return fail(NOT_SUPPORTED, "this attribute");
    }
    return OK;
}
static int64_t runs;
API int64_t fake_cudnn_runs() { return runs; }
API int cudnnBackendExecute(Handle *h, Descriptor *plan, Descriptor *pack)
{
    auto *r = new Run{plan->graph, {}, {}, value<void *>(pack, 1003), workspace_of(plan)};
    const std::string &ids = pack->values[1000], &at = pack->values[1001];
    std::map<int64_t, void *> given;
    for (size_t i = 0; i < ids.size() / 8; i++) {
        int64_t id;
        void *p;
        memcpy(&id, ids.data() + 8 * i, 8);
        memcpy(&p, at.data() + 8 * i, 8);
        given[id] = p;
    }
    std::string wrong;
    for (const Tensor &t : plan->graph->tensors) {
        if (t.inside)
            continue;
        void *p = given.count(t.id) ? given[t.id] : nullptr;
        const std::string who = "operand " + std::to_string(t.id);
        if (!p)
            wrong = who + " is not given";
        else if (t.by_value)
            memcpy(&r->given[t.id], p, 4);
        else if ((uintptr_t)p % 16 || fake_memory_device(p, (size_t)t.reach() * bytes_of(t.type)) < 0)
            wrong = who + " is not aligned to 16 bytes of device memory";
        r->at[t.id] = p;
    }
    if (fake_memory_device(r->workspace, r->workspace_bytes) < 0)
        wrong = "the workspace is not in device memory";
    if (!wrong.empty()) {
        delete r;
        return fail(BAD_PARAM, wrong);
    }
    const fake_item item = {"cudnnBackendExecute", r, nullptr, nullptr, run, [](void *p) { delete (Run *)p; }};
    runs++;
    return fake_queue_add(h->stream, &item);
}
