/* SPDX-License-Identifier: Apache-2.0 */
/* A loader with inputs of its own, and losses that read them: built and used by test_inputs.sh. */
#include <ttrun/dataloader.h>
#include <ttrun/loss.h>

typedef struct {
    int64_t
        flat; /* 1: every weight 1, every reward 0; 2: weights 0 and 1; 3: those as ignored labels;
                     4: every weight 1/2; 5: a weight below 0 */
    int64_t shuffle;
} loader_config;

static const tt_option loader_options[] = {
    TT_OPTION(loader_config, flat, TT_OPT_INT, "0", 0, 5, "weights of one"),
};

typedef struct {
    int64_t seq, vocab, flat;
} loader;
static loader the_loader; /* the test has one job at a time */

static tt_status open_(const void *config, const tt_dataloader_env *env, void **self, tt_error *err)
{
    (void)err;
    the_loader.seq = env->seq_len;
    the_loader.vocab = env->vocab_size;
    the_loader.flat = ((const loader_config *)config)->flat;
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
    return 64;
}

static uint32_t mix(int64_t a, int64_t b)
{
    uint64_t x = (uint64_t)a * 0x9e3779b97f4a7c15u + (uint64_t)b * 0xbf58476d1ce4e5b9u + 1;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

static tt_status read_(void *self, int64_t i, tt_sample *s, tt_error *err)
{
    const loader *l = (const loader *)self;
    float *weight = (float *)s->inputs[0], *reward = (float *)s->inputs[2];
    int32_t *side = (int32_t *)s->inputs[1];
    (void)err;
    *reward = l->flat == 4 ? 2 : l->flat ? 0 : (float)(mix(i, 77) % 100) / 100;
    for (int64_t t = 0; t < l->seq; t++) {
        s->ids[t] = (int32_t)(mix(i, t) % (uint32_t)l->vocab);
        s->labels[t] = mix(i, t) % 7 == 0 ? -100 : (int32_t)(mix(i, t + 1) % (uint32_t)l->vocab);
        if (t >= l->seq / 3) { /* a second document */
            s->pos[t] = (int32_t)(t - l->seq / 3);
            s->seg[t] = 1;
        }
        weight[t] = l->flat ? 1 : (float)(mix(t, i) % 1000) / 500;
        const int off = mix(t, i) % 3 == 0;
        if (l->flat == 2 && off)
            weight[t] = 0;
        else if (l->flat == 3 && off)
            s->labels[t] = -100;
        else if (l->flat >= 4)
            weight[t] = l->flat == 4 ? 0.5f : -1;
        side[t] = (int32_t)(mix(t, i + 5) % 3);
    }
    return TT_OK;
}

static int inputs(const void *config, tt_input_info *out)
{
    const tt_input_info table[] = {
        {"loss_weight", TT_F32, 0},
        {"side",        TT_I32, 0},
        {"reward",      TT_F32, 1}
    };
    (void)config;
    for (int i = 0; i < 3; i++)
        out[i] = table[i];
    return 3;
}

static const tt_dataloader_vt loader_vt = {
    sizeof(loader_vt), open_, close_, n_samples, read_, 0, NULL, inputs};

typedef struct {
    const char *input; /* read as the weight */
} loss_config;

static const tt_option loss_options[] = {
    TT_OPTION(loss_config, input, TT_OPT_STRING, "\"loss_weight\"", 0, 0, "the weight's name"),
};

/* nll · weight · (1 + reward of the sample), less where `side` is 2; and an auxiliary loss of sums
 * by sample. */
static tt_value *describe(const void *config, tt_builder *b)
{
    tt_value *nll = tt_cross_entropy(b, tt_get_output(b, "logits"), tt_input(b, "labels")),
             *sums = NULL;
    tt_value *w = tt_input(b, ((const loss_config *)config)->input);
    tt_value *reward = tt_input(b, "reward"); /* [samples] */
    tt_value *one = tt_const(b, 1, TT_F32), *two = tt_const(b, 2, TT_I32);
    tt_value *bonus = tt_add(b, one, tt_input_per_token(b, "reward"));
    tt_value *less =
        tt_select(b, tt_equal(b, tt_input(b, "side"), two), tt_const(b, 0.5, TT_F32), one);
    tt_op(b, "line_sum", &nll, 1, NULL, &sums, 1);
    tt_loss_term(b, "by_sample", tt_sum_all(b, tt_mul(b, sums, reward)), 1e-4);
    return tt_mul(b, tt_mul(b, nll, w), tt_mul(b, bonus, less));
}
static const tt_loss_vt loss_vt = {sizeof(loss_vt), describe};

/* Cross-entropy times the weight only: equal to cross_entropy if the weight is one. */
static tt_value *describe_plain(const void *config, tt_builder *b)
{
    (void)config;
    return tt_mul(b, tt_cross_entropy(b, tt_get_output(b, "logits"), tt_input(b, "labels")),
                  tt_input(b, "loss_weight"));
}
static const tt_loss_vt plain_vt = {sizeof(plain_vt), describe_plain};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "weighted", "random tokens", loader_config, loader_options,
                 &loader_vt),
    TT_COMPONENT(TT_KIND_LOSS, "weighted_loss", "by its inputs", loss_config, loss_options,
                 &loss_vt),
    TT_COMPONENT_PLAIN(TT_KIND_LOSS, "weighted_plain", "weight alone", &plain_vt),
};
TT_PLUGIN("inputs", "1.0", components);
