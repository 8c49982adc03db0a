/* SPDX-License-Identifier: Apache-2.0 */
/* For test_compositions.sh: a loss with label smoothing, written without a word about meshes, and a loader whose
 * samples have from none to all of their labels. */
#include <ttrun/dataloader.h>
#include <ttrun/loss.h>

#define SMOOTHING 0.1

/* (1 - s) nll + s · mean over the vocabulary of -log p, for tokens that count. */
static tt_value *smoothed(const void *config, tt_builder *b)
{
    tt_value *logits = tt_get_output(b, "logits"), *labels = tt_input(b, "labels");
    tt_value *nll = tt_cross_entropy(b, logits, labels), *x = tt_cast(b, logits, TT_F32);
    tt_value *zero = tt_const(b, 0, TT_F32);
    (void)config;
    tt_value *even = tt_sub(b, tt_logsumexp(b, x), tt_mean(b, x, 1, 0));
    even = tt_select(b, tt_less(b, labels, tt_const(b, 0, TT_I32)), zero, even);
    return tt_add(b, tt_scale(b, nll, 1 - SMOOTHING), tt_scale(b, even, SMOOTHING));
}
static const tt_loss_vt smoothed_vt = {.struct_size = sizeof(smoothed_vt), .describe = smoothed};

typedef struct {
    int64_t seq, vocab;
} loader;
static loader the_loader; /* a process has one job */

static tt_status open_(const void *config, const tt_dataloader_env *env, void **self, tt_error *err)
{
    (void)config, (void)err;
    the_loader = (loader){env->seq_len, env->vocab_size};
    *self = &the_loader;
    return TT_OK;
}

static void close_(void *self)
{
    (void)self;
}

static int64_t n_samples(void *self)
{
    (void)self;
    return 96;
}

static int32_t id_of(const loader *l, int64_t i, int64_t t)
{
    uint64_t x = (uint64_t)(i * 1000 + t) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return (int32_t)((x >> 33) % (uint64_t)l->vocab);
}

/* Sample i has labels at its last i % 8 sevenths, none to all; and two documents. */
static tt_status read_(void *self, int64_t i, tt_sample *s, tt_error *err)
{
    const loader *l = (const loader *)self;
    const int64_t begin = l->seq - l->seq * (i % 8) / 7, second = l->seq / 3;
    (void)err;
    for (int64_t t = 0; t < l->seq; t++) {
        s->ids[t] = id_of(l, i, t);
        s->labels[t] = t < begin ? -100 : id_of(l, i, t + 1);
        if (t >= second) {
            s->pos[t] = (int32_t)(t - second);
            s->seg[t] = 1;
        }
    }
    return TT_OK;
}
static const tt_dataloader_vt uneven_vt = {.struct_size = sizeof(uneven_vt),
                                           .open = open_,
                                           .close = close_,
                                           .n_samples = n_samples,
                                           .read = read_};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_LOSS, "smoothed", "cross-entropy with label smoothing",
                       &smoothed_vt),
    TT_COMPONENT_PLAIN(TT_KIND_DATALOADER, "uneven", "samples with unequal numbers of labels",
                       &uneven_vt),
};
TT_PLUGIN("compositions", "1.0", components);
