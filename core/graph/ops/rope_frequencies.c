/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <math.h>
#include <ttrun/ops.h>

/* Inverse frequencies of rotary positions and their scalings, as in transformers'
 * modeling_rope_utils:
 *   linear  Chen et al. 2023, arXiv:2306.15595: all frequencies are divided by factor
 *   llama3  Meta 2024: low frequencies are divided by factor, high ones stay, those between are mixed
 *   yarn    Peng et al. 2023, arXiv:2309.00071: like llama3, but a frequency is low or high by its
 *           number of rotations over the original context
 *   longrope  Ding et al. 2024, arXiv:2402.13753: each frequency is divided by a number of its own */

static const double TWO_PI = 6.28318530717958647692;

static double llama3(const tt_rope_opts *o, double inv)
{
    double wave = TWO_PI / inv, context = o->original_max_position;
    if (wave < context / o->high_freq_factor)
        return inv;
    if (wave > context / o->low_freq_factor)
        return inv / o->factor;
    if (!(o->high_freq_factor > o->low_freq_factor))
        return inv; /* equal: nothing is between; transformers has 0 / 0 for this one wavelength */
    double s = (context / wave - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor);
    return (1.0 - s) * inv / o->factor + s * inv;
}

/* The index (a fraction) of the pair that rotates `rotations` times over the original context. */
static double yarn_pair(const tt_rope_opts *o, double rotations)
{
    return (double)o->rotary_dim * log(o->original_max_position / (rotations * TWO_PI)) /
           (2.0 * log(o->theta));
}

static void yarn_range(const tt_rope_opts *o, double *low, double *high)
{
    double l = yarn_pair(o, o->beta_fast), h = yarn_pair(o, o->beta_slow);
    if (!o->no_truncate) {
        l = floor(l);
        h = ceil(h);
    }
    l = TT_MAXV(l, 0.0);
    h = TT_MIN(h, (double)o->rotary_dim - 1.0);
    if (l == h)
        h += 0.001;
    *low = l;
    *high = h;
}

static double yarn(const tt_rope_opts *o, double inv, double pair, double low, double high)
{
    double ramp = (pair - low) / (high - low);
    ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
    return inv / o->factor * ramp + inv * (1.0 - ramp);
}

double tt_rope_frequencies(const tt_rope_opts *o, double *inv_freq, int64_t n)
{
    double low = 0.0, high = 1.0;
    if (o->scaling == TT_ROPE_YARN)
        yarn_range(o, &low, &high);
    for (int64_t j = 0; j < n; j++) {
        double inv = pow(o->theta, -2.0 * (double)j / (double)o->rotary_dim);
        switch (o->scaling) {
        case TT_ROPE_LINEAR:
            inv /= o->factor;
            break;
        case TT_ROPE_LLAMA3:
            inv = llama3(o, inv);
            break;
        case TT_ROPE_YARN:
            inv = yarn(o, inv, (double)j, low, high);
            break;
        case TT_ROPE_LONGROPE:
            inv /= o->divisors[j];
            break;
        case TT_ROPE_NONE:
            break;
        }
        inv_freq[j] = inv;
    }
    return o->scaling == TT_ROPE_YARN || o->scaling == TT_ROPE_LONGROPE ? o->attention_factor : 1.0;
}
