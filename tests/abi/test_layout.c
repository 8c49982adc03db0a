/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <ttrun/ttrun.h>

#include <cmocka.h>

/* The layout of the public structs, checked at compile time. make_layout.py writes v0_1.def, so a
 * change of a struct appears as a change of that file. While the ABI is 0.x a struct may change:
 * run make_layout.py again, and raise TT_ABI_MINOR if the current minor has been released. */

_Static_assert(TT_ABI_MAJOR == 0 && TT_ABI_MINOR == 1, "a new minor has a .def file of its own");

#define AT(type, field, offset)                                                                    \
    _Static_assert(offsetof(type, field) == offset,                                                \
                   #type "." #field " moved: run make_layout.py; see above");
#define SIZE(type, size)                                                                           \
    _Static_assert(sizeof(type) == size, #type " changed its size: run make_layout.py; see "       \
                                               "above");
#if UINTPTR_MAX == UINT64_MAX
#include "v0_1.def"
#endif
#undef AT
#undef SIZE

static void test_layout_head_of_descriptor_never_moves(void **state)
{
    (void)state;
    assert_int_equal(offsetof(tt_plugin, magic), 0);
    assert_int_equal(offsetof(tt_plugin, abi_major), 4);
    assert_int_equal(offsetof(tt_plugin, abi_minor), 6);
    assert_int_equal(offsetof(tt_plugin, struct_size), 8);
    assert_int_equal(TT_PLUGIN_MAGIC, 0x6e757274);
}

static void test_layout_enum_values_stay(void **state)
{
    static const int kinds[] = {
        TT_KIND_TRAIN_SPEC, TT_KIND_MODEL,     TT_KIND_TOKENIZER,    TT_KIND_DATALOADER,
        TT_KIND_LOSS,       TT_KIND_OPTIMIZER, TT_KIND_LR_SCHEDULER, TT_KIND_METRICS,
        TT_KIND_CONVERTER,  TT_KIND_BACKEND,   TT_KIND_COMM,         TT_KIND_HOOK,
        TT_KIND_OP,         TT_KIND_KERNELS,
    };
    static const int dtypes[] = {TT_F32, TT_BF16, TT_F16,  TT_F64,    TT_I32,
                                 TT_I64, TT_U8,   TT_BOOL, TT_F8E4M3, TT_F8E5M2};
    static const int options[] = {TT_OPT_BOOL, TT_OPT_INT,     TT_OPT_FLOAT, TT_OPT_STRING,
                                  TT_OPT_ENUM, TT_OPT_STRINGS, TT_OPT_JSON,  TT_OPT_CHOICE};
    (void)state;
    for (int i = 0; i < (int)TT_COUNT(kinds); i++)
        assert_int_equal(kinds[i], i + 1);
    for (int i = 0; i < (int)TT_COUNT(dtypes); i++)
        assert_int_equal(dtypes[i], i);
    for (int i = 0; i < (int)TT_COUNT(options); i++)
        assert_int_equal(options[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_head_of_descriptor_never_moves),
        cmocka_unit_test(test_layout_enum_values_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
