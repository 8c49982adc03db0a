/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/tokens.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* the functions themselves, with a count of their steps */
#include "loop_count.h"

#include "corpus/packing.c"

#include "loop_count_end.h"

static uint32_t next(uint32_t *seed)
{
    return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

/* Consecutive pieces of a stream. */
static void pieces_of(const int64_t *lengths, int64_t n, tt_piece *out)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (tt_piece){at, (int32_t)lengths[i], false};
        at += lengths[i];
    }
}

/* Packs, and checks that every piece is in exactly one sample and no sample is too full. */
static int64_t packed(const int64_t *lengths, int64_t n, int64_t seq_len)
{
    tt_piece *pieces = calloc((size_t)n, sizeof *pieces);
    bool *seen = calloc((size_t)n, sizeof *seen);
    tt_packing p = {0};
    tt_error err;
    pieces_of(lengths, n, pieces);
    assert_int_equal(tt_pack(pieces, n, seq_len, &p, &err), TT_OK);
    assert_int_equal(p.bins[0], 0);
    assert_int_equal(p.bins[p.n_bins], n);
    int64_t first = -1;
    for (int64_t b = 0; b < p.n_bins; b++) {
        int64_t used = 0, last = -1;
        assert_true(p.bins[b] < p.bins[b + 1]);
        assert_true(p.pieces[p.bins[b]].at > first); /* in the order of the stream */
        first = p.pieces[p.bins[b]].at;
        for (int64_t k = p.bins[b]; k < p.bins[b + 1]; k++) {
            int64_t lo = 0, hi = n; /* which it was */
            while (hi - lo > 1) {
                const int64_t mid = lo + (hi - lo) / 2;
                *(pieces[mid].at <= p.pieces[k].at ? &lo : &hi) = mid;
            }
            assert_int_equal(pieces[lo].at, p.pieces[k].at);
            assert_int_equal(pieces[lo].n, p.pieces[k].n);
            assert_false(seen[lo]);
            seen[lo] = true;
            assert_true(p.pieces[k].at > last);
            last = p.pieces[k].at;
            used += p.pieces[k].n;
        }
        assert_true(used <= seq_len);
    }
    const int64_t bins = p.n_bins;
    tt_packing_free(&p);
    free(pieces);
    free(seen);
    return bins;
}

static int64_t first_fit(const int64_t *lengths, int64_t n, int64_t seq_len)
{
    int64_t *room = calloc((size_t)n, sizeof *room), bins = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t b = 0;
        while (b < bins && room[b] < lengths[i])
            b++;
        if (b == bins)
            room[bins++] = seq_len;
        room[b] -= lengths[i];
    }
    free(room);
    return bins;
}

/* The smallest number of samples, found by trying all ways: piece i into each open sample or into a
 * new one. */
static int64_t fewest(const int64_t *lengths, int n, int i, int64_t *room, int64_t bins,
                      int64_t seq_len, int64_t best)
{
    if (bins >= best)
        return best;
    if (i == n)
        return bins;
    for (int64_t b = 0; b <= bins; b++) {
        if (b == bins)
            room[b] = seq_len;
        if (room[b] < lengths[i])
            continue;
        room[b] -= lengths[i];
        best = fewest(lengths, n, i + 1, room, TT_MAXV(bins, b + 1), seq_len, best);
        room[b] += lengths[i];
    }
    return best;
}

/* Of documents of one length the first goes first: "b" fills up the sample of "a", and "c" opens another. */
static void test_documents_of_one_length_keep_their_order(void **state)
{
    static const int64_t lengths[] = {3, 1, 1}, at[] = {0, 3, 4};
    tt_piece pieces[3];
    tt_packing p = {0};
    tt_error err;
    (void)state;
    pieces_of(lengths, 3, pieces);
    assert_int_equal(tt_pack(pieces, 3, 4, &p, &err), TT_OK);
    assert_int_equal(p.n_bins, 2);
    assert_int_equal(p.bins[1], 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(p.pieces[i].at, at[i]);
    tt_packing_free(&p);
}

static void test_packing_is_never_worse_than_first_fit(void **state)
{
    (void)state;
    uint32_t seed = 1;
    static const int64_t seqs[] = {1, 2, 63, 64, 65, 100, 2048, 4097};
    int64_t *lengths = malloc(3000 * sizeof *lengths);
    for (size_t s = 0; s < TT_COUNT(seqs); s++)
        for (int round = 0; round < 6; round++) {
            const int64_t n = 1 + next(&seed) % 3000, most = 1 + next(&seed) % seqs[s];
            int64_t tokens = 0;
            for (int64_t i = 0; i < n; i++)
                tokens += lengths[i] = 1 + next(&seed) % most;
            const int64_t bins = packed(lengths, n, seqs[s]);
            assert_true(bins <= first_fit(lengths, n, seqs[s]));
            assert_true(bins >= (tokens + seqs[s] - 1) / seqs[s]);
        }
    free(lengths);
}

static void test_packing_is_within_its_bound_of_the_optimum(void **state)
{
    (void)state;
    uint32_t seed = 7;
    int64_t exact = 0;
    for (int round = 0; round < 400; round++) {
        int64_t lengths[9], room[10];
        const int n = 1 + (int)(next(&seed) % 9);
        for (int i = 0; i < n; i++)
            lengths[i] = 1 + next(&seed) % 20;
        const int64_t best = fewest(lengths, n, 0, room, 0, 20, n + 1),
                      bins = packed(lengths, n, 20);
        assert_true(bins >= best);
        assert_true(9 * bins <= 11 * best + 9); /* 11/9 OPT + 1 */
        exact += bins == best;
    }
    assert_true(exact > 380);
}

/* Best fit: the sample with the least room that is enough, not the first with enough room. */
static void test_packing_takes_the_best_fit(void **state)
{
    (void)state;
    static const int64_t lengths[] = {7, 6, 3, 2, 2}; /* of 10: 7+3, 6+2+2 */
    assert_int_equal(packed(lengths, 5, 10), 2);
    static const int64_t tight[] = {5, 6, 4, 5};
    assert_int_equal(packed(tight, 4, 10), 2);
}

static void test_packing_of_a_million_is_fast_enough(void **state)
{
    (void)state;
    const int64_t n = 1000000;
    uint32_t seed = 3;
    int64_t *lengths = malloc((size_t)n * sizeof *lengths), tokens = 0;
    for (int64_t i = 0; i < n; i++)
        tokens += lengths[i] = 1 + next(&seed) % 2048;
    loop_passes = 0;
    const int64_t bins = packed(lengths, n, 4096);
    assert_in_range(loop_passes, n, 30 * n);
    assert_true(bins * 4096 - tokens < tokens / 1000);
    free(lengths);
}

/* ---- samples ---- */

enum { VOCAB = 30000, PAD = 29999 };

static void pad_info(void *self, tt_tokenizer_info *out)
{
    (void)self;
    out->pad = PAD;
}

static const tt_tokenizer_vt tokenizer = {.struct_size = sizeof tokenizer, .info = pad_info};

/* A stream whose token i has the id i; its documents begin at these positions. */
static tt_status stream_of(const int64_t *starts, int64_t n, int64_t n_tokens, int64_t seq_len,
                           bool pad, tt_tokens **out, tt_error *err)
{
    tt_tokens *t = calloc(1, sizeof *t);
    t->spans = calloc(1, sizeof *t->spans);
    unsigned char *bytes = malloc((size_t)(2 * n_tokens + 1));
    for (int64_t i = 0; i < n_tokens; i++) {
        bytes[2 * i] = (unsigned char)i;
        bytes[2 * i + 1] = (unsigned char)(i >> 8);
    }
    t->spans[0] = (tt_token_span){.memory = bytes, .fd = -1, .width = 2, .n = n_tokens};
    t->n_spans = 1;
    t->n_tokens = n_tokens;
    t->documents = (tt_document_index){-1, malloc((size_t)(8 * n + 1)), 0, n};
    memcpy(t->documents.memory, starts, (size_t)(8 * n));
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = seq_len,
                                   .vocab_size = VOCAB,
                                   .tokenizer = pad ? &tokenizer : NULL};
    const tt_status s = tt_tokens_ready(t, &env, "best_fit", err);
    *out = t;
    return s;
}

static int64_t document_of(const int64_t *starts, int64_t n, int64_t token)
{
    int64_t d = 0;
    while (d + 1 < n && starts[d + 1] <= token)
        d++;
    return d;
}

static void check_samples(tt_tokens *t, const int64_t *starts, int64_t n)
{
    const int64_t T = t->seq_len;
    int *times = calloc((size_t)t->n_tokens + 1, sizeof *times);
    int32_t *planes = malloc((size_t)(4 * T) * sizeof *planes);
    int64_t padding = 0;
    tt_error err;
    for (int64_t i = 0; i < tt_tokens_samples(t); i++) {
        tt_sample x = {sizeof x, T, planes, planes + T, planes + 2 * T, planes + 3 * T, NULL};
        assert_int_equal(tt_tokens_read(t, i, &x, &err), TT_OK);
        int64_t document = -1;
        bool end = false;
        for (int64_t j = 0; j < T; j++) {
            const bool begins = j == 0 || x.seg[j] != x.seg[j - 1];
            assert_true(!begins || x.pos[j] == 0);
            assert_true(begins || x.pos[j] == x.pos[j - 1] + 1);
            assert_int_equal(x.seg[j], j == 0 ? 0 : x.seg[j - 1] + begins);
            if (x.ids[j] == PAD) { /* to the sample's end, in a segment of its own */
                assert_true(end || begins);
                assert_int_equal(x.labels[j], -100);
                end = true;
                padding++;
                continue;
            }
            assert_false(end);
            const int64_t of = document_of(starts, n, x.ids[j]);
            times[x.ids[j]]++;
            assert_true(begins || of == document); /* two documents never share a segment */
            assert_true(begins || x.ids[j] == x.ids[j - 1] + 1);
            document = of;
            const bool more =
                x.ids[j] + 1 < t->n_tokens && document_of(starts, n, x.ids[j] + 1) == of;
            assert_int_equal(x.labels[j], more ? x.ids[j] + 1 : -100);
        }
    }
    for (int64_t i = 0; i < t->n_tokens; i++)
        assert_int_equal(times[i], 1);
    tt_dataloader_info info = {.struct_size = sizeof info};
    tt_tokens_info(t, &info);
    assert_int_equal(info.padding, padding);
    assert_int_equal(t->n_samples * T - t->n_tokens, padding);
    free(times);
    free(planes);
}

static void test_packed_samples_hold_every_token_once(void **state)
{
    (void)state;
    uint32_t seed = 5;
    static const int64_t seqs[] = {1, 2, 7, 16, 64};
    for (size_t s = 0; s < TT_COUNT(seqs); s++)
        for (int round = 0; round < 8; round++) {
            int64_t starts[100], n = 1 + next(&seed) % 100, at = 0;
            const int64_t T = seqs[s], hostile[] = {0, 1, T, T + 1, T - 1, 2 * T, 3 * T + 1};
            for (int64_t i = 0; i < n; i++) {
                starts[i] = at;
                at += next(&seed) % 2 ? hostile[next(&seed) % TT_COUNT(hostile)]
                                      : (int64_t)(next(&seed) % (uint32_t)(3 * T));
            }
            at += at == 0;
            tt_tokens *t;
            tt_error err;
            assert_int_equal(stream_of(starts, n, at, T, true, &t, &err), TT_OK);
            check_samples(t, starts, n);
            tt_tokens_close(t);
        }
}

static void test_packed_padding_is_0_without_a_pad_token(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 3};
    int32_t ids[5], labels[5], pos[5], seg[5];
    tt_sample x = {sizeof x, 5, ids, labels, pos, seg, NULL};
    static const int32_t want[][5] = {
        {0, 1, 2,    0,    0   },
        {1, 2, -100, -100, -100},
        {0, 1, 2,    0,    1   },
        {0, 0, 0,    1,    1   }
    };
    tt_tokens *t;
    tt_error err;
    assert_int_equal(stream_of(starts, 2, 7, 5, false, &t, &err), TT_OK);
    assert_int_equal(tt_tokens_samples(t), 2);
    assert_int_equal(tt_tokens_read(t, 0, &x, &err), TT_OK);
    assert_memory_equal(ids, want[0], sizeof ids);
    assert_memory_equal(labels, want[1], sizeof labels);
    assert_memory_equal(pos, want[2], sizeof pos);
    assert_memory_equal(seg, want[3], sizeof seg);
    tt_tokens_close(t);
}

/* A cut does not end a document: the last label is the first token of the next piece. */
static void test_packed_labels_cross_a_cut(void **state)
{
    (void)state;
    static const int64_t starts[] = {0};
    int32_t ids[4], labels[4], pos[4], seg[4];
    tt_sample x = {sizeof x, 4, ids, labels, pos, seg, NULL};
    static const int32_t want[] = {1, 2, 3, 4}, last[] = {-100, -100, -100, -100};
    tt_tokens *t;
    tt_error err;
    assert_int_equal(stream_of(starts, 1, 5, 4, true, &t, &err), TT_OK);
    assert_int_equal(tt_tokens_read(t, 0, &x, &err), TT_OK);
    assert_memory_equal(labels, want, sizeof want);
    assert_int_equal(tt_tokens_read(t, 1, &x, &err), TT_OK);
    assert_int_equal(ids[0], 4);
    assert_memory_equal(labels, last, sizeof last);
    tt_tokens_close(t);
}

static void test_packing_refuses_a_damaged_list(void **state)
{
    (void)state;
    static const int64_t lists[][3] = {
        {0,  5, 4 },
        {0,  5, 11},
        {-1, 2, 3 }
    };
    for (size_t i = 0; i < TT_COUNT(lists); i++) {
        tt_tokens *t;
        tt_error err = {0};
        assert_int_equal(stream_of(lists[i], 3, 10, 4, true, &t, &err), TT_EFORMAT);
        assert_non_null(strstr(err.text, "list of documents is damaged"));
        tt_tokens_close(t);
    }
    tt_tokens *t;
    tt_error err = {0};
    assert_int_equal(stream_of(lists[0], 0, 0, 4, true, &t, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "no document has tokens"));
    tt_tokens_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents_of_one_length_keep_their_order),
        cmocka_unit_test(test_packing_is_never_worse_than_first_fit),
        cmocka_unit_test(test_packing_is_within_its_bound_of_the_optimum),
        cmocka_unit_test(test_packing_takes_the_best_fit),
        cmocka_unit_test(test_packing_of_a_million_is_fast_enough),
        cmocka_unit_test(test_packed_samples_hold_every_token_once),
        cmocka_unit_test(test_packed_padding_is_0_without_a_pad_token),
        cmocka_unit_test(test_packed_labels_cross_a_cut),
        cmocka_unit_test(test_packing_refuses_a_damaged_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
