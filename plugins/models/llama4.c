/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe.h"
#include "decoder_titan.h"

/* llama4: the text model of Llama 4 Scout and Maverick: layers with rotary positions attend within chunks of
 * tokens, and every fourth has no positions, sees all tokens and has a temperature that depends on the
 * query's position. A router's choice multiplies the input of its expert by the sigmoid of its logit; one
 * expert is shared. Files hold the experts' weights as [in, out] in one tensor, first gate, then up; they
 * are parameters as they stand there. T tokens, R rows of the experts, E experts, D width, F hidden width
 * of an expert, hd head width. Source: Meta 2025, https://ai.meta.com/blog/llama-4-multimodal-intelligence;
 * names and the order of operations as in transformers. */

typedef struct {
    decoder_moe m; /* first: the functions of decoder.h take this struct */
    int64_t attention_chunk_size, floor_scale;
    double attn_scale;
    bool use_qk_norm, tuned;
    const char *attn_temperature_tuning, *layer_types, *moe_layers;
} llama4;

static const tt_option options[] = {
    DECODER_OPTIONS("8", "4", "null", "1e-5", "500000.0", "false"),
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, "512", 1, DECODER_MAX_DIM, NULL, 0,
                   "intermediate_size_mlp", "width of the feed-forward layers without experts"),
    MOE_OPTION(llama4, m.moe, hidden_dim, "moe_intermediate_size", TT_OPT_INT, "256", 1,
               DECODER_MAX_DIM, NULL, "intermediate_size|moe_hidden_dim",
               "hidden width of an expert"),
    DECODER_ATTENTION_BIAS_OPTION,
    DECODER_NO_ROPE_OPTIONS("4"),
    TT_OPTION_MORE(
        llama4, attention_chunk_size, TT_OPT_INT, "8192", 1, 2147483647.0, NULL, TT_OPT_NULLABLE,
        NULL,
        "layers with rotary positions attend within chunks of this many tokens; null: to all"),
    TT_OPTION_MORE(
        llama4, layer_types, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
        "for each layer \"full_attention\" or \"chunked_attention\"; null: chunked where "
        "it has rotary positions"),
    TT_OPTION(llama4, use_qk_norm, TT_OPT_BOOL, "true", 0, 0,
              "queries and keys with rotary positions are divided by their root mean square"),
    TT_OPTION(llama4, attn_temperature_tuning, TT_OPT_JSON, "true", 0, 0,
              "queries without rotary positions grow with the position; true, false or a number, "
              "which is true if it is not 0"),
    TT_OPTION(llama4, floor_scale, TT_OPT_INT, "8192", 1, 2147483647.0,
              "by 1 + attn_scale log(1 + floor((position + 1) / floor_scale))"),
    TT_OPTION(llama4, attn_scale, TT_OPT_FLOAT, "0.1", 0, 1e6, "see floor_scale"),
    MOE_COUNT_OPTIONS(llama4, m.moe, "8", "1"),
    DECODER_MOE_ROW(llama4, m, decoder_sparse_step, "interleave_moe_layer_step", TT_OPT_INT, "1", 1,
                    65536, 0, NULL, "of this many layers the last has experts"),
    TT_OPTION_MORE(
        llama4, moe_layers, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
        "a list of the numbers of layers with experts; null: by interleave_moe_layer_step"),
    MOE_BALANCE_OPTIONS(llama4, m.moe),
};

/* The releases: https://huggingface.co/meta-llama/Llama-4-Scout-17B-16E/blob/main/config.json (text_config),
 * and Llama-4-Maverick-17B-128E likewise. */
#define RELEASED(name, experts, more)                                                              \
    {                                                                                              \
        name, "{\"dim\": 5120, \"n_layers\": 48, \"n_heads\": 40, \"n_kv_heads\": 8, "             \
              "\"head_dim\": 128, \"hidden_dim\": 16384, \"moe_intermediate_size\": 8192, "        \
              "\"vocab_size\": 202048, \"num_experts\": " #experts ", " more "}"                   \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 8, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"hidden_dim\": 512, \"moe_intermediate_size\": 128, \"vocab_size\": 2048, "
                   "\"attention_chunk_size\": 128, \"interleave_moe_layer_step\": 2}"},
    RELEASED("17B-16E", 16,
             "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
             "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
             "\"original_max_position_embeddings\": 8192}"),
    RELEASED("17B-128E", 128, "\"use_qk_norm\": false, \"interleave_moe_layer_step\": 2"),
};

static const moe_names names = {"feed_forward", "router",    "gate_proj",
                                "up_proj",      "down_proj", "shared_expert"};

static bool has_experts(const llama4 *c, int64_t layer)
{
    return decoder_said(c->moe_layers) ? decoder_moe_listed(c->moe_layers, layer)
                                       : decoder_moe_has_experts(&c->m, layer);
}

/* The size of the chunks of a layer; 0: it sees all tokens. */
static int64_t chunk_of(const llama4 *c, int64_t layer)
{
    const char *type = decoder_said(c->layer_types) ? decoder_item(c->layer_types, layer) : NULL;
    const bool chunked = type ? strncmp(type, "chunked", 7) == 0 : decoder_rotates(&c->m.d, layer);
    return chunked ? c->attention_chunk_size : 0;
}

/* ---- attention ---- */

/* Queries or keys x [T,n*hd] of a layer with rotary positions. */
static tt_value *turn(tt_builder *b, const llama4 *c, int64_t layer, tt_value *x)
{
    const tt_rope_opts rope = decoder_rope(&c->m.d, layer, tt_builder_length(b));
    const tt_dim head = TT_DIM(c->m.d.head_dim, NULL);
    x = decoder_rotate(b, &c->m.d, x, &rope);
    if (!c->use_qk_norm)
        return x;
    return tt_rms_norm_w(b, x, tt_broadcast_to(b, tt_const(b, 1.0, TT_F32), &head, 1),
                         c->m.d.norm_eps);
}

/* Queries x [T,H*hd] of a layer without rotary positions. */
static tt_value *tune(tt_builder *b, const llama4 *c, tt_value *x)
{
    const tt_dim column[] = {tt_value_type(x)->dims[0], TT_DIM(1, NULL)};
    tt_value *one = tt_const(b, 1.0, TT_F32);
    tt_value *next = tt_add(b, tt_input(b, "pos"), tt_const(b, 1.0, TT_I32));
    tt_value *n = tt_floor_div(b, next, tt_const(b, (double)c->floor_scale, TT_I32));
    n = tt_log_e(b, tt_add(b, tt_cast(b, n, TT_F32), one));
    n = tt_add(b, tt_scale(b, n, c->attn_scale), one);
    n = tt_mul(b, x, tt_reshape(b, n, column, 2)); /* f32 */
    return tt_cast(b, n, tt_value_type(x)->dtype);
}

/* decoder_kind.attention */
static tt_value *attention(tt_builder *b, const decoder_kind *kind, const decoder *d,
                           const decoder_init *init, int64_t layer, tt_value *x)
{
    const llama4 *c = (const llama4 *)d;
    const int64_t hd = d->head_dim;
    const tt_dim H = TT_DIM_UNIT(d->n_heads * hd, "heads", hd),
                 K = TT_DIM_UNIT(d->n_kv_heads * hd, "kv_heads", hd);
    const tt_linear_opts in = {.bias = d->attention_bias, .init = init->plain},
                         out = {.bias = d->attention_bias, .init = init->out};
    const tt_attention_opts opts = {.dropout = d->attention_dropout, .chunk = chunk_of(c, layer)};
    (void)kind;
    tt_scope(b, "self_attn");
    tt_value *q = tt_linear(b, x, "q_proj", H, &in), *k = tt_linear(b, x, "k_proj", K, &in),
             *v = tt_linear(b, x, "v_proj", K, &in);
    if (decoder_rotates(d, layer)) {
        q = turn(b, c, layer, q);
        k = turn(b, c, layer, k);
    } else if (c->tuned) {
        q = tune(b, c, q);
    }
    x = tt_linear(b, tt_attention(b, q, k, v, hd, &opts), "o_proj", TT_DIM(d->dim, "embed"), &out);
    tt_scope_end(b);
    return x;
}

/* ---- the feed-forward layer ---- */

typedef struct {
    const moe_config *c;
    const decoder_init *init;
    tt_dim embed;
} expert_layer;

/* x [R,in] by the parameter experts.<name> [E,in,out] → [R,out] */
static tt_value *expert_linear(tt_builder *b, const expert_layer *l, const tt_expert_rows *rows,
                               tt_value *x, const char *name, tt_dim in, tt_dim out,
                               const tt_init *init)
{
    static const int in_last[] = {0, 2, 1};
    const tt_dim dims[] = {TT_DIM(l->c->experts, "experts"), in, out};
    const tt_param_opts weight = {.init = *init, .tags = "experts"};
    tt_value *w = tt_transpose(b, tt_param(b, name, dims, 3, &weight), in_last);
    return tt_grouped_linear(b, x, w, rows->counts);
}

/* tt_expert_fn */
static tt_value *llama4_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const expert_layer *l = user;
    const tt_dim F = TT_DIM(l->c->hidden_dim, "ffn"), both = TT_DIM(2 * F.size, "ffn");
    tt_value *h = expert_linear(b, l, rows, rows->x, "experts.gate_up_proj", l->embed, both,
                                &l->init->plain); /* [R,2F] */
    tt_value *gate = tt_slice(b, h, 1, 0, F.size), *up = tt_slice(b, h, 1, F.size, 2 * F.size);
    return expert_linear(b, l, rows, tt_mul(b, tt_silu(b, gate), up), "experts.down_proj", F,
                         l->embed, &l->init->out);
}

/* decoder_kind.feed_forward. The choices are computed one after the other: each has its own input. */
static tt_value *feed_forward(tt_builder *b, const decoder_kind *kind, const decoder *c,
                              const decoder_init *init, int64_t layer, tt_value *x, void *state)
{
    decoder_moe_state *s = state;
    const moe_config *e = &s->c->moe;
    if (!has_experts((const llama4 *)c, layer))
        return decoder_mlp(b, kind, c, init, layer, x);
    const moe_init inits = {init->plain, init->plain, init->up, init->out};
    const expert_layer l = {e, init, tt_value_type(x)->dims[1]};
    const moe_experts_user shared = {e, &names, &inits, layer, l.embed};
    tt_scope(b, "%s", names.scope);
    const moe_routing r = moe_route(b, e, &names, &inits, x);
    moe_count_losses(b, e, &r, &s->sums);
    tt_value *y = moe_shared(b, &shared, x);
    for (int64_t j = 0; j < e->top_k; j++) {
        tt_value *score = tt_slice(b, r.weights, 1, j, j + 1); /* [T,1] */
        const tt_type *t = tt_value_type(score);
        tt_value *ones = tt_broadcast_to(b, tt_const(b, 1.0, TT_F32), t->dims, 2);
        tt_value *in = tt_mul(b, x, tt_cast(b, score, tt_value_type(x)->dtype));
        y = tt_add(b, y,
                   tt_experts(b, in, tt_slice(b, r.assign, 1, j, j + 1), ones, e->experts,
                              llama4_rows, &l));
    }
    tt_scope_end(b);
    return y;
}

static const decoder_kind kind = {.mlp_scope = "feed_forward",
                                  .init = decoder_init_normal,
                                  .attention = attention,
                                  .feed_forward = feed_forward};

/* ---- arguments ---- */

static tt_status check_layer_types(const llama4 *c, tt_error *err)
{
    for (int64_t i = 0; i <= c->m.d.n_layers; i++) {
        const char *type = decoder_item(c->layer_types, i);
        const bool known = type && (strncmp(type, "chunked_attention\"", 18) == 0 ||
                                    strncmp(type, "full_attention\"", 15) == 0);
        if (known != (i < c->m.d.n_layers))
            return TT_FAIL(
                err, TT_EINVAL,
                "model.args.layer_types: wanted null or a list of \"full_attention\" and "
                "\"chunked_attention\", one for each of %lld layers; number %lld is not",
                (long long)c->m.d.n_layers, (long long)i);
    }
    return TT_OK;
}

static tt_status llama4_finish(void *cfg, tt_error *err)
{
    llama4 *c = cfg;
    moe_config *e = &c->m.moe;
    const char *tuning = c->attn_temperature_tuning;
    char *end = NULL;
    const double number = tuning ? strtod(tuning, &end) : 0.0;
    const bool said = tuning && (!strcmp(tuning, "true") || !strcmp(tuning, "false"));
    if (!said && (!tuning || end == tuning || *end))
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.attn_temperature_tuning: wanted true, false or a number, not %.40s",
            tuning ? tuning : "null");
    c->tuned = said ? !strcmp(tuning, "true") : number < 0.0 || number > 0.0;
    c->attention_chunk_size = decoder_or(c->attention_chunk_size, 0);
    if (decoder_said(c->m.d.no_rope_layers) && strchr(c->m.d.no_rope_layers, ']') &&
        !strpbrk(c->m.d.no_rope_layers, "01"))
        c->m.d.no_rope_layers = NULL; /* an empty list, as transformers reads it */
    e->score = MOE_SIGMOID;
    e->choice_by_logits = true;
    e->shared_experts = 1;
    TT_TRY(moe_finish(e, err));
    TT_TRY(decoder_finish(&c->m.d, err));
    c->m.d.rope.interleaved = 1;
    return decoder_said(c->layer_types) ? check_layer_types(c, err) : TT_OK;
}

static void llama4_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &names, b);
}

/* ---- Hugging Face ---- */

static void add_layers(json_text *t, const llama4 *c)
{
    bool any = false;
    json_add(t, ",\n  \"no_rope_layers\": ");
    for (int64_t i = 0; i < c->m.d.n_layers; i++)
        json_add(t, "%s%d", i ? ", " : "[", decoder_rotates(&c->m.d, i));
    json_add(t, "],\n  \"layer_types\": ");
    for (int64_t i = 0; i < c->m.d.n_layers; i++)
        json_add(t, "%s\"%s_attention\"", i ? ", " : "[", chunk_of(c, i) ? "chunked" : "full");
    json_add(t, "],\n  \"moe_layers\": [");
    for (int64_t i = 0; i < c->m.d.n_layers; i++)
        if (has_experts(c, i)) {
            json_add(t, "%s%lld", any ? ", " : "", (long long)i);
            any = true;
        }
    json_add(t, "]");
}

static tt_status llama4_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const llama4 *c = cfg;
    const moe_config *e = &c->m.moe;
    decoder d = c->m.d; /* their intermediate_size is that of the experts */
    char more[8192];
    json_text t = {more, sizeof more, 0};
    json_add(&t,
             DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"use_qk_norm\": %s,\n  "
                          "\"attn_temperature_tuning\": %s,\n  \"floor_scale\": %lld,\n  ",
             d.attention_bias ? "true" : "false", c->use_qk_norm ? "true" : "false",
             c->tuned ? "true" : "false", (long long)c->floor_scale);
    json_add_real(&t, "attn_scale", c->attn_scale);
    json_add(&t,
             c->attention_chunk_size ? ",\n  \"attention_chunk_size\": %lld"
                                     : ",\n  \"attention_chunk_size\": null",
             (long long)c->attention_chunk_size);
    json_add(&t,
             ",\n  \"intermediate_size_mlp\": %lld,\n  \"num_local_experts\": %lld,\n  "
             "\"num_experts_per_tok\": %lld",
             (long long)d.hidden_dim, (long long)e->experts, (long long)e->top_k);
    json_add(&t, ",\n  \"interleave_moe_layer_step\": %lld", (long long)c->m.decoder_sparse_step);
    add_layers(&t, c);
    TT_TRY(decoder_text_fits(&t, err));
    d.hidden_dim = e->hidden_dim;
    return decoder_config_json(&d, "Llama4ForCausalLM", "llama4_text", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "llama4_text",
    "{\"hidden_size\": 5120, \"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, "
    "\"num_hidden_layers\": 48, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, "
    "\"head_dim\": 128, \"vocab_size\": 202048, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "
    "\"tie_word_embeddings\": false, \"num_experts_per_tok\": 1, \"num_local_experts\": 16, "
    "\"interleave_moe_layer_step\": 1, \"use_qk_norm\": true, \"no_rope_layer_interval\": 4, "
    "\"attention_chunk_size\": 8192, \"attn_temperature_tuning\": true, \"floor_scale\": 8192, "
    "\"attn_scale\": 0.1, \"attention_bias\": false}",
    "{\"hidden_act\": \"silu\", \"router_jitter_noise\": 0.0, \"quantization_config\": null}",
    llama4_config_json,
    "model."};

static const tt_titan_name titan_names[] = {TITAN_COMMON};

static tt_status titan_check(const void *cfg, tt_error *err)
{
    (void)cfg;
    return TT_FAIL(
        err, TT_EUNSUPPORTED,
        "model llama4: torchtitan, which has no llama4 since June 2026, had the experts' "
        "gate_up_proj [E,in,2 out] in two tensors [E,out,in]; use dcp instead of "
        "torchtitan");
}

static const tt_model_titan titan = {TITAN_TABLE(titan_names), NULL, titan_check};

static const void *llama4_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_TITAN))
        return &titan;
    return decoder_extension(id, &hf, NULL, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, llama4_finish, llama4_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "llama4",
                     "Llama 4, text: chunked attention, layers without positions, routed experts",
                     llama4, options, &vt, llama4_extension),
};

TT_PLUGIN("llama4", "1.0", components);
