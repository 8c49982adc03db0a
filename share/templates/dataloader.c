/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: each sample counts upwards from its own number, which a model learns in a few steps. */
#include <stdlib.h>
#include <ttrun/dataloader.h>

typedef struct {
    int64_t samples;
} config;

static const tt_option options[] = {
    {"samples", "an epoch", TT_OPT_INT, offsetof(config, samples), "1000", 1, 1e12, NULL, 0, NULL},
};

typedef struct {
    int64_t samples, vocab;
} loader;

static tt_status open_loader(const void *cfg, const tt_dataloader_env *env, void **self,
                             tt_error *err)
{
    loader *l = (loader *)malloc(sizeof *l);
    if (!l)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the loader");
    l->samples = ((const config *)cfg)->samples;
    l->vocab = env->vocab_size;
    *self = l;
    return TT_OK;
}

static void close_loader(void *self)
{
    free(self);
}

static int64_t n_samples(void *self)
{
    return ((const loader *)self)->samples;
}

/* Sample i. Called at any time, from any thread: the core orders, shuffles and shards. pos and seg
 * are filled in already. */
static tt_status read_sample(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const loader *l = (const loader *)self;
    (void)err;
    for (int64_t t = 0; t < out->seq_len; t++) {
        out->ids[t] = (int32_t)((i + t) % l->vocab);
        out->labels[t] = (int32_t)((i + t + 1) % l->vocab); /* -100 would be ignored */
    }
    return TT_OK;
}

static const tt_dataloader_vt vt = {
    sizeof(vt),
    open_loader,
    close_loader,
    n_samples,
    read_sample,
    0 /* needs no tokenizer */,
    NULL /* no description for ttrun data */,
    NULL /* no inputs of its own */,
    NULL /* nothing promised of segments */,
    0 /* samples are windows of one stream */,
    NULL /* nothing known of where a token's text comes from */,
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "@NAME@", "numbers that count", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
