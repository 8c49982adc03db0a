/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include "exec/job.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The memory of a plan. Each space asks for huge pages. Memory that an optimizer reads before it
 * writes is resident before step 1, and memory that no op has used yet is not. */

/* dim 160 makes each space larger than the least size that asks for huge pages, and each
 * optimizer state larger than a page. */
static const char overrides[] =
    "model.args.dim 160 model.args.hidden_dim 512 model.args.n_heads 10 "
    "training.seq_len 256 backend.threads 2";

/* The flags of the mapping that holds p, from /proc/self/smaps: " rd wr … hg". */
static bool mapping_flags(const void *p, char *flags, size_t size)
{
    char line[1024];
    bool inside = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    flags[0] = '\0';
    while (!flags[0] && fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = (unsigned long)(uintptr_t)p - begin < end - begin;
        else if (inside && !strncmp(line, "VmFlags:", 8))
            snprintf(flags, size, "%s", line + 8);
    }
    fclose(f);
    return flags[0] != '\0';
}

/* How much of [p, p + bytes) is resident, in whole pages. */
static double resident(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)p + page - 1) / page * page,
                    end = ((uintptr_t)p + bytes) / page * page;
    const size_t n = (end - begin) / page;
    size_t there = 0;
    assert_true(end > begin);
    unsigned char *map = calloc(n, 1);
    assert_int_equal(mincore((void *)begin, end - begin, map), 0);
    for (size_t i = 0; i < n; i++)
        there += map[i] & 1;
    free(map);
    return (double)there / (double)n;
}

static void test_spaces_ask_for_huge_pages(void **state)
{
    char flags[1024];
    tt_error err = {0};
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
        skip(); /* this kernel has none */
    job_open(&j, overrides);
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    for (int space = TT_SPACE_STATE; space < TT_N_SPACES; space++) {
        if (r.plan->bytes[space] < 4 << 20)
            continue;
        assert_true(mapping_flags(r.exec->space[space], flags, sizeof flags));
        if (!strstr(flags, " hg"))
            fail_msg("space %d asks for no huge pages:%s", space, flags);
    }
    tt_rank_close(&r);
    job_close(&j);
}

static void test_moments_are_mapped_before_step_1(void **state)
{
    tt_error err = {0};
    job j;
    tt_rank r;
    tt_exec_tensor *t;
    size_t moments = 0;
    const tt_dist d = {.world = 1};
    (void)state;
    job_open(&j, overrides);
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    const size_t n = tt_exec_tensors(r.exec, j.arena, &t);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes =
            (size_t)tt_tensor_numel(&t[i].tensor) * tt_dtype_size(t[i].tensor.dtype);
        if (!t[i].suffix || bytes < 1 << 16)
            continue;
        moments++;
        assert_true(resident(t[i].tensor.data, bytes) == 1.0);
        for (size_t k = 0; k < bytes / sizeof(float); k++)
            assert_true(((float *)t[i].tensor.data)[k] == 0.0f);
    }
    assert_true(moments > 0);
    /* pages of work become resident when ops use them, on the threads that run these ops */
    assert_true(resident(r.exec->space[TT_SPACE_WORK], r.exec->mapped[TT_SPACE_WORK]) < 0.5);
    tt_rank_close(&r);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spaces_ask_for_huge_pages),
        cmocka_unit_test(test_moments_are_mapped_before_step_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
