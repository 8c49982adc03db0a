/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"
#include <math.h>

/* Runs whose batches end with the epoch: an epoch of n samples in batches of G has ceil(n / G) steps,
 * the last of which has the samples that are left. */

int64_t tt_epoch_steps(const tt_epochs *e)
{
    TT_ASSERT(e->n_samples >= 1 && e->batch >= 1);
    return e->n_samples / e->batch + (e->n_samples % e->batch != 0);
}

int64_t tt_epoch_rest(const tt_epochs *e, int64_t g)
{
    return TT_MIN(e->batch, e->n_samples - g % e->n_samples);
}

tt_status tt_epoch_sample(const tt_epochs *e, int64_t first, int64_t k, int64_t *g, tt_error *err)
{
    const int64_t begun = e->n_samples - first % e->n_samples, /* left of the epoch of `first` */
        steps = begun / e->batch + (begun % e->batch != 0), each = tt_epoch_steps(e);
    int64_t at = 0;
    bool fits;
    if (k < steps) {
        fits = tt_mul_i64(k, e->batch, &at) && tt_add_i64(at, first, &at);
    } else {
        fits = tt_mul_i64((k - steps) / each, e->n_samples, &at) && tt_add_i64(at, begun, &at) &&
               tt_add_i64(at, first, &at) && tt_add_i64(at, (k - steps) % each * e->batch, &at);
    }
    if (!fits || at > INT64_MAX - e->n_samples)
        return TT_FAIL(err, TT_EINVAL, "the run is past 2^63 samples");
    *g = at;
    return TT_OK;
}

tt_status tt_epochs_samples(const tt_epochs *e, double epochs, int64_t *samples, tt_error *err)
{
    const double whole = floor(epochs), part = (epochs - whole) * (double)tt_epoch_steps(e);
    /* 0.3 of 10 steps are 3, though 2.3 - 2 is a little more than 0.3 */
    const double steps = ceil(part - 1e-9 * fmax(part, 1));
    int64_t at = 0;
    if (!(epochs >= 0) || epochs > 1e15 || !tt_mul_i64((int64_t)whole, e->n_samples, &at) ||
        at > INT64_MAX - e->n_samples)
        return TT_FAIL(err, TT_EINVAL, "%g epochs of %lld samples are past 2^63 samples", epochs,
                       (long long)e->n_samples);
    *samples = at + (steps >= (double)tt_epoch_steps(e) ? e->n_samples : (int64_t)steps * e->batch);
    return TT_OK;
}

int64_t tt_epochs_steps(const tt_epochs *e, int64_t from, int64_t to)
{
    const int64_t n = e->n_samples, whole = to / n - from / n;
    if (to <= from)
        return 0;
    const tt_epochs last = {to % n ? to % n : n, e->batch}, one = {n - from % n, e->batch};
    if (!whole || (whole == 1 && to % n == 0)) /* in the epoch of `from` */
        return tt_epoch_steps(&(tt_epochs){to - from, e->batch});
    const int64_t between = whole - 1 - (to % n == 0);
    return tt_epoch_steps(&one) + between * tt_epoch_steps(e) + tt_epoch_steps(&last);
}
