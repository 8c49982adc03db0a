/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_PAIRS_H
#define TT_DATALOADERS_CHAT_PAIRS_H
#include "chat_formats.h"
#include <ttrun/dataloader.h>

/* Preference pairs: of a record two conversations, with the chosen and with the rejected answer. A sample has whole
 * pairs, so that no part of the mesh separates them: pair k's chosen one is its document 2k, the rejected one its
 * document 2k + 1. */

enum { PAIR_SIGN, PAIR_WEIGHT, PAIR_INDEX, PAIR_INPUTS };

static int pair_inputs(tt_input_info *out)
{
    out[PAIR_SIGN] = (tt_input_info){"pair_sign", TT_F32, 0};
    out[PAIR_WEIGHT] = (tt_input_info){"pair_weight", TT_F32, 0};
    out[PAIR_INDEX] = (tt_input_info){"pair_index", TT_I32, 0};
    return PAIR_INPUTS;
}

/* The loader's options format and loss_on, with its option pairs. */
static tt_status check_pairs(const char *format, const char *loss_on, tt_error *err)
{
    if (strcmp(format, "auto") != 0 && strcmp(format, "preference") != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.pairs: a line is a preference pair, and dataloader.format says "
                       "%s; set it to preference",
                       format);
    if (!strcmp(loss_on, "all"))
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.loss_on: with dataloader.pairs the answers are compared; set it "
                       "to assistant or last");
    return TT_OK;
}

/* The number of messages with which both conversations begin; less than each has. */
static size_t common_messages(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n + 1 < json_array_size(a) && n + 1 < json_array_size(b) &&
           json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* How many tokens of each conversation are kept: their places, of which each has one less than tokens, must fit
 * in seq_len. The longer one is cut first. */
static void pair_room(int64_t seq_len, int64_t chosen, int64_t rejected, int64_t *most_chosen,
                      int64_t *most_rejected)
{
    const int64_t room = seq_len + 2, half = room / 2;
    *most_chosen = chosen;
    *most_rejected = rejected;
    if (chosen + rejected <= room)
        return;
    if (chosen <= half) {
        *most_rejected = room - chosen;
    } else if (rejected <= half) {
        *most_chosen = room - rejected;
    } else {
        *most_chosen = room - half;
        *most_rejected = half;
    }
}

/* Marks the places [begin, end) of a conversation: sign where a label counts. Returns the first such place, or
 * -1. */
static int64_t mark_answer(const tt_sample *out, int64_t begin, int64_t end, float sign)
{
    float *signs = out->inputs[PAIR_SIGN];
    int64_t first = -1;
    for (int64_t i = begin; i < end; i++) {
        if (out->labels[i] < 0)
            continue;
        signs[i] = sign;
        first = first < 0 ? i : first;
    }
    return first;
}

#endif
