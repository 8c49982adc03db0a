/* SPDX-License-Identifier: Apache-2.0 */
/* sawtooth: a rate that falls from its peak to a floor by a cosine, again and again, in C++. Loshchilov and Hutter 2017,
 * arXiv:1608.03983. */
#include <algorithm>
#include <cmath>
#include <numbers>
#include <ttrun/lr_scheduler.h>

namespace
{
struct config {
    int64_t cycle; /* steps */
    double low;
};

constexpr tt_option options[] = {
    {"cycle_steps", "from a peak to the next", TT_OPT_INT, offsetof(config, cycle), "1000", 1, 1e15, nullptr, 0,
     nullptr},
    {"min_lr_factor", "floor", TT_OPT_FLOAT, offsetof(config, low), "0.0", 0, 1, nullptr, 0, nullptr},
};

/* noexcept: an exception that left the function would end the process, and not in a C function of ttrun's. */
double factor_at(const void *cfg, int64_t step, int64_t) noexcept
{
    const auto *c = static_cast<const config *>(cfg);
    const double part = static_cast<double>(step % c->cycle) / static_cast<double>(std::max<int64_t>(c->cycle, 1));
    return c->low + (1 - c->low) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

constexpr tt_lr_scheduler_vt vt = {sizeof(vt), factor_at};
constexpr tt_component parts[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "sawtooth", "cycles of a falling rate, in C++", config, options, &vt)};
} // namespace
TT_PLUGIN("sawtooth", "1.0", parts);
