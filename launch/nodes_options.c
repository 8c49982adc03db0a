/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/nodes_options.h"
#include "base/number.h"
#include "launch/slurm.h"
#include <stdlib.h>
#include <string.h>

#define PORT 29500     /* torchrun's */
#define TIMEOUT_S 60   /* for a node that cannot read the job */
#define LAST_CALL_S 30 /* torchrun's last_call_timeout */
#define MOST_NODES 100000

static tt_status nodes_number(const char *name, const char *text, int64_t fallback, int64_t least,
                              int64_t most, int *out, tt_error *err)
{
    int64_t n = fallback;
    if (text && !tt_read_whole(text, strlen(text), least, most, &n))
        return TT_FAIL(err, TT_EINVAL, "--%s: expected %lld to %lld, got \"%s\"", name,
                       (long long)least, (long long)most, text);
    *out = (int)n;
    return TT_OK;
}

/* --nnodes N or MIN:MAX */
static tt_status take_count(const char *text, tt_nodes_opts *out, tt_error *err)
{
    out->n = 1;
    if (text && !tt_read_range(text, MOST_NODES, &out->n, &out->least))
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes: expected 1 to %d, or a range like 2:4, got \"%s\"", MOST_NODES,
                       text);
    return TT_OK;
}

/* HOST:PORT, [ADDRESS]:PORT or HOST. */
static tt_status take_endpoint(tt_arena *a, const char *text, tt_nodes_opts *out, tt_error *err)
{
    const char *colon = strrchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    const bool braces = n > 2 && text[0] == '[' && text[n - 1] == ']';
    int64_t port = out->port;
    if (!n || (colon && !tt_read_whole(colon + 1, strlen(colon + 1), 1, 65534, &port)))
        return TT_FAIL(err, TT_EINVAL, "--rdzv-endpoint: expected HOST:PORT, got \"%s\"", text);
    out->address = tt_arena_strn(a, text + braces, n - 2 * (size_t)braces);
    out->port = (int)port;
    return TT_OK;
}

/* srun has started a ttrun per node, which starts the ranks of that node. */
static bool is_slurm_node(const tt_start_opts *o, const tt_launch *l)
{
    const bool asked = o->nproc > 1 || o->nnodes || o->max_restarts;
    return l->world > 1 && l->local_world == 1 && !strcmp(l->launcher, "srun") && asked;
}

/* What the options leave open. */
static tt_status take_slurm(const tt_start_opts *o, const tt_launch *l, tt_nodes_opts *out,
                            tt_error *err)
{
    tt_slurm s;
    const bool placed = out->address != NULL;
    if (!o->nnodes)
        out->n = l->world;
    if (!o->node_rank)
        out->me = l->rank;
    if (out->n != l->world || out->me != l->rank)
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d --node-rank %d: srun has started %d nodes, and this is number "
                       "%d; leave both options out",
                       out->n, out->me, l->world, l->rank);
    if (placed && (o->master_port || o->rdzv_endpoint))
        return TT_OK;
    TT_TRY(tt_slurm_read(getenv, &s, err));
    if (!placed)
        out->address = tt_arena_str(o->arena, s.host);
    if (!o->master_port && !o->rdzv_endpoint)
        out->port = s.port;
    if (!*out->id)
        out->id = tt_arena_str(o->arena, s.id);
    return TT_OK;
}

/* srun has started each rank: where they meet if no variable says so. */
static tt_status meet_by_slurm(const tt_launch *l, tt_error *err)
{
    char port[16];
    tt_slurm s;
    tt_error ignored = {0};
    if (!l->launcher || strcmp(l->launcher, "srun") || l->world == l->local_world ||
        getenv("MASTER_ADDR"))
        return TT_OK;
    if (tt_slurm_read(getenv, &s, &ignored) != TT_OK)
        return getenv("SLURM_STEP_NODELIST") ? tt_slurm_read(getenv, &s, err) : TT_OK;
    snprintf(port, sizeof port, "%d", s.port);
    setenv("MASTER_ADDR", s.host, 1);
    setenv("MASTER_PORT", port, 0);
    setenv("TTRUN_START", s.id, 0);
    return TT_OK;
}

static tt_status check_nodes(const tt_start_opts *o, const tt_launch *l, const tt_nodes_opts *n,
                             tt_error *err)
{
    if (l->world > 1 && !is_slurm_node(o, l))
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes: %s has started this rank; start one ttrun on each machine",
                       l->launcher);
    if (o->nproc_least)
        return TT_FAIL(err, TT_EINVAL,
                       "--nproc %d:%d: with --nnodes give one number; --nnodes MIN:MAX lets the "
                       "number of nodes change",
                       o->nproc_least, o->nproc);
    if (n->least && !o->max_restarts)
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d:%d: a range needs --max-restarts; without it give one number",
                       n->least, n->n);
    if (n->me >= n->n)
        return TT_FAIL(err, TT_EINVAL, "--node-rank: expected 0 to %d, got %d (--nnodes %d)",
                       n->n - 1, n->me, n->n);
    if (!n->address || !*n->address)
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d: where is node 0? give --master_addr HOST, or set MASTER_ADDR",
                       n->n);
    if ((int64_t)n->n * n->nproc > 1 << 20)
        return TT_FAIL(err, TT_EINVAL, "--nnodes %d --nproc %d: too many ranks", n->n, n->nproc);
    if (strlen(n->id) > 60)
        return TT_FAIL(err, TT_EINVAL, "--rdzv-id: expected at most 60 bytes");
    return TT_OK;
}

tt_status tt_nodes_take(tt_start_plan *p, tt_error *err)
{
    const tt_start_opts *o = p->o;
    const tt_launch *l = &p->launch;
    tt_nodes_opts *n = &p->nodes;
    int seconds;
    *n = (tt_nodes_opts){.address = o->master_addr ? o->master_addr : getenv("MASTER_ADDR"),
                         .id = o->rdzv_id ? o->rdzv_id : "",
                         .nproc = TT_MAXV(o->nproc, 1)};
    TT_TRY(take_count(o->nnodes, n, err));
    TT_TRY(nodes_number("node-rank", o->node_rank, 0, 0, 99999, &n->me, err));
    TT_TRY(nodes_number("master-port", o->master_port, PORT, 1, 65534, &n->port, err));
    if (o->rdzv_endpoint)
        TT_TRY(take_endpoint(o->arena, o->rdzv_endpoint, n, err));
    if (is_slurm_node(o, l))
        TT_TRY(take_slurm(o, l, n, err));
    if (n->n < 2 && n->me)
        return TT_FAIL(err, TT_EINVAL, "--node-rank %d: needs --nnodes, the number of machines",
                       n->me);
    if (n->n < 2)
        return meet_by_slurm(l, err);
    TT_TRY(check_nodes(o, l, n, err));
    TT_TRY(nodes_number("rdzv-timeout", o->rdzv_timeout, TIMEOUT_S, 1, 1000000, &seconds, err));
    n->timeout_s = seconds;
    TT_TRY(
        nodes_number("rdzv-last-call", o->rdzv_last_call, LAST_CALL_S, 0, 1000000, &seconds, err));
    n->last_call_s = seconds;
    p->nproc = n->n * n->nproc;
    p->least = n->least; /* of a node as many ranks take part as fit the mesh */
    return TT_OK;
}

/* Of the job with what the command line changes in it, but the run's folder, whose name may differ. */
static tt_status make_digest(const tt_start_plan *p, char out[33], tt_error *err)
{
    const char *job = tt_job_text(p->job, "");
    const tt_json *root;
    tt_str text = {0};
    TT_TRY(tt_json_parse(p->o->arena, "job", job, strlen(job), &root, err));
    for (size_t i = 0; i < root->n; i++) {
        if (!strcmp(root->keys[i], "dump_folder"))
            continue;
        tt_str_printf(&text, " %s=", root->keys[i]);
        tt_json_write(root->items[i], &text);
    }
    tt_hash128_hex(tt_str_get(&text), text.n, out);
    tt_str_free(&text);
    return TT_OK;
}

tt_status tt_nodes_take_job(tt_start_plan *p, tt_error *err)
{
    tt_core_config core;
    TT_TRY(tt_start_load(p, err));
    TT_TRY(make_digest(p, p->nodes.digest, err));
    if (p->o->rdzv_timeout)
        return TT_OK;
    TT_TRY(tt_core_config_parse(p->job, &core, err));
    p->nodes.timeout_s = (double)core.comm.init_timeout_seconds;
    return TT_OK;
}
