/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include <string.h>

/* --hardware: a machine by its name, or a JSON file with the fields below. */

#define NUMBER(field_, default_, max_, doc_)                                                       \
    TT_OPTION(tt_machine, field_, TT_OPT_FLOAT, default_, 0, max_, doc_)

static const tt_option options[] = {
    TT_OPTION(tt_machine, ranks_per_node, TT_OPT_INT, "8", 1, 1 << 20,
              "devices with a fast link between them"),
    NUMBER(flops_f32, "0", 1e30,
           "peak speed of dense matmuls on a device in float32, FLOP/s; 0 = not known"),
    NUMBER(flops_bf16, "0", 1e30, "… in bfloat16"),
    NUMBER(flops_f16, "0", 1e30, "… in float16"),
    NUMBER(flops_f8, "0", 1e30, "… in float8; 0 = none"),
    NUMBER(flops_f4, "0", 1e30, "… in 4 bits, blocks with scales; 0 = none, and no MXFP8 either"),
    NUMBER(memory_bytes, "0", 1e30, "memory per device, bytes; 0 = not known"),
    NUMBER(memory_bandwidth, "1e12", 1e30, "bandwidth of a device's memory, bytes/s"),
    NUMBER(link_bandwidth, "50e9", 1e30,
           "bandwidth between devices of a node, per direction, bytes/s"),
    NUMBER(link_latency, "8e-6", 10, "latency of a message between devices of a node, s"),
    NUMBER(net_bandwidth, "12.5e9", 1e30,
           "bandwidth from a device to other nodes, per direction, bytes/s"),
    NUMBER(net_latency, "15e-6", 10, "latency of a message between nodes, s"),
    NUMBER(host_bandwidth, "50e9", 1e30,
           "bandwidth between a device and host memory, per direction, bytes/s; 0 = no limit"),
    NUMBER(turn_latency, "1.5e-6", 10, "what each further turn of a ring adds to a collective, s"),
    NUMBER(op_latency, "3e-6", 10, "time from the end of an op to the start of the next one, s"),
    NUMBER(matmul_efficiency, "0.74", 1, "part of the peak that a matmul with long sums reaches"),
    NUMBER(matmul_ramp, "400", 1e6,
           "a matmul over sums of n elements reaches n / (n + this) of it"),
    NUMBER(attention_efficiency, "0.62", 1,
           "part of the peak that attention over long sequences reaches"),
    NUMBER(attention_backward_efficiency, "0.52", 1, "… its derivative; 0 = as the forward"),
    NUMBER(attention_ramp, "750", 1e6,
           "attention over sequences of n tokens reaches n / (n + this) of it"),
    NUMBER(memory_efficiency, "0.85", 1, "part of the memory's bandwidth that an op reaches"),
    NUMBER(network_efficiency, "0.8", 1, "part of the links' bandwidth that a collective reaches"),
    NUMBER(net_efficiency, "0.92", 1, "… between nodes; 0 = the same"),
    NUMBER(
        overlap_efficiency, "0.85", 1,
        "of the speed of computing, what is left while a collective in a node runs concurrently; a "
        "slower collective takes less; 0 = all"),
};

static tt_status complete(const tt_machine *m, const char *file, tt_error *err)
{
    const struct {
        const char *name;
        double value;
    } needed[] = {
        {"memory_bandwidth",     m->memory_bandwidth    },
        {"link_bandwidth",       m->link_bandwidth      },
        {"net_bandwidth",        m->net_bandwidth       },
        {"matmul_efficiency",    m->matmul_efficiency   },
        {"attention_efficiency", m->attention_efficiency},
        {"memory_efficiency",    m->memory_efficiency   },
        {"network_efficiency",   m->network_efficiency  },
    };
    for (size_t i = 0; i < TT_COUNT(needed); i++)
        if (needed[i].value <= 0)
            return TT_FAIL(err, TT_EINVAL, "%s: %s: must be above 0", file, needed[i].name);
    if (m->flops_f32 <= 0 && m->flops_bf16 <= 0 && m->flops_f16 <= 0)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: no peak is given: set flops_bf16, flops_f32 or flops_f16 (FLOP/s)",
                       file);
    return TT_OK;
}

tt_status tt_machine_load(const char *name, tt_arena *a, const tt_machine **out, tt_error *err)
{
    const tt_machine *known = tt_machine_find(name);
    if (known) {
        *out = known;
        return TT_OK;
    }
    if (!tt_ends_with(name, ".json")) {
        tt_str names = {0};
        tt_machine_names(&names);
        const tt_status s = TT_FAIL(
            err, TT_EINVAL, "--hardware: unknown \"%s\" (known: %s, or a FILE.json of yours)", name,
            tt_str_get(&names));
        tt_str_free(&names);
        return s;
    }
    tt_job *file;
    tt_machine *m = tt_arena_alloc(a, sizeof *m);
    TT_TRY(tt_job_load(a, name, NULL, 0, &file, err));
    static const char *const others[] = {"name", NULL};
    TT_TRY(tt_job_section(file, "", options, TT_COUNT(options), sizeof *options, others, m, err));
    TT_TRY(tt_job_string(file, "name", name, &m->name, err));
    TT_TRY(tt_job_finish(file, err));
    TT_TRY(complete(m, name, err));
    *out = m;
    return TT_OK;
}

void tt_machine_text(const tt_machine *m, double peak, tt_str *o)
{
    const double backward = m->attention_backward_efficiency > 0 ? m->attention_backward_efficiency
                                                                 : m->attention_efficiency;
    tt_str_printf(
        o,
        "%s reaches up to %.3g %% of %.4g TFLOP/s in a matmul, %.3g %% in "
        "attention (backward %.3g %%), %.3g %% of its memory's %.3g TB/s, %.3g %% of its "
        "links' %.3g GB/s, %.3g %% of its network's %.3g; --json prints all that is assumed",
        m->name, 100 * m->matmul_efficiency, 1e-12 * peak, 100 * m->attention_efficiency,
        100 * backward, 100 * m->memory_efficiency, 1e-12 * m->memory_bandwidth,
        100 * m->network_efficiency, 1e-9 * m->link_bandwidth,
        100 * (m->net_efficiency > 0 ? m->net_efficiency : m->network_efficiency),
        1e-9 * m->net_bandwidth);
}

void tt_machine_json(const tt_machine *m, tt_str *o)
{
    tt_str_add(o, "{\"name\":");
    tt_str_json(o, m->name);
    for (size_t i = 0; i < TT_COUNT(options); i++) {
        const char *at = (const char *)m + options[i].offset;
        if (options[i].type == TT_OPT_INT)
            tt_str_printf(o, ",\"%s\":%lld", options[i].name,
                          (long long)*(const int64_t *)(const void *)at);
        else
            tt_str_printf(o, ",\"%s\":%.10g", options[i].name, *(const double *)(const void *)at);
    }
    tt_str_addc(o, '}');
}
