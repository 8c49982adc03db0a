/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/slurm.h"
#include <stdlib.h>
#include <string.h>

#define MOST_HOSTS (INT64_C(1) << 20)
#define MOST_DIGITS 9
#define MOST_BYTES (1 << 20)

typedef struct hosts {
    const char *at;
    char *first; /* the first host so far */
    size_t n_first, size;
    int64_t n; /* hosts of the element that is read */
} hosts;

static bool slurm_keep(hosts *h, const char *text, size_t n)
{
    if (h->n_first + n >= h->size)
        return false;
    memcpy(h->first + h->n_first, text, n);
    h->n_first += n;
    h->first[h->n_first] = 0;
    return true;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

/* Digits; false: none, or too many. */
static bool read_digits(hosts *h, int64_t *out)
{
    const char *begin = h->at;
    for (*out = 0; *h->at >= '0' && *h->at <= '9' && h->at - begin < MOST_DIGITS; h->at++)
        *out = 10 * *out + (*h->at - '0');
    return h->at > begin && !(*h->at >= '0' && *h->at <= '9');
}

/* "[01-03,7]" */
static const char *read_bracket(hosts *h, bool is_first)
{
    int64_t n = 0;
    h->at++;
    for (bool begun = false;; begun = true) {
        int64_t low, high;
        const char *begin = h->at;
        if (!read_digits(h, &low))
            return "expected a number in brackets";
        if (!begun && is_first && !slurm_keep(h, begin, (size_t)(h->at - begin)))
            return "a host's name is too long";
        high = low;
        if (*h->at == '-') {
            h->at++;
            if (!read_digits(h, &high) || high < low)
                return "expected a range like 01-03";
        }
        n += high - low + 1;
        if (n > MOST_HOSTS)
            return "too many hosts";
        if (*h->at == ']')
            break;
        if (*h->at != ',')
            return "a bracket is not closed";
        h->at++;
    }
    h->at++;
    h->n *= n;
    return h->n > MOST_HOSTS ? "too many hosts" : NULL;
}

/* One element, to a comma or the end. */
static const char *read_host(hosts *h, bool is_first)
{
    const char *begin = h->at, *wrong = NULL;
    h->n = 1;
    while (!wrong && *h->at && *h->at != ',') {
        if (*h->at == '[') {
            wrong = read_bracket(h, is_first);
        } else if (!is_name(*h->at)) {
            wrong = "a character that no host's name has";
        } else {
            if (is_first && !slurm_keep(h, h->at, 1))
                wrong = "a host's name is too long";
            h->at++;
        }
    }
    if (!wrong && h->at == begin)
        wrong = "a host without a name";
    return wrong;
}

tt_status tt_slurm_list(const char *list, char *first, size_t size, int64_t *n, tt_error *err)
{
    hosts h = {.at = list, .first = first, .size = size};
    const char *wrong = strnlen(list, MOST_BYTES) == MOST_BYTES ? "it is too long" : NULL;
    int64_t total = 0;
    for (bool more = !wrong; more; h.at++) {
        wrong = read_host(&h, total == 0);
        total += h.n;
        if (!wrong && total > MOST_HOSTS)
            wrong = "too many hosts";
        more = !wrong && *h.at == ',';
        if (!more)
            break;
    }
    if (wrong)
        return TT_FAIL(err, TT_EINVAL, "Slurm's list of nodes, \"%.60s\", byte %lld: %s", list,
                       (long long)(h.at - list), wrong);
    *n = total;
    return TT_OK;
}

static const char *either(tt_getenv get, const char *a, const char *b)
{
    const char *v = get(a);
    v = v && *v ? v : get(b);
    return v && *v ? v : NULL;
}

tt_status tt_slurm_read(tt_getenv get, tt_slurm *out, tt_error *err)
{
    const char *list = either(get, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
               *job = either(get, "SLURM_JOB_ID", "SLURM_JOBID"),
               *step = either(get, "SLURM_STEP_ID", "SLURM_STEPID"),
               *again = get("SLURM_RESTART_COUNT");
    *out = (tt_slurm){0};
    if (!list || !job)
        return TT_FAIL(err, TT_EINVAL,
                       "Slurm does not say where the ranks meet (SLURM_STEP_NODELIST, "
                       "SLURM_JOB_ID); give --master_addr and --master_port");
    TT_TRY(tt_slurm_list(list, out->host, sizeof out->host, &out->n_hosts, err));
    const unsigned long long number =
        strtoull(job, NULL, 10) + 101 * (step ? strtoull(step, NULL, 10) : 0);
    out->port = TT_SLURM_PORT + 2 * (int)(number % TT_SLURM_PORTS);
    snprintf(out->id, sizeof out->id, "slurm %.20s.%.10s.%.10s", job, step ? step : "0",
             again ? again : "0");
    return TT_OK;
}
