/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "setup/setup_impl.h"
#include <math.h>

/* What lies in pinned host memory: optimizer states (training.enable_cpu_offload) and activations
 * (activation_checkpoint.offload). */

#define USUAL_MACHINE "h100" /* its link to host memory: PCIe, generation 5, 16 lanes */

bool tt_setup_has_device(const tt_setup *s)
{
    return tt_device_of(s->backend.component->vtable, NULL).vt != NULL;
}

bool tt_setup_offloads_states(const tt_setup *s)
{
    return s->core.training.enable_cpu_offload && tt_setup_has_device(s);
}

tt_status tt_setup_find_machine(const tt_setup *s, const tt_machine **out, tt_error *err)
{
    const char *name = s->core.activation_checkpoint.offload_hardware;
    *out = !name && s->machine ? s->machine : tt_machine_find(name ? name : USUAL_MACHINE);
    if (*out)
        return TT_OK;
    tt_str known = {0};
    tt_machine_names(&known);
    const tt_status st =
        tt_job_fail(s->job, "activation_checkpoint.offload_hardware", err,
                    "unknown machine \"%s\" (known: %s)", name, tt_str_get(&known));
    tt_str_free(&known);
    return st;
}

tt_cut_way tt_setup_offload_way(const tt_setup *s)
{
    static const tt_cut_way ways[] = {[TT_ACTIVATIONS_STAY] = TT_CUT_STAYS,
                                      [TT_ACTIVATIONS_HIDDEN] = TT_CUT_JOINT,
                                      [TT_ACTIVATIONS_ALL] = TT_CUT_MOVED};
    return tt_setup_has_device(s) ? ways[s->core.activation_checkpoint.offload] : TT_CUT_STAYS;
}

int64_t tt_setup_most_offloaded(const tt_setup *s)
{
    return (int64_t)ceil(s->core.activation_checkpoint.offload_budget_gb * (1 << 30));
}

tt_status tt_setup_offload(const tt_setup *s, const tt_recompute_opts *recompute,
                           tt_offload_opts *out, tt_error *err)
{
    static const tt_offload_mode modes[] = {[TT_ACTIVATIONS_STAY] = TT_OFFLOAD_NONE,
                                            [TT_ACTIVATIONS_HIDDEN] = TT_OFFLOAD_AUTO,
                                            [TT_ACTIVATIONS_ALL] = TT_OFFLOAD_ALL};
    const tt_activation_checkpoint_config *c = &s->core.activation_checkpoint;
    *out = (tt_offload_opts){.mode = tt_setup_has_device(s) ? modes[c->offload] : TT_OFFLOAD_NONE,
                             .most_bytes = tt_setup_most_offloaded(s),
                             .ahead = (int)c->offload_prefetch_n_layers};
    if (recompute->mode == TT_RECOMPUTE_CUT && tt_setup_has_device(s))
        out->mode = TT_OFFLOAD_SHARES;
    return tt_setup_find_machine(s, &out->machine, err);
}
