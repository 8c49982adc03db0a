/* SPDX-License-Identifier: Apache-2.0 */
/* A fake libnccl.so.2 for ranks that are threads of one process, on the fake driver. The calls of a communicator between
 * ncclGroupStart and ncclGroupEnd are one item of the stream; it is ready when the calls that it is matched with are at the
 * heads of their streams. Members whose calls differ get an error, where NCCL would hang or compute wrong numbers. Half of
 * all launches take time: they answer ncclInProgress, and are on the stream only when ncclCommGetAsyncError has been asked
 * often enough; the first ones of a communicator wait for those of the other members. Sums are in descending order of
 * ranks, unlike everybody else's.
 *
 *   FAKE_CUDA_FAIL="ncclAllGather:2=3"   the second call returns 3; of ncclCommGetAsyncError: the state becomes 3 */
#include "queue.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include <unistd.h>

#define API extern "C" __attribute__((visibility("default")))
extern "C" int cuCtxGetDevice(int *);

namespace {

enum { OK = 0, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum kind { ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND, RECV };
const char *const kind_names[] = {"ncclAllGather", "ncclAllReduce", "ncclReduceScatter", "ncclSend", "ncclRecv"};

struct call {
    kind k;
    const char *send;
    char *recv;
    size_t count;
    int type, op, peer;
    uint64_t number; /* among the calls that it is matched with */
    bool done;
};
struct comm;
struct launch { /* one item */
    comm *of;
    void *stream;
    std::vector<call> calls;
    bool arrived;
    int left; /* polls until it is put on the stream; 0: it is there */
};
struct clique {
    std::vector<comm *> members;
    int joined = 0;
    std::string broken; /* why its calls cannot be run */
};
struct comm {
    std::shared_ptr<clique> c;
    int rank, n, device, state = OK, polls = 3;
    bool blocking, joined = false, aborted = false, ended = false, called = false;
    uint64_t n_collectives = 0, n_launches = 0;
    std::vector<uint64_t> sent, received;
    std::vector<launch *> at_head; /* that are, and were not run by all yet */
    launch *waiting = nullptr;     /* not on its stream yet */
    std::string error;
    std::map<void *, void *> registered; /* handle → address */
};

std::map<std::string, std::shared_ptr<clique>> cliques;
thread_local std::vector<std::pair<comm *, launch *>> group;
thread_local int depth;
std::string last_error;

struct locked {
    locked() { fake_queue_lock(); }
    ~locked() { fake_queue_unlock(); }
};

size_t size_of(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < 12 ? sizes[type] : 0;
}

int refuse(comm *c, int result, const std::string &why)
{
    fprintf(stderr, "fake NCCL: rank %d: %s\n", c ? c->rank : -1, why.c_str());
    last_error = why;
    if (c)
        c->error = why;
    return result;
}

void break_clique(clique &c, const std::string &why)
{
    if (!c.broken.empty())
        return;
    c.broken = why;
    fprintf(stderr, "fake NCCL: %s\n", why.c_str());
    for (comm *m : c.members)
        if (m) {
            m->state = INTERNAL;
            m->error = why;
        }
}

/* ---- items ---- */

bool collective(const call &x)
{
    return x.k != SEND && x.k != RECV;
}

/* What a call is matched with in member m; NULL: its launch is not at the head of its stream. */
call *find(const comm *m, const call &x, int from)
{
    for (launch *l : m->at_head)
        for (call &y : l->calls)
            if (collective(x) ? collective(y) && y.number == x.number
                              : y.k == (x.k == SEND ? RECV : SEND) && y.peer == from && y.number == x.number)
                return &y;
    return nullptr;
}

bool gone(const launch *l)
{
    return l->of->aborted || !l->of->c->broken.empty();
}

void at_head(void *arg)
{
    launch *l = static_cast<launch *>(arg);
    comm *c = l->of;
    for (call &x : l->calls) {
        x.done = false;
        x.number = x.k == SEND   ? c->sent[static_cast<size_t>(x.peer)]++
                   : x.k == RECV ? c->received[static_cast<size_t>(x.peer)]++
                                 : c->n_collectives++;
    }
    l->arrived = true;
    c->at_head.push_back(l);
}

bool ready(void *arg)
{
    const launch *l = static_cast<launch *>(arg);
    if (gone(l))
        return true;
    for (const call &x : l->calls)
        for (int i = 0; !x.done && i < l->of->n; i++) {
            const comm *m = l->of->c->members[static_cast<size_t>(i)];
            if ((collective(x) || i == x.peer) && (!m || !find(m, x, l->of->rank)))
                return false;
        }
    return true;
}

float from_bf16(uint16_t b)
{
    const uint32_t u = static_cast<uint32_t>(b) << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

template <typename T> void fold(void *out, const void *in, size_t n, int op)
{
    T *a = static_cast<T *>(out);
    const T *b = static_cast<const T *>(in);
    for (size_t i = 0; i < n; i++)
        a[i] = op == 2 ? (a[i] > b[i] ? a[i] : b[i]) : a[i] + b[i];
}
void fold_any(void *out, const void *in, size_t n, int type, int op)
{
    if (type == 2)
        fold<int32_t>(out, in, n, op);
    else if (type == 4)
        fold<int64_t>(out, in, n, op);
    else if (type == 7)
        fold<float>(out, in, n, op);
    else if (type == 8)
        fold<double>(out, in, n, op);
    else if (type == 9)
        for (size_t i = 0; i < n; i++) {
            uint16_t *a = static_cast<uint16_t *>(out);
            float x = from_bf16(a[i]), y = from_bf16(static_cast<const uint16_t *>(in)[i]);
            a[i] = to_bf16(op == 2 ? (x > y ? x : y) : x + y);
        }
}

void run_collective(comm *of, const call &x)
{
    const size_t n = static_cast<size_t>(of->n), bytes = x.count * size_of(x.type);
    std::vector<call *> all;
    for (comm *m : of->c->members)
        all.push_back(find(m, x, 0));
    for (size_t i = 0; i < n; i++)
        if (all[i]->k != x.k || all[i]->count != x.count || all[i]->type != x.type || all[i]->op != x.op) {
            break_clique(*of->c, std::string("collective ") + std::to_string(x.number + 1) + ": rank " +
                                     std::to_string(of->rank) + " calls " + kind_names[x.k] + " of " +
                                     std::to_string(x.count) + ", rank " + std::to_string(i) + " " +
                                     kind_names[all[i]->k] + " of " + std::to_string(all[i]->count));
            return;
        }
    const size_t whole = x.k == REDUCE_SCATTER ? n * bytes : bytes;
    std::vector<char> sum(x.k == ALL_GATHER ? n * bytes : whole);
    if (x.k == ALL_GATHER) {
        for (size_t i = 0; i < n; i++)
            memcpy(sum.data() + i * bytes, all[i]->send, bytes);
    } else {
        memcpy(sum.data(), all[n - 1]->send, whole);
        for (size_t i = n - 1; i-- > 0;)
            fold_any(sum.data(), all[i]->send, whole / size_of(x.type), x.type, x.op);
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(all[i]->recv, sum.data() + (x.k == REDUCE_SCATTER ? i * bytes : 0),
               x.k == ALL_GATHER ? n * bytes : bytes);
        all[i]->done = true;
    }
}

void run_message(comm *of, call &x)
{
    call *y = find(of->c->members[static_cast<size_t>(x.peer)], x, of->rank);
    if (y->count != x.count || y->type != x.type) {
        break_clique(*of->c, "rank " + std::to_string(of->rank) + " and rank " + std::to_string(x.peer) +
                                 " exchange " + std::to_string(x.count) + " and " + std::to_string(y->count) +
                                 " elements");
        return;
    }
    const call &from = x.k == SEND ? x : *y, &to = x.k == SEND ? *y : x;
    memcpy(to.recv, from.send, x.count * size_of(x.type));
    x.done = y->done = true;
}

void run(void *arg)
{
    launch *l = static_cast<launch *>(arg);
    for (call &x : l->calls) {
        if (gone(l))
            break;
        if (!x.done && collective(x))
            run_collective(l->of, x);
        else if (!x.done)
            run_message(l->of, x);
    }
    std::vector<launch *> &heads = l->of->at_head;
    for (size_t i = 0; i < heads.size(); i++)
        if (heads[i] == l)
            heads.erase(heads.begin() + static_cast<long>(i--));
    l->arrived = false;
}

void release(void *arg)
{
    delete static_cast<launch *>(arg);
}

/* ---- launches ---- */

int put(launch *l)
{
    const fake_item item = {"NCCL", l, at_head, ready, run, release};
    l->of->waiting = nullptr;
    return fake_queue_add(l->stream, &item) ? INTERNAL : OK;
}

/* May this launch be put on its stream? The first of a communicator waits for the others. */
bool may_go(comm *c)
{
    bool all = true;
    c->called = true;
    for (const comm *m : c->c->members)
        all = all && m && m->called;
    return c->aborted || (all && (c->waiting->left <= 0 || --c->waiting->left == 0));
}

int start(comm *c, launch *l)
{
    if (c->waiting)
        return refuse(c, INVALID_USAGE, "a call before the one before it has left ncclInProgress");
    fake_queue_lock();
    const bool first = !c->n_launches++;
    l->left = c->n_launches % 2 ? 3 : 0;
    c->waiting = l;
    const bool now = !c->blocking ? !first && !l->left : false;
    c->called = true;
    fake_queue_unlock();
    if (now)
        return put(l);
    return c->state = IN_PROGRESS;
}

int add(comm *c, const char *name, call x, void *stream, size_t send_bytes, size_t recv_bytes)
{
    const int injected = fake_injected(name);
    if (injected)
        return refuse(c, injected, std::string(name) + " fails on request");
    if (!c || !c->joined || c->ended)
        return refuse(c, INVALID_ARGUMENT, std::string(name) + " on a communicator that is not ready");
    if (!size_of(x.type) || x.peer >= c->n || x.peer < -1 || x.peer == c->rank)
        return refuse(c, INVALID_ARGUMENT, std::string(name) + ": its type, or its peer");
    if (fake_queue_device(stream) != c->device)
        return refuse(c, INVALID_ARGUMENT, std::string(name) + ": the stream is of another device");
    if ((send_bytes && fake_memory_device(x.send, send_bytes) != c->device) ||
        (recv_bytes && fake_memory_device(x.recv, recv_bytes) != c->device))
        return refuse(c, INVALID_ARGUMENT, std::string(name) + ": a buffer is not in its device's memory");
    launch *l = nullptr;
    for (auto &p : group)
        if (p.first == c)
            l = p.second;
    if (!l) {
        l = new launch{c, stream, {}, false, 0};
        group.push_back({c, l});
    }
    l->calls.push_back(x);
    if (depth)
        return OK;
    group.clear();
    return start(c, l);
}

} // namespace

/* ---- the API ---- */

API int ncclGetVersion(int *version)
{
    const char *v = getenv("FAKE_NCCL_VERSION");
    *version = v ? atoi(v) : 22809;
    return OK;
}
API const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {"no error",         "unhandled cuda error", "unhandled system error",
                                        "internal error",   "invalid argument",     "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}
API const char *ncclGetLastError(comm *c)
{
    static thread_local std::string text;
    locked here;
    text = c ? c->error : last_error;
    return text.c_str();
}

struct unique_id {
    char internal[128];
};
API int ncclGetUniqueId(unique_id *id)
{
    static int n;
    locked here;
    const int injected = fake_injected("ncclGetUniqueId");
    if (injected)
        return injected;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%d %d", static_cast<int>(getpid()), ++n);
    return OK;
}

struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};
API int ncclCommInitRankConfig(comm **out, int n, unique_id id, int rank, const config *options)
{
    locked here;
    const int injected = fake_injected("ncclCommInitRankConfig");
    if (injected)
        return refuse(nullptr, injected, "ncclCommInitRankConfig fails on request");
    if (options->size < sizeof *options || options->magic != 0xcafebeef || options->version < 21800)
        return refuse(nullptr, INVALID_ARGUMENT, "the ncclConfig_t was not initialised");
    if (atoi(id.internal) != static_cast<int>(getpid()))
        return refuse(nullptr, INVALID_USAGE, "the ranks of the fake are threads of one process");
    std::shared_ptr<clique> &q = cliques[id.internal];
    if (!q) {
        q = std::make_shared<clique>();
        q->members.resize(static_cast<size_t>(n));
    }
    if (q->members.size() != static_cast<size_t>(n) || rank < 0 || rank >= n || q->members[static_cast<size_t>(rank)])
        return refuse(nullptr, INVALID_ARGUMENT, "ncclCommInitRankConfig: its number of ranks, or its rank");
    comm *c = new comm;
    c->c = q;
    c->n = n;
    c->rank = rank;
    c->blocking = false;
    c->sent.resize(static_cast<size_t>(n));
    c->received.resize(static_cast<size_t>(n));
    if (cuCtxGetDevice(&c->device) != 0 || options->blocking != 0) {
        delete c;
        return refuse(nullptr, INVALID_USAGE, "there is no current device, or blocking is not 0");
    }
    q->members[static_cast<size_t>(rank)] = c;
    q->joined++;
    *out = c;
    return c->state = IN_PROGRESS;
}

API int ncclCommGetAsyncError(comm *c, int *state)
{
    launch *go = nullptr;
    fake_queue_lock();
    const int injected = fake_injected("ncclCommGetAsyncError");
    if (injected == IN_PROGRESS) { /* for as long as it is asked for: nothing has failed */
        fake_queue_unlock();
        *state = IN_PROGRESS;
        return OK;
    }
    if (injected) {
        c->state = injected;
        c->error = "fails on request";
    }
    if (c->state == IN_PROGRESS && !c->joined && c->c->joined == c->n && --c->polls <= 0) {
        c->joined = true;
        c->state = OK;
        for (const comm *m : c->c->members)
            for (const comm *o : c->c->members)
                if (m && o && m->rank < o->rank && m->device == o->device) {
                    c->state = INVALID_USAGE;
                    c->error = "Duplicate GPU detected : rank " + std::to_string(m->rank) + " and rank " +
                               std::to_string(o->rank) + " both on CUDA device " + std::to_string(m->device);
                }
    }
    if (c->waiting && may_go(c))
        go = c->waiting;
    fake_queue_unlock();
    if (go) {
        const int r = put(go);
        if (c->state == IN_PROGRESS)
            c->state = r;
    }
    *state = c->state;
    return OK;
}

/* Each address once per communicator, until it is deregistered. FAKE_NCCL_TRACE=1 prints a line for each call. */
void trace_registered(const comm *c, const char *what, const void *base)
{
    if (getenv("FAKE_NCCL_TRACE"))
        fprintf(stderr, "fake NCCL: %s %p with %p\n", what, base, static_cast<const void *>(c));
}
API int ncclCommRegister(comm *c, void *base, size_t bytes, void **handle)
{
    locked here;
    const int injected = fake_injected("ncclCommRegister");
    if (injected)
        return refuse(c, injected, "ncclCommRegister fails on request");
    if (!c->joined || c->ended || !bytes || fake_memory_device(base, bytes) != c->device)
        return refuse(c, INVALID_ARGUMENT, "ncclCommRegister: its communicator, or its memory");
    for (const auto &r : c->registered)
        if (r.second == base)
            return refuse(c, INVALID_USAGE, "ncclCommRegister: this memory is registered already");
    *handle = new char;
    c->registered[*handle] = base;
    trace_registered(c, "registers", base);
    return OK;
}
API int ncclCommDeregister(comm *c, void *handle)
{
    locked here;
    const auto found = c->registered.find(handle);
    if (c->ended || found == c->registered.end() || fake_memory_device(found->second, 1) != c->device)
        return refuse(c, INVALID_USAGE, "ncclCommDeregister: no such handle, or its memory was freed before");
    trace_registered(c, "deregisters", found->second);
    delete static_cast<char *>(handle);
    c->registered.erase(found);
    return OK;
}

API int ncclCommAbort(comm *c)
{
    fake_queue_lock();
    c->aborted = c->ended = true;
    fake_queue_unlock();
    fake_queue_wake();
    return OK; /* items may still name it */
}
API int ncclCommFinalize(comm *c)
{
    locked here;
    if (!c->registered.empty())
        return refuse(c, INVALID_USAGE, "ncclCommFinalize while memory is registered");
    c->ended = true;
    return OK;
}
API int ncclCommDestroy(comm *c)
{
    locked here;
    return c->ended ? OK : refuse(c, INVALID_USAGE, "ncclCommDestroy before ncclCommFinalize");
}

API int ncclGroupStart()
{
    const int injected = fake_injected("ncclGroupStart");
    depth++;
    return injected;
}
API int ncclGroupEnd()
{
    int result = fake_injected("ncclGroupEnd");
    if (--depth > 0)
        return result;
    for (auto &p : group) {
        const int r = result && result != IN_PROGRESS ? result : start(p.first, p.second);
        result = result ? result : r;
    }
    group.clear();
    return result;
}

API int ncclSend(const void *send, size_t n, int type, int peer, comm *c, void *stream)
{
    const call x = {SEND, static_cast<const char *>(send), nullptr, n, type, 0, peer, 0, false};
    return add(c, "ncclSend", x, stream, n * size_of(type), 0);
}
API int ncclRecv(void *recv, size_t n, int type, int peer, comm *c, void *stream)
{
    const call x = {RECV, nullptr, static_cast<char *>(recv), n, type, 0, peer, 0, false};
    return add(c, "ncclRecv", x, stream, 0, n * size_of(type));
}
API int ncclAllGather(const void *send, void *recv, size_t n, int type, comm *c, void *stream)
{
    const call x = {ALL_GATHER, static_cast<const char *>(send), static_cast<char *>(recv), n, type, 0, -1, 0, false};
    const size_t bytes = n * size_of(type);
    return add(c, "ncclAllGather", x, stream, bytes, c ? bytes * static_cast<size_t>(c->n) : 0);
}
API int ncclAllReduce(const void *send, void *recv, size_t n, int type, int op, comm *c, void *stream)
{
    const call x = {ALL_REDUCE, static_cast<const char *>(send), static_cast<char *>(recv), n, type, op, -1, 0, false};
    return add(c, "ncclAllReduce", x, stream, n * size_of(type), n * size_of(type));
}
API int ncclReduceScatter(const void *send, void *recv, size_t n, int type, int op, comm *c, void *stream)
{
    const call x = {REDUCE_SCATTER, static_cast<const char *>(send), static_cast<char *>(recv), n, type, op, -1, 0, false};
    const size_t bytes = n * size_of(type);
    return add(c, "ncclReduceScatter", x, stream, c ? bytes * static_cast<size_t>(c->n) : 0, bytes);
}
