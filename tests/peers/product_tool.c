/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/converters/low.h"
#include "../ops/eval.h"
#include <stdio.h>

/* For float8_peer.py: product_tool FORMAT RULE ALONG ACROSS_A ACROSS_B ROLE ROWS_A COLS_A ROWS_B COLS_B
 * Reads the operands a and b, f32, from stdin and writes their quantized product, f32, to stdout, by the
 * backend reference of PLUGINS. Numbers are those of the enums of quantize.h and converter.h. */

static void fill(tt_tensor *t)
{
    const size_t n = (size_t)tt_tensor_numel(t);
    if (fread(t->data, sizeof(float), n, stdin) != n) {
        fprintf(stderr, "product_tool: the input ends too early\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int64_t v[10];
    eval e;
    for (int i = 0; i < 10; i++)
        v[i] = argc > i + 1 ? atoll(argv[i + 1]) : 0;
    eval_init(&e, backend_load("reference"), false);
    tt_product p = {.struct_size = sizeof p, .role = (tt_product_role)v[5]};
    tt_value *x[2];
    tt_quantize_opts o[2];
    for (int i = 0; i < 2; i++) {
        const tt_dim dims[] = {TT_DIM(v[6 + 2 * i], NULL), TT_DIM(v[7 + 2 * i], NULL)};
        x[i] = leaf_of(&e, TT_F32, 0, 1, 2, dims);
        o[i] = low_blocks(&p, (low_side)i, (tt_low_format)v[0], (tt_scale_rule)v[1], v[2],
                          i ? v[4] : v[3]);
    }
    tt_value *y = low_scaled_product(e.b, &p, x[0], &o[0], x[1], &o[1]);
    eval_prepare(&e);
    for (int i = 0; i < 2; i++)
        fill(&e.tensors[x[i]->id]);
    eval_run(&e, e.g->nodes.n);
    const tt_tensor *t = &e.tensors[y->id];
    fwrite(t->data, sizeof(float), (size_t)tt_tensor_numel(t), stdout);
    eval_release(&e);
    return 0;
}
