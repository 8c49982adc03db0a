/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <ttrun/hmac.h>

#include <cmocka.h>

/* HMAC-SHA-256: the test cases of RFC 4231. */

static void gives(const void *key, size_t n_key, const void *data, size_t n, const char *hex)
{
    uint8_t mac[TT_HMAC_BYTES], other[TT_HMAC_BYTES];
    char text[2 * TT_HMAC_BYTES + 1];
    tt_hmac_sha256(key, n_key, data, n, mac);
    for (int i = 0; i < TT_HMAC_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", mac[i]);
    assert_string_equal(text, hex);
    memcpy(other, mac, sizeof other);
    assert_true(tt_hmac_equal(mac, other));
    for (int i = 0; i < TT_HMAC_BYTES; i++) {
        other[i] ^= 1;
        assert_false(tt_hmac_equal(mac, other));
        other[i] ^= 1;
    }
}

static void test_vectors_of_rfc_4231(void **state)
{
    char key[131], data[50];
    (void)state;
    memset(key, 0x0b, 20);
    gives(key, 20, "Hi There", 8,
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    gives("Jefe", 4, "what do ya want for nothing?", 28,
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    gives(key, 20, data, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    gives(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors_of_rfc_4231)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
