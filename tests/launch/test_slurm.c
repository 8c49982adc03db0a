/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/slurm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Slurm's lists of nodes, good and hostile ones, and where a step meets. */

static void is_list(const char *list, const char *first, int64_t n)
{
    char host[256] = "";
    int64_t found = 0;
    tt_error err = {0};
    if (tt_slurm_list(list, host, sizeof host, &found, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_string_equal(host, first);
    assert_int_equal(found, n);
}

static void test_lists_have_a_first_host_and_a_number(void **state)
{
    (void)state;
    is_list("n1", "n1", 1);
    is_list("n[01-03,7],gpu-1", "n01", 5);
    is_list("gpu-1,n[01-03,7]", "gpu-1", 5);
    is_list("rack[2-3]n[008-011]", "rack2n008", 8);
    is_list("a.example.org,b_2", "a.example.org", 2);
    is_list("[7-9]x", "7x", 3);
    is_list("n[0-1048575]", "n0", 1048576);
}

static void is_wrong(const char *list, const char *text)
{
    char host[256];
    int64_t n;
    tt_error err = {0};
    assert_int_equal(tt_slurm_list(list, host, sizeof host, &n, &err), TT_EINVAL);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in: %s", text, err.text);
}

static void test_hostile_lists_are_errors(void **state)
{
    char lengthy[400];
    (void)state;
    is_wrong("", "a host without a name");
    is_wrong("n1,", "a host without a name");
    is_wrong("n1,,n2", "a host without a name");
    is_wrong("n[1-3", "a bracket is not closed");
    is_wrong("n[", "expected a number");
    is_wrong("n[]", "expected a number");
    is_wrong("n[1-]", "expected a range");
    is_wrong("n[3-1]", "expected a range");
    is_wrong("n[1,[2]]", "expected a number");
    is_wrong("n]", "no host's name has");
    is_wrong("n[0-999999999]", "too many hosts");
    is_wrong("n[0-99999999999999999999]", "expected a range");
    is_wrong("n[0-9999][0-9999]", "too many hosts");
    is_wrong("n[0-1048575],m", "too many hosts");
    is_wrong("a;reboot", "no host's name has");
    is_wrong("$(id)", "no host's name has");
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    is_wrong(lengthy, "too long");
}

/* Random texts of the grammar's characters end, and a list that is taken has a name that fits. */
static void test_random_lists_end(void **state)
{
    static const char letters[] = "n1290[]-,[]-,.x \xff";
    uint64_t random = 88172645463325252u;
    int good = 0;
    (void)state;
    for (int i = 0; i < 300000; i++) {
        char list[40], host[12];
        int64_t n = 0;
        size_t k = 0;
        tt_error err = {0};
        for (; k < sizeof list - 1; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if (random % 16 == 0)
                break;
            list[k] = letters[random / 16 % (sizeof letters - 1)];
        }
        list[k] = 0;
        if (tt_slurm_list(list, host, sizeof host, &n, &err) != TT_OK)
            continue;
        good++;
        assert_true(n >= 1 && n <= 1 << 20);
        assert_in_range(strlen(host), 1, sizeof host - 1);
    }
    assert_true(good > 1000);
}

static const char *const *variables;

static char *get(const char *name)
{
    for (const char *const *v = variables; v[0]; v += 2)
        if (!strcmp(v[0], name))
            return (char *)(uintptr_t)v[1];
    return NULL;
}

static void test_a_step_meets_at_its_first_host(void **state)
{
    tt_slurm s;
    tt_error err = {0};
    (void)state;
    variables = (const char *[]){"SLURM_JOB_NODELIST",
                                 "z[1-9]",
                                 "SLURM_STEP_NODELIST",
                                 "n[04-05]",
                                 "SLURM_JOB_ID",
                                 "1234567",
                                 "SLURM_STEP_ID",
                                 "2",
                                 NULL};
    assert_int_equal(tt_slurm_read(get, &s, &err), TT_OK);
    assert_string_equal(s.host, "n04");
    assert_int_equal(s.n_hosts, 2);
    assert_int_equal(s.port, 20000 + 2 * (1234567 + 202) % 20000);
    assert_string_equal(s.id, "slurm 1234567.2.0");
    variables = (const char *[]){"SLURM_JOB_ID", "1", NULL};
    assert_int_equal(tt_slurm_read(get, &s, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "--master_addr"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_have_a_first_host_and_a_number),
        cmocka_unit_test(test_hostile_lists_are_errors),
        cmocka_unit_test(test_random_lists_end),
        cmocka_unit_test(test_a_step_meets_at_its_first_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
