/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* trace_tool FILE: is FILE a trace that chrome://tracing and Perfetto can open? Every event must be
 * a slice (X) with ts and dur, or a name (M); the slices of one thread must nest; every process and
 * thread must have a name. Prints "pid PID tid TID CATEGORY NAME COUNT FLOPS BYTES" per kind of
 * slice. Status 1: the trace is wrong, with the reason. */

typedef struct slice {
    int64_t pid, tid;
    double ts, end;
    const char *name, *cat;
    double flops, bytes;
} slice;

static slice *slices;
static size_t n_slices, n_named;

static int fail(size_t i, const char *why)
{
    fprintf(stderr, "event %zu: %s\n", i, why);
    return 1;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static int read_event(size_t i, const json_t *e)
{
    const char *ph = json_string_value(json_object_get(e, "ph"));
    const char *name = json_string_value(json_object_get(e, "name"));
    const json_t *args = json_object_get(e, "args");
    if (!ph || !name || !json_is_integer(json_object_get(e, "pid")) ||
        !json_is_integer(json_object_get(e, "tid")))
        return fail(i, "no ph, name, pid or tid");
    if (!strcmp(ph, "M")) {
        n_named += !strcmp(name, "process_name") || !strcmp(name, "thread_name");
        return json_is_object(args) ? 0 : fail(i, "metadata without args");
    }
    if (strcmp(ph, "X"))
        return fail(i, "neither a slice nor metadata");
    if (!json_is_number(json_object_get(e, "ts")) || !json_is_number(json_object_get(e, "dur")))
        return fail(i, "no ts or dur");
    const char *cat = json_string_value(json_object_get(e, "cat"));
    slices[n_slices++] = (slice){(int64_t)number(e, "pid"),
                                 (int64_t)number(e, "tid"),
                                 number(e, "ts"),
                                 number(e, "ts") + number(e, "dur"),
                                 name,
                                 cat ? cat : "-",
                                 number(args, "flops"),
                                 number(args, "bytes")};
    return number(e, "dur") < 0 ? fail(i, "a negative dur") : 0;
}

/* In file order on one thread: outer slices first, then from left to right. */
static int check_nesting(void)
{
    slice *stack[64];
    for (size_t first = 0; first < n_slices; first++) {
        size_t depth = 0;
        if (first && slices[first].pid == slices[first - 1].pid &&
            slices[first].tid == slices[first - 1].tid)
            continue;
        for (size_t i = first; i < n_slices && slices[i].pid == slices[first].pid &&
                               slices[i].tid == slices[first].tid;
             i++) {
            while (depth && stack[depth - 1]->end <= slices[i].ts)
                depth--;
            if (depth && slices[i].end > stack[depth - 1]->end + 0.0015)
                return fail(i, "overlaps the slice before it");
            if (depth && slices[i].ts < stack[depth - 1]->ts - 0.0015)
                return fail(i, "begins before the slice around it");
            if (depth == 64)
                return fail(i, "is too deep");
            stack[depth++] = &slices[i];
        }
    }
    return 0;
}

static void print_kinds(void)
{
    for (size_t i = 0; i < n_slices; i++) {
        slice sum = slices[i];
        size_t count = 1;
        if (!sum.name)
            continue;
        for (size_t j = i + 1; j < n_slices; j++)
            if (slices[j].name && slices[j].pid == sum.pid && slices[j].tid == sum.tid &&
                !strcmp(slices[j].name, sum.name) && !strcmp(slices[j].cat, sum.cat)) {
                sum.flops += slices[j].flops;
                sum.bytes += slices[j].bytes;
                slices[j].name = NULL;
                count++;
            }
        printf("pid %lld tid %lld %s %s %zu %.0f %.0f\n", (long long)sum.pid, (long long)sum.tid,
               sum.cat, sum.name, count, sum.flops, sum.bytes);
    }
}

int main(int argc, char **argv)
{
    json_error_t err;
    json_t *root = argc > 1 ? json_load_file(argv[1], JSON_REJECT_DUPLICATES, &err) : NULL;
    const json_t *events = json_object_get(root, "traceEvents");
    if (!json_is_array(events)) {
        fprintf(stderr, "%s: %s\n", argc > 1 ? argv[1] : "no file",
                root ? "no traceEvents" : err.text);
        return 1;
    }
    const size_t n = json_array_size(events);
    slices = calloc(n + 1, sizeof *slices);
    int bad = slices == NULL;
    for (size_t i = 0; i < n && !bad; i++)
        bad = read_event(i, json_array_get(events, i));
    if (!bad && !(bad = check_nesting()) && !n_named)
        bad = fail(0, "nothing has a name");
    if (!bad)
        print_kinds();
    free(slices);
    json_decref(root);
    return bad;
}
