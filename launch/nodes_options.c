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

static tt_status nodes_number(const tt_cli *cli, const char *name, int64_t fallback, int64_t least,
                              int64_t most, int *out, tt_error *err)
{
    const char *text = tt_cli_option(cli, name);
    int64_t n = fallback;
    if (text && !tt_read_whole(text, strlen(text), least, most, &n))
        return TT_FAIL(err, TT_EINVAL, "--%s: expected %lld to %lld, got \"%s\"", name,
                       (long long)least, (long long)most, text);
    *out = (int)n;
    return TT_OK;
}

/* --nnodes N or MIN:MAX */
static tt_status take_count(const tt_cli *cli, tt_nodes_opts *out, tt_error *err)
{
    const char *text = tt_cli_option(cli, "nnodes");
    out->n = 1;
    if (text && !tt_cli_read_range(text, MOST_NODES, &out->n, &out->least))
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes: expected 1 to %d, or a range like 2:4, got \"%s\"", MOST_NODES,
                       text);
    return TT_OK;
}

/* HOST:PORT, [ADDRESS]:PORT or HOST. */
static tt_status take_endpoint(tt_cli *cli, const char *text, tt_nodes_opts *out, tt_error *err)
{
    const char *colon = strrchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    const bool braces = n > 2 && text[0] == '[' && text[n - 1] == ']';
    int64_t port = out->port;
    if (!n || (colon && !tt_read_whole(colon + 1, strlen(colon + 1), 1, 65534, &port)))
        return TT_FAIL(err, TT_EINVAL, "--rdzv-endpoint: expected HOST:PORT, got \"%s\"", text);
    out->address = tt_arena_strn(cli->arena, text + braces, n - 2 * (size_t)braces);
    out->port = (int)port;
    return TT_OK;
}

/* The job and what the command line changes in it, without the run's folder, whose name may differ. */
static tt_status make_digest(tt_cli *cli, char out[33], tt_error *err)
{
    tt_job *job;
    tt_str text = {0};
    TT_TRY(tt_job_load(cli->arena, cli->job, NULL, 0, &job, err));
    tt_job_print(job, false, &text);
    for (size_t i = 0; i < cli->n_overrides; i++)
        if (strcmp(cli->overrides[i].key, "dump_folder"))
            tt_str_printf(&text, " %s=%s", cli->overrides[i].key, cli->overrides[i].value);
    tt_hash128_hex(tt_str_get(&text), text.n, out);
    tt_str_free(&text);
    return TT_OK;
}

/* How long nodes wait where no option says it: the job's comm.init_timeout_seconds. */
static tt_status take_timeout(tt_cli *cli, tt_nodes_opts *out, tt_error *err)
{
    tt_job *job;
    tt_core_config core;
    if (tt_cli_option(cli, "rdzv-timeout"))
        return TT_OK;
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_core_config_parse(job, &core, err));
    out->timeout_s = (double)core.comm.init_timeout_seconds;
    return TT_OK;
}

/* srun has started a ttrun per node, which starts the ranks of that node. */
static bool is_slurm_node(const tt_cli *cli, const tt_launch *l)
{
    const bool asked =
        cli->nproc > 1 || tt_cli_option(cli, "nnodes") || tt_cli_option(cli, "max-restarts");
    return l->world > 1 && l->local_world == 1 && !strcmp(l->launcher, "srun") && asked;
}

/* What the options leave open. */
static tt_status take_slurm(tt_cli *cli, const tt_launch *l, tt_nodes_opts *out, tt_error *err)
{
    tt_slurm s;
    const bool placed = out->address != NULL;
    if (!tt_cli_option(cli, "nnodes"))
        out->n = l->world;
    if (!tt_cli_option(cli, "node-rank"))
        out->me = l->rank;
    if (out->n != l->world || out->me != l->rank)
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d --node-rank %d: srun has started %d nodes, and this is number "
                       "%d; leave both options out",
                       out->n, out->me, l->world, l->rank);
    if (placed && (tt_cli_option(cli, "master-port") || tt_cli_option(cli, "rdzv-endpoint")))
        return TT_OK;
    TT_TRY(tt_slurm_read(getenv, &s, err));
    if (!placed)
        out->address = tt_arena_str(cli->arena, s.host);
    if (!tt_cli_option(cli, "master-port") && !tt_cli_option(cli, "rdzv-endpoint"))
        out->port = s.port;
    if (!*out->id)
        out->id = tt_arena_str(cli->arena, s.id);
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

static tt_status check_nodes(const tt_cli *cli, const tt_launch *l, const tt_nodes_opts *o,
                             tt_error *err)
{
    if (l->world > 1 && !is_slurm_node(cli, l))
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes: %s has started this rank; start one ttrun on each machine",
                       l->launcher);
    if (cli->nproc_least)
        return TT_FAIL(err, TT_EINVAL,
                       "--nproc %d:%d: with --nnodes give one number; --nnodes MIN:MAX lets the "
                       "number of nodes change",
                       cli->nproc_least, cli->nproc);
    if (o->least && !tt_cli_option(cli, "max-restarts"))
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d:%d: a range needs --max-restarts; without it give one number",
                       o->least, o->n);
    if (o->me >= o->n)
        return TT_FAIL(err, TT_EINVAL, "--node-rank: expected 0 to %d, got %d (--nnodes %d)",
                       o->n - 1, o->me, o->n);
    if (!o->address || !*o->address)
        return TT_FAIL(err, TT_EINVAL,
                       "--nnodes %d: where is node 0? give --master_addr HOST, or set MASTER_ADDR",
                       o->n);
    if ((int64_t)o->n * o->nproc > 1 << 20)
        return TT_FAIL(err, TT_EINVAL, "--nnodes %d --nproc %d: too many ranks", o->n, o->nproc);
    if (strlen(o->id) > 60)
        return TT_FAIL(err, TT_EINVAL, "--rdzv-id: expected at most 60 bytes");
    return TT_OK;
}

tt_status tt_nodes_take(tt_cli *cli, const tt_launch *l, tt_nodes_opts *out, tt_error *err)
{
    const char *endpoint = tt_cli_option(cli, "rdzv-endpoint"), *id = tt_cli_option(cli, "rdzv-id"),
               *address = tt_cli_option(cli, "master-addr");
    int seconds;
    *out = (tt_nodes_opts){.address = address ? address : getenv("MASTER_ADDR"),
                           .id = id ? id : "",
                           .nproc = TT_MAXV(cli->nproc, 1)};
    TT_TRY(take_count(cli, out, err));
    TT_TRY(nodes_number(cli, "node-rank", 0, 0, 99999, &out->me, err));
    TT_TRY(nodes_number(cli, "master-port", PORT, 1, 65534, &out->port, err));
    if (endpoint)
        TT_TRY(take_endpoint(cli, endpoint, out, err));
    if (is_slurm_node(cli, l))
        TT_TRY(take_slurm(cli, l, out, err));
    if (out->n < 2 && out->me)
        return TT_FAIL(err, TT_EINVAL, "--node-rank %d: needs --nnodes, the number of machines",
                       out->me);
    if (out->n < 2)
        return meet_by_slurm(l, err);
    TT_TRY(check_nodes(cli, l, out, err));
    TT_TRY(nodes_number(cli, "rdzv-timeout", TIMEOUT_S, 1, 1000000, &seconds, err));
    out->timeout_s = seconds;
    TT_TRY(nodes_number(cli, "rdzv-last-call", LAST_CALL_S, 0, 1000000, &seconds, err));
    out->last_call_s = seconds;
    cli->nproc = out->n * out->nproc;
    cli->nproc_least = out->least; /* of a node as many ranks take part as fit the mesh */
    return TT_OK;
}

tt_status tt_nodes_take_job(tt_cli *cli, tt_nodes_opts *out, tt_error *err)
{
    TT_TRY(take_timeout(cli, out, err));
    return make_digest(cli, out->digest, err);
}
