/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* Attributes are compared by their bytes, and all ranks must find the same nodes equal. So no byte may be what
 * happened to be on the stack: every case is built twice, each time on a stack full of another number. */

static const tt_backend_vt *backend;

__attribute__((noinline)) static void fill_stack(int with)
{
    volatile char below[32768];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = (char)with;
}

static void build(eval *e, size_t c, bool decompose, int with)
{
    tt_value *y[TT_MAX_OUTS] = {0}, *dy[TT_MAX_OUTS] = {0}, *grads[24] = {0};
    eval_init(e, backend, decompose);
    fill_stack(with);
    const int n_y = cases[c].fn(e, y);
    if (tt_builder_error(e->b) != NULL)
        fail_msg("%s: %s", cases[c].name, tt_builder_error(e->b)->text);
    for (int k = 0; k < n_y; k++)
        dy[k] = leaf_of(e, TT_F64, -1, 1, y[k]->type.n_dims, y[k]->type.dims);
    fill_stack(with);
    eval_backward(e, y, dy, n_y, grads);
}

static int compare(size_t c, bool decompose)
{
    eval a, b;
    int compared = 0;
    build(&a, c, decompose, 0x55);
    build(&b, c, decompose, 0xaa);
    assert_int_equal(a.g->nodes.n, b.g->nodes.n);
    for (size_t i = 0; i < a.g->nodes.n; i++) {
        const tt_node *x = a.g->nodes.items[i], *y = b.g->nodes.items[i];
        assert_ptr_equal(x->op, y->op);
        if (x->attrs && memcmp(x->attrs, y->attrs, x->op->attrs_size) != 0)
            fail_msg("%s: the attributes of %s have bytes that nobody sets", cases[c].name,
                     x->op->name);
        compared += x->attrs != NULL;
    }
    eval_release(&a);
    eval_release(&b);
    return compared;
}

static void test_attributes_have_no_bytes_of_the_stack(void **state)
{
    int compared = 0;
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++)
        compared += compare(c, false) + compare(c, true);
    assert_true(compared > 500);
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes_have_no_bytes_of_the_stack),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
