/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONVERT_IMPL_H
#define TT_CONVERT_IMPL_H
#include "passes/passes.h"

/* Shared by convert.c and convert_ask.c. */

/* Fails unless y, which converter i returned for p, is a float with t's dims. */
bool tt_convert_has_shape(tt_builder *b, const tt_convert_opts *o, int i, const tt_product *p,
                          const tt_value *y, const tt_type *t);
/* y in this dtype. A partial sum stays one, as in the product itself. */
tt_value *tt_convert_with_dtype(tt_builder *b, tt_value *y, tt_dtype to);
/* Converter i has TT_CONVERTER_FINAL: fails if a later one would replace the product, too. */
void tt_convert_check_final(tt_builder *b, const tt_convert_opts *o, int i, const tt_product *p,
                            const tt_param_info *info);
/* An operand of attention (0 q, 1 k, 2 v, 3 dout) in a scope, as a product. */
void tt_convert_describe_operand(tt_builder *b, int operand, tt_value *v, const char *scope,
                                 tt_product *p);
/* The operand as the converters leave it, one after another; NULL: they leave it as it is. */
tt_value *tt_convert_ask_operand(tt_builder *b, const tt_convert_opts *o, tt_product *p);

#endif
