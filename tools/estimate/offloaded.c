/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "plan/memory.h"

/* What `ttrun plan` says about activations that wait for the backward in host memory. */

void tt_offloaded_text(const tt_program *p, const tt_step_time *time, tt_str *o)
{
    const tt_offloaded f = tt_program_offloaded(p);
    const double gib = 1.0 / (1 << 30);
    if (!f.values)
        return;
    tt_str_printf(o,
                  "%lld activations of a %s, %.3f GiB, wait for the backward in "
                  "%.3f GiB of host memory",
                  (long long)f.values,
                  p->graph->interleaved > 1 ? "group of micro-batches" : "micro-batch",
                  gib * (double)f.bytes, gib * (double)p->bytes[TT_SPACE_OFFLOADED]);
    if (time)
        tt_str_printf(o,
                      "; all copies between device and host take %.4g s per step, %.4g s of these "
                      "are not hidden",
                      time->copies, time->copies_exposed);
}

void tt_offloaded_json(const tt_program *p, const tt_step_time *time, tt_str *o)
{
    const tt_offloaded f = tt_program_offloaded(p);
    if (!f.values)
        return;
    tt_str_printf(o, ",\"offloaded\":{\"values\":%lld,\"bytes\":%lld,\"pinned\":%lld",
                  (long long)f.values, (long long)f.bytes, (long long)p->bytes[TT_SPACE_OFFLOADED]);
    if (time)
        tt_str_printf(o, ",\"copies_s\":%.6g,\"copies_exposed_s\":%.6g", time->copies,
                      time->copies_exposed);
    tt_str_addc(o, '}');
}
