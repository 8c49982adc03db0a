/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/tokenizers/byte.c"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_byte_encodes_every_byte_as_itself(void **state)
{
    (void)state;
    char text[256], back[256], one[8];
    tt_ids ids = {0};
    tt_error err;
    void *self = NULL;
    assert_int_equal(open_byte(NULL, &self, &err), TT_OK);
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    assert_int_equal(byte_encode(self, text, sizeof text, &ids, &err), TT_OK);
    assert_int_equal(ids.n, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(ids.ids[i], i);
        assert_int_equal(byte_decode(self, ids.ids[i], back + i, 1), 1);
    }
    assert_memory_equal(back, text, sizeof text);
    for (int32_t id = 256; id < VOCAB; id++)
        assert_int_equal(byte_decode(self, id, one, sizeof one), 0);
    assert_int_equal(byte_decode(self, -1, one, sizeof one), 0);
    assert_int_equal(byte_decode(self, 65, one, 0), 0);
    tt_ids_free(&ids);
    close_byte(self);
}

static void test_byte_info_has_262_ids(void **state)
{
    (void)state;
    tt_tokenizer_info i = {.struct_size = sizeof i};
    info(NULL, &i);
    assert_int_equal(i.vocab_size, 262);
    assert_int_equal(i.bos, 256);
    assert_int_equal(i.eos, 257);
    assert_int_equal(i.pad, 258);
    assert_int_equal(strlen(i.fingerprint), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_encodes_every_byte_as_itself),
        cmocka_unit_test(test_byte_info_has_262_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
