/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CONVERTER_H
#define TTRUN_CONVERTER_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A converter computes layers of a model in another way: in lower precision (float8), or with
 * additional parameters (LoRA). A job lists converters; each sees what the one before it left (R19).
 *
 * A layer has up to three products, its roles:
 *   FORWARD       y  = x · wᵀ
 *   GRAD_INPUT    dx = dy · w
 *   GRAD_WEIGHT   dw = dyᵀ · x
 * linear() replaces a layer while the model describes itself, so its derivatives follow from what it
 * returns. product() replaces one product after the derivatives are made, so the gradient remains
 * that of the layer as it was ("straight through"). A converter has at least one of the two. */

#ifdef __cplusplus
extern "C" {
#endif
typedef enum tt_product_role {
    TT_PRODUCT_FORWARD,
    TT_PRODUCT_GRAD_INPUT,
    TT_PRODUCT_GRAD_WEIGHT
} tt_product_role;

typedef enum tt_product_layer {
    TT_PRODUCT_LINEAR,   /* a linear layer */
    TT_PRODUCT_GROUPED,  /* one of several weights per row: experts */
    TT_PRODUCT_ATTENTION /* queries times keys, and probabilities times values */
} tt_product_layer;

/* One product. It is valid during the call. T = tokens, i = in, o = out, E = experts.
 *
 *   layer    role         a           b            the product
 *   LINEAR   FORWARD      x  [T,i]    w [o,i]      y  [T,o] = a · bᵀ
 *            GRAD_INPUT   dy [T,o]    w [o,i]      dx [T,i] = a · b
 *            GRAD_WEIGHT  dy [T,o]    x [T,i]      dw [o,i] = aᵀ · b, f32
 *   GROUPED  the same with w [E,o,i], dw [E,o,i]; the rows are grouped by expert, `counts` of each
 *   ATTENTION  one operand at a time, in `a`, b is NULL: what product() returns is multiplied in its place.
 *            FORWARD: q, k or v [T, heads*head_dim], read by attention and by its derivative, which then
 *            passes to the operand as it was. GRAD_INPUT: dout, the gradient of attention's result, as its
 *            derivative reads it. param is the scope and the operand, "model.layers.0.self_attn.q", in
 *            the size of a head, out the number of heads. */
typedef struct tt_product {
    size_t struct_size;
    tt_product_role role;
    tt_product_layer layer;
    const char *param; /* the full name of w: "model.layers.0.mlp.up_proj.weight" */
    const char *tags;  /* of w, as in tt_param_opts; never NULL */
    int64_t in, out;   /* whole sizes of w, whatever the mesh: i and o */
    tt_value *a, *b;
    tt_value *counts; /* GROUPED: rows of each expert, as in tt_grouped_linear; else NULL */
} tt_product;

/* A later converter of the list must not change what this one leaves of a product: numbers that are
 * quantized already. A job that lists such a converter behind it, for the same product, is refused. */
#define TT_CONVERTER_FINAL 1u
/* linear() changes how weights are stored (tt_param_store_codes), which cannot change while a job runs: one
 * that lists it for a part of its steps (from_step, to_step) is refused. */
#define TT_CONVERTER_STORES 2u

/* ---- state, for product() alone ---- */

/* f32 numbers that a converter keeps for a product from step to step, as they are during this step: the
 * largest values of the last steps. Their full name, by which checkpoints hold them, is
 * converters.<converter>.<param>.<role>.<name>. init NULL: zeros. Errors stick in b. */
TT_EXPORT tt_value *tt_converter_state(tt_builder *b, const tt_product *p, const char *name,
                                       const tt_dim *dims, int n_dims, const tt_init *init);
/* Their next value, once per step of training, after the parameters' update: fn gets the state and the
 * maximum of `stat` over the step's micro-batches, and returns the new value. stat has no token dim.
 * Once per product; if a layer has several products of one weight and role, which share the state, the
 * maximum is over these, too. user must outlive the graph. */
TT_EXPORT void tt_converter_update(tt_builder *b, tt_value *state, tt_value *stat, tt_buffer_fn fn,
                                   void *user);

typedef struct tt_converter_vt {
    size_t struct_size;
    /* Returns other ops that replace x·wᵀ for the parameter with the full name `name`
     * ("model.layers.0.mlp.up_proj.weight"), or NULL to leave it as it is. NULL: the converter replaces
     * no layer as a whole. tt_param() here declares parameters below the layer: "lora_A.weight" is
     * "model.layers.0.mlp.up_proj.lora_A.weight".
     *   x [T,in]    w [out,in]    returns [T,out]; errors stick in b.   [setup] */
    tt_value *(*linear)(const void *config, tt_builder *b, const char *name, tt_value *x,
                        tt_value *w);
    /* Returns other ops that compute the product `p`, or NULL to leave it as it is. The result has
     * the shape of the table above; the core casts it to the dtype that the product had. b is in the
     * placed graph: the ops that are built are placed by their rules, and sums over ranks (of a
     * maximum too) are inserted where they need them. NULL: the converter replaces no single
     * product. Errors stick in b.   [setup] */
    tt_value *(*product)(const void *config, tt_builder *b, const tt_product *p);
    uint32_t flags; /* TT_CONVERTER_… */
    /* Called once after the model has described itself, with the names of all parameters: fails by
     * tt_builder_fail() if the configuration names a layer that does not exist. NULL: nothing to
     * check.   [setup] */
    void (*described)(const void *config, tt_builder *b, const char *const *names, size_t n);
} tt_converter_vt;
#ifdef __cplusplus
}
#endif
#endif
