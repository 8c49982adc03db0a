/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RECIPES_H
#define TT_RECIPES_H
#include "cost/cost.h"

/* tools/estimate/recipes.c: for each matrix product of a job, whether a recipe of low precision pays on a
 * machine. `ttrun plan --recipes` prints it. */

#define TT_N_RECIPES 6
const char *tt_recipe_name(int recipe);
/* Has the machine the recipe's products? */
bool tt_recipe_runs(int recipe, const tt_machine *m);
/* The time of a layer's three products, y [rows,out], dx [rows,in] and dw [out,in], with the casts of
 * their operands; recipe -1: in bf16. */
double tt_recipe_seconds(int recipe, const tt_machine *m, double rows, double out, double in);

typedef struct tt_product_shape { /* layers of one local shape */
    double rows, out, in;         /* of the busiest rank; of experts: the rows of one */
    double count;                 /* layers; each expert is one */
    char names[160];              /* "q_proj, o_proj" */
} tt_product_shape;
typedef struct tt_product_shapes {
    tt_product_shape items[48];
    int n;
} tt_product_shapes;
/* Those of a compiled graph, those with the most work first. */
void tt_product_shapes_find(const tt_graph *g, tt_product_shapes *out);

void tt_recipes_text(const tt_graph *g, const tt_machine *m, tt_str *o);
void tt_recipes_json(const tt_graph *g, const tt_machine *m, tt_str *o);

#endif
