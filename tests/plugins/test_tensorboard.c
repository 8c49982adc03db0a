/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../../plugins/metrics/tensorboard.c"
#include "folder_test.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_tensorboard_crc_is_crc32c(void **state)
{
    (void)state;
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xE3069283u);
    assert_int_equal(masked_crc((const uint8_t *)"123456789", 9), 0xC78AB0E5u);
}

static uint64_t get_varint(const uint8_t **p)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        const uint8_t byte = *(*p)++;
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return x;
    }
}

/* The value of a tag in an Event, and its step; NaN if the tag is not there. */
static double find(const uint8_t *p, size_t n, const char *tag, uint64_t *step)
{
    const uint8_t *end = p + n, *summary = NULL, *summary_end = NULL;
    while (p < end) {
        const uint64_t key = get_varint(&p);
        if (key == (1 << 3 | FIXED64)) {
            p += 8;
        } else if (key == (2 << 3 | VARINT)) {
            *step = get_varint(&p);
        } else {
            const uint64_t size = get_varint(&p);
            if (key == (5 << 3 | LENGTH)) {
                summary = p;
                summary_end = p + size;
            }
            p += size;
        }
    }
    while (summary < summary_end) {
        assert_int_equal(get_varint(&summary), 1 << 3 | LENGTH);
        (void)get_varint(&summary); /* size of the Value: a tag and a float, read below */
        assert_int_equal(get_varint(&summary), 1 << 3 | LENGTH);
        const size_t k = (size_t)get_varint(&summary);
        const uint8_t *name = summary;
        float x;
        summary += k;
        assert_int_equal(get_varint(&summary), 2 << 3 | FIXED32);
        memcpy(&x, summary, 4);
        summary += 4;
        if (strlen(tag) == k && memcmp(tag, name, k) == 0)
            return (double)x;
    }
    return (double)NAN;
}

static size_t read_events(const char *folder, uint8_t *buf, size_t cap)
{
    char path[TEST_FOLDER + 400], dir[TEST_FOLDER + 60];
    size_t n = 0;
    snprintf(dir, sizeof dir, "%s/tb", folder);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        n = fread(buf, 1, cap, f);
        fclose(f);
    }
    closedir(d);
    return n;
}

static void test_tensorboard_records_read_back(void **state)
{
    (void)state;
    char folder[TEST_FOLDER], command[TEST_FOLDER + 20];
    static const tt_metric m[] = {
        {"step",            7          },
        {"loss",            2.5        },
        {"mfu",             0.25       },
        {"tps",             1000       },
        {"time_s",          2          },
        {"time/data",       1          },
        {"tflops",          (double)NAN},
        {"time/optimizer",  0.5        },
        {"mem_gib",         1.5        },
        {"lr",              0.125      },
        {"validation/loss", 3          },
        {"n_tokens_seen",   4096       }
    };
    assert_true(test_folder("tb", folder));
    const tt_metrics_env env = {.struct_size = sizeof env, .dump_folder = folder, .resume_step = 6};
    const tt_metrics_record r = {sizeof r, 7, 1.75e9, m, TT_COUNT(m), 0};
    void *self = NULL;
    tt_error err;
    assert_int_equal(open_sink(&(config){.folder = "tb"}, &env, &self, &err), TT_OK);
    assert_int_equal(log_record(self, &r, &err), TT_OK);
    uint8_t buf[4096];
    const size_t n = read_events(folder, buf, sizeof buf); /* before close: flushed */
    close_sink(self);
    int count = 0;
    for (size_t at = 0; at < n; count++) {
        uint64_t size, step = 0;
        uint32_t crc;
        memcpy(&size, buf + at, 8);
        memcpy(&crc, buf + at + 8, 4);
        assert_int_equal(crc, masked_crc(buf + at, 8));
        const uint8_t *event = buf + at + 12;
        assert_true(at + 16 + size <= n);
        memcpy(&crc, event + size, 4);
        assert_int_equal(crc, masked_crc(event, size));
        at += 16 + size;
        if (count == 0)
            assert_memory_equal(event + 9,
                                "\x1a\x0d"
                                "brain.Event:2",
                                15);
        if (count < 2)
            continue;
        assert_true(find(event, size, "loss_metrics/global_avg_loss", &step) == 2.5);
        assert_int_equal(step, 7);
        assert_true(find(event, size, "mfu(%)", &step) == 25.0);
        assert_true(find(event, size, "throughput(tps)", &step) == 1000.0);
        assert_true(find(event, size, "time_metrics/data_loading(%)", &step) == 50.0);
        assert_true(find(event, size, "time_metrics/optimizer(s)", &step) == 0.5);
        assert_true(find(event, size, "memory/max_active(GiB)", &step) == 1.5);
        assert_true(find(event, size, "validation_metrics/loss", &step) == 3.0);
        assert_true(find(event, size, "n_tokens_seen", &step) == 4096.0);
        assert_true(isnan(find(event, size, "tflops", &step))); /* NaN is left out */
        assert_true(isnan(find(event, size, "step", &step)));
    }
    assert_int_equal(count, 3);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensorboard_crc_is_crc32c),
        cmocka_unit_test(test_tensorboard_records_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
