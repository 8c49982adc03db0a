/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* How many samples a micro-batch has, how many micro-batches a step, and how many of them each call of the
 * program runs. */

/* Calls of the program per step: each runs training.intra_layer_micro_batch micro-batches. */
static tt_status program_calls(tt_setup *s, tt_error *err)
{
    const int64_t k = s->core.training.intra_layer_micro_batch;
    s->calls = s->micro_batches / k;
    if (s->micro_batches % k)
        return tt_job_fail(
            s->job, "training.intra_layer_micro_batch", err,
            "%lld does not divide the %lld micro-batch%s of a step: raise %s, or set it to 1",
            (long long)k, (long long)s->micro_batches, s->micro_batches == 1 ? "" : "es",
            s->pipeline_ranks > 1 ? "parallelism.pipeline_parallel_microbatches"
                                  : "training.global_batch_size");
    return TT_OK;
}

tt_status tt_setup_batch(tt_setup *s, tt_error *err)
{
    const tt_training_config *t = &s->core.training;
    const int64_t dp = s->data_world, round = t->local_batch_size;
    int64_t pieces = 1;
    if (s->pipeline_ranks > 1) {
        pieces = s->core.parallelism.pipeline_parallel_microbatches;
        for (int64_t m = 2 * s->pipeline_ranks; pieces < 1 && m >= 1; m--)
            if (round % m == 0)
                pieces = m;
        if (round % pieces)
            return tt_job_fail(s->job, "parallelism.pipeline_parallel_microbatches", err,
                               "%lld does not divide training.local_batch_size %lld",
                               (long long)pieces, (long long)round);
    }
    const int64_t global = t->global_batch_size > 0 ? t->global_batch_size : round * dp;
    if (global % (round * dp))
        return tt_job_fail(
            s->job, "training.global_batch_size", err,
            "%lld is not a multiple of training.local_batch_size %lld × %lld data-parallel "
            "ranks",
            (long long)global, (long long)round, (long long)dp);
    s->local = round / pieces;
    s->micro_batches = global / (round * dp) * pieces;
    s->global_batch = global;
    TT_TRY(program_calls(s, err));
    const tt_validation_config *v = &s->core.validation;
    s->eval_batch = v->local_batch_size == INT64_MIN ? round : v->local_batch_size;
    s->eval_local = v->local_batch_size == INT64_MIN ? s->local : v->local_batch_size;
    s->eval_seq_len = v->seq_len == INT64_MIN ? t->seq_len : v->seq_len;
    int64_t tokens;
    if (!tt_mul_i64(s->eval_batch * dp, s->eval_seq_len, &tokens) || tokens > INT32_MAX)
        return tt_job_fail(s->job, "validation.seq_len", err,
                           "%lld samples of %lld tokens are too many for a batch",
                           (long long)(s->eval_batch * dp), (long long)s->eval_seq_len);
    if (!tt_mul_i64(global, t->seq_len, &tokens) || tokens > INT32_MAX)
        return tt_job_fail(s->job, "training.seq_len", err,
                           "%lld samples of %lld tokens are too many for a step", (long long)global,
                           (long long)t->seq_len);
    return TT_OK;
}
