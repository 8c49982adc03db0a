/* SPDX-License-Identifier: Apache-2.0 */
#include "train/console.h"
#include <math.h>
#include <setjmp.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void check_line(int64_t step, const tt_metric *m, size_t n, int validation, const char *want)
{
    const tt_metrics_record r = {sizeof r, step, 0.0, m, n, validation};
    tt_str out = {0};
    if (validation)
        tt_console_validation(&r, &out);
    else
        tt_console_step(&r, &out);
    assert_string_equal(tt_str_get(&out), want);
    tt_str_free(&out);
}

static void test_console_step_is_the_documented_line(void **state)
{
    (void)state;
    static const tt_metric m[] = {
        {"loss",      8.0491},
        {"grad_norm", 1.9   },
        {"mem_gib",   0.41  },
        {"tps",       12345 },
        {"tflops",    0.88  },
        {"mfu",       0.412 },
        {"lr",        0.0008}
    };
    static const tt_metric large[] = {
        {"loss",      12.3456789 },
        {"grad_norm", 123.45678  },
        {"mem_gib",   100.5      },
        {"tps",       1234567.6  },
        {"tflops",    1234.5     },
        {"mfu",       (double)NAN}
    };
    static const tt_metric low[] = {
        {"loss",      1  },
        {"grad_norm", 0  },
        {"mem_gib",   0  },
        {"tps",       999},
        {"tflops",    0  }
    };
    static const tt_metric ranks[] = {
        {"loss",              8.0491},
        {"grad_norm",         1.9   },
        {"mem_gib",           0.41  },
        {"tps",               12345 },
        {"tflops",            0.88  },
        {"mfu",               0.412 },
        {"time_s",            2     },
        {"time/comm_exposed", 0.25  }
    };
    check_line(1, ranks, COUNT(ranks), 0,
               "step:  1  loss:  8.04910  grad_norm:  1.9000  memory:  0.41GiB  tps: 12,345  "
               "tflops: 0.88  mfu: 41.2%  comm: 12.5%");
    check_line(1, m, COUNT(m), 0,
               "step:  1  loss:  8.04910  grad_norm:  1.9000  memory:  0.41GiB  tps: 12,345  "
               "tflops: 0.88  mfu: 41.2%  lr: 8.00e-04");
    check_line(12345, large, COUNT(large), 0,
               "step: 12345  loss: 12.34568  grad_norm: 123.4568  memory: 100.50GiB  tps: "
               "1,234,568  tflops: 1,234.50"
               "  mfu: N/A");
    static const tt_metric logged[] = {
        {"loss",           1   },
        {"grad_norm",      0   },
        {"lr",             1   },
        {"losses/mtp_1",   2.5 },
        {"rewards/margin", 0.25},
        {"loss_max",       7   },
        {"weight_norm",    7   },
        {"mem_gib",        0   },
        {"tps",            999 },
        {"tflops",         0   }
    };
    check_line(2, logged, COUNT(logged), 0,
               "step:  2  loss:  1.00000  grad_norm:  0.0000  memory:  0.00GiB  tps: 999  tflops: "
               "0.00  mfu: N/A  lr: 1.00e+00  losses/mtp_1: 2.5  rewards/margin: 0.25");
    check_line(2, low, COUNT(low), 0,
               "step:  2  loss:  1.00000  grad_norm:  0.0000  memory:  0.00GiB  tps: 999  tflops: "
               "0.00  mfu: N/A");
}

static void test_console_validation_line(void **state)
{
    (void)state;
    static const tt_metric m[] = {
        {"validation/loss", 8.0491},
        {"mem_gib",         0.41  }
    };
    check_line(5, m, 1, 1, "validate step:  5  loss:  8.0491");
    check_line(5, m, 2, 1, "validate step:  5  loss:  8.0491  memory:  0.41GiB");
}

static void check_fit(const tt_metric *m, size_t n, int width, bool ranks, const char *want)
{
    const tt_metrics_record r = {sizeof r, 840, 0.0, m, n, 0};
    tt_str out = {0};
    tt_console_step_fit(&r, width, ranks, &out);
    assert_string_equal(tt_str_get(&out), want);
    assert_true((int)out.n < width || width < 28);
    tt_str_free(&out);
}

static void test_console_line_fits_the_terminal(void **state)
{
    (void)state;
    static const tt_metric m[] = {
        {"loss",              2.34567},
        {"grad_norm",         1.9    },
        {"lr",                8e-4   },
        {"mem_gib",           0.41   },
        {"tps",               12345  },
        {"tflops",            0.88   },
        {"mfu",               0.412  },
        {"time_s",            2      },
        {"time/comm_exposed", 0.25   }
    };
    static const tt_metric large[] = {
        {"loss",      12.34567   },
        {"grad_norm", 123.456    },
        {"lr",        1e-12      },
        {"mem_gib",   100.5      },
        {"tps",       1234567    },
        {"tflops",    1234.5     },
        {"mfu",       (double)NAN}
    };
    check_fit(m, COUNT(m), 200, false,
              "step:   840  loss:  2.34567  grad_norm:  1.9000  lr: 8.00e-04  tps:  12,345  "
              "mfu: 41.2%  memory:  420 MiB");
    check_fit(m, COUNT(m), 200, true,
              "step:   840  loss:  2.34567  grad_norm:  1.9000  lr: 8.00e-04  tps/rank:  12,345  "
              "mfu: 41.2%  memory:  420 MiB  comm: 12.5%");
    check_fit(m, COUNT(m), 80, false,
              "step:  840  loss:  2.3457  norm:  1.900  lr: 8.0e-04  tps:  12,345  mfu: 41.2%");
    check_fit(m, COUNT(m), 80, true,
              "step:  840  loss:  2.3457  norm:  1.900  lr: 8.0e-04  tps:  12,345  mfu: 41.2%");
    check_fit(m, COUNT(m), 60, false, "step:  840  loss:  2.3457  lr: 8.0e-04  tps:  12,345");
    check_fit(m, COUNT(m), 30, false, "step:  840  loss:  2.3457");
    check_fit(m, COUNT(m), 5, false, "step:  840  loss:  2.3457"); /* these two always */
    static const tt_metric dpo[] = {
        {"loss",             0.6931},
        {"grad_norm",        1.9   },
        {"lr",               8e-4  },
        {"rewards/chosen",   0.125 },
        {"rewards/rejected", -0.125},
        {"rewards/accuracy", 0.75  },
        {"rewards/margin",   0.25  },
        {"mem_gib",          0.41  },
        {"tps",              12345 },
        {"tflops",           0.88  }
    };
    check_fit(
        dpo, COUNT(dpo), 250, false,
        "step:   840  loss:  0.69310  grad_norm:  1.9000  lr: 8.00e-04  tps:  12,345  "
        "tflops: 0.88  memory:  420 MiB  rewards/chosen:    0.125  rewards/rejected:   -0.125  "
        "rewards/accuracy:     0.75  rewards/margin:     0.25");
    check_fit(dpo, COUNT(dpo), 110, false,
              "step:  840  loss:  0.6931  tps:  12,345  chosen: 0.125  rejected: -0.125  "
              "accuracy: 0.75  margin: 0.25");
    check_fit(dpo, COUNT(dpo), 80, false,
              "step:  840  loss:  0.6931  tps:  12,345  chosen: 0.125  rejected: -0.125");
    check_fit(large, COUNT(large), 80, false,
              "step:  840  loss: 12.3457  norm: 123.456  lr: 1.0e-12  tps: 1,234,567");
    check_fit(large, COUNT(large), 160, false,
              "step:   840  loss: 12.34567  grad_norm: 123.4560  lr: 1.00e-12  tps: 1,234,567  "
              "tflops: 1,234.50  memory: 100.50 GiB");
}

static tt_progress bar_at(int64_t done, bool tty, int width)
{
    return (tt_progress){.title = "train",
                         .total = 2000,
                         .done = done,
                         .loss = 2.34567,
                         .rate = 12345,
                         .tty = tty,
                         .width = width};
}

static void test_progress_shows_share_loss_speed_and_time_left(void **state)
{
    (void)state;
    char text[256];
    tt_progress p = bar_at(840, true, 80);
    tt_progress_format(&p, 42000000000, text, sizeof text); /* 20 steps a second, 1160 to go */
    assert_string_equal(
        text, "train  42% [######..........]  840/2,000  loss 2.3457  12,345 tok/s  0:58 left");
    assert_true(strlen(text) < 80);
    p = bar_at(840, true, 66); /* no room for the bar */
    p.unit = "tps/rank";
    tt_progress_format(&p, 42000000000, text, sizeof text);
    assert_string_equal(text, "train  42%  840/2,000  loss 2.3457  12,345 tps/rank  0:58 left");
    static const char *const narrow[] = {"train  42%  840/2,000  loss 2.3457  0:58 left",
                                         "train  42%  840/2,000  0:58 left",
                                         "train  42%  840/2,000", "train  42%  840/2,000"};
    static const int widths[] = {46, 33, 22, 1};
    for (size_t i = 0; i < COUNT(widths); i++) { /* what does not fit is left out, the rate first */
        p = bar_at(840, true, widths[i]);
        tt_progress_format(&p, 42000000000, text, sizeof text);
        assert_string_equal(text, narrow[i]);
    }
    p = bar_at(840, false, 80);
    p.begin_done = 800; /* resumed: 40 steps took 42 s */
    p.loss = p.rate = (double)NAN;
    tt_progress_format(&p, 42000000000, text, sizeof text);
    assert_string_equal(text, "train  42%  840/2,000  20:18 left");
    p = bar_at(2000, true, 200);
    tt_progress_format(&p, 36000000000000, text, sizeof text);
    assert_string_equal(text, "train 100% [########################################]  2,000/2,000  "
                              "loss 2.3457  12,345 tok/s"
                              "  0:00 left");
    p = bar_at(0, true, 80);
    p.loss = p.rate = (double)NAN;
    tt_progress_format(&p, 4000000000000, text, sizeof text);
    assert_string_equal(
        text, "train   0% [........................................]  0/2,000  1:06:40 so far");
    p.total = 0;
    p.done = 7000;
    tt_progress_format(&p, 61000000000, text, sizeof text);
    assert_string_equal(text, "train  7,000  1:01 so far");
}

/* What the bar writes to a pipe in place of the terminal. */
static size_t drawn(tt_progress *p, int in, char *buf, size_t size)
{
    fflush(stderr);
    close(p->fd);
    ssize_t n = 0, k;
    while ((k = read(in, buf + n, size - 1 - (size_t)n)) > 0)
        n += k;
    buf[n] = '\0';
    close(in);
    return (size_t)n;
}

static void test_progress_redraws_at_most_ten_times_per_second(void **state)
{
    (void)state;
    int ends[2];
    char text[4096];
    tt_progress p;
    assert_int_equal(pipe(ends), 0);
    tt_progress_init(&p, "read", 0, 1000, false);
    p.tty = true;
    p.fd = ends[1];
    for (int i = 0; i < 1000; i++)
        tt_progress_update(&p, i, (double)NAN, (double)NAN);
    tt_progress_finish(&p);
    tt_progress_finish(&p);
    const size_t n = drawn(&p, ends[0], text, sizeof text);
    int draws = 0;
    for (size_t i = 0; i < n; i++)
        draws += text[i] == '\r';
    assert_in_range(draws, 3, 9); /* two for each drawing, and the clearing */
    assert_null(strchr(text, '\n'));
    assert_string_equal(text + n - 4, "\r\033[J");
    assert_memory_equal(text + n - 8, "\033[J\r", 4); /* the cursor waits where the bar begins */
}

static void test_progress_is_silent_at_first_without_a_terminal(void **state)
{
    (void)state;
    int ends[2];
    char text[4096];
    tt_progress p;
    assert_int_equal(pipe(ends), 0);
    tt_progress_init(&p, "read", 0, 10, false);
    p.tty = false;
    p.fd = ends[1];
    tt_progress_update(&p, 1, (double)NAN, (double)NAN);
    p.begin_ns -= 3000000000; /* three seconds later */
    tt_progress_update(&p, 5, (double)NAN, (double)NAN);
    tt_progress_update(&p, 6, (double)NAN, (double)NAN); /* too soon again */
    tt_progress_finish(&p);
    drawn(&p, ends[0], text, sizeof text);
    assert_string_equal(text, "read  50%  5/10  0:03 left\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_console_step_is_the_documented_line),
        cmocka_unit_test(test_console_validation_line),
        cmocka_unit_test(test_console_line_fits_the_terminal),
        cmocka_unit_test(test_progress_shows_share_loss_speed_and_time_left),
        cmocka_unit_test(test_progress_redraws_at_most_ten_times_per_second),
        cmocka_unit_test(test_progress_is_silent_at_first_without_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
