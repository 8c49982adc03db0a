/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory.h"
#include "plan/plan.h"

/* How much memory a program takes where it runs. */

int64_t tt_program_space_bytes(const tt_program *p, tt_space space)
{
    return p->bytes[space] + TT_CANARY_BYTES;
}

static int64_t written_bytes(const tt_operand *o)
{
    return TT_MAXV(o->bytes, tt_tensor_bytes(&o->tensor));
}

int64_t tt_program_most_written(const tt_program *p)
{
    int64_t most = 0;
    for (int s = 0; s < p->n_sections; s++) {
        const tt_section *e = &p->sections[s];
        for (int k = e->begin; (s == p->epilogue || s == p->update) && k < e->end; k++) {
            int64_t bytes = 0;
            for (int j = 0; j < p->instrs[k].n_out; j++)
                bytes += written_bytes(&p->operands[p->instrs[k].out[j]]);
            most = TT_MAXV(most, bytes);
        }
    }
    return most;
}

int64_t tt_program_sums_bytes(const tt_program *p)
{
    return ((int64_t)p->n_sums + 4) * (int64_t)sizeof(int64_t);
}

int64_t tt_program_input_stride(const tt_program *p, const tt_instr *input)
{
    const int64_t n = tt_tensor_bytes(&p->operands[input->out[0]].tensor);
    return (n + p->alignment - 1) / p->alignment * p->alignment;
}

/* The bytes of the inputs before an instruction; NULL: of all. */
static int64_t inputs_before(const tt_program *p, const tt_instr *end)
{
    int64_t sum = 0, all;
    for (int k = 0; k < p->n && &p->instrs[k] != end; k++) {
        const tt_instr *i = &p->instrs[k];
        if (i->kind != TT_INSTR_INPUT)
            continue;
        if (__builtin_mul_overflow(tt_program_input_stride(p, i), (int64_t)p->n_micro, &all) ||
            __builtin_add_overflow(sum, all, &sum))
            return -1;
    }
    return sum;
}

int64_t tt_program_input_at(const tt_program *p, const tt_instr *input)
{
    return inputs_before(p, input);
}

int64_t tt_program_input_bytes(const tt_program *p)
{
    return inputs_before(p, NULL);
}

static int64_t largest_message(const tt_program *p, int peer)
{
    int64_t most = 0;
    for (int k = 0; k < p->n; k++)
        if (p->instrs[k].kind == TT_INSTR_SEND && p->instrs[k].peer == peer)
            most = TT_MAXV(most, tt_tensor_bytes(&p->operands[p->instrs[k].in[0]].tensor));
    return most;
}

int64_t tt_program_message_bytes(const tt_program *p)
{
    int64_t sum = 0;
    for (int k = 0; k < p->n; k++) {
        bool first = p->instrs[k].kind == TT_INSTR_SEND;
        for (int i = 0; first && i < k; i++)
            first = p->instrs[i].kind != TT_INSTR_SEND || p->instrs[i].peer != p->instrs[k].peer;
        if (first)
            sum += TT_BUFFERED_SENDS * largest_message(p, p->instrs[k].peer);
    }
    return sum;
}

tt_program_memory tt_program_memory_of(const tt_program *p)
{
    tt_program_memory m = {.inputs = TT_MAXV(tt_program_input_bytes(p), (int64_t)0),
                           .scalars = p->written_end + p->read_end,
                           .offloaded = p->bytes[TT_SPACE_PINNED],
                           .activations = p->bytes[TT_SPACE_OFFLOADED],
                           .staging = 2 * TT_STAGE_BYTES,
                           .messages = tt_program_message_bytes(p)};
    m.device = m.inputs + tt_program_sums_bytes(p);
    for (int s = TT_SPACE_STATE; s < TT_N_SPACES; s++)
        m.device += tt_program_space_bytes(p, (tt_space)s);
    return m;
}

tt_offloaded tt_program_offloaded(const tt_program *p)
{
    tt_offloaded sum = {0};
    for (int k = 0; k < p->n; k++) {
        const tt_instr *i = &p->instrs[k];
        if (i->kind != TT_INSTR_COPY || p->operands[i->out[0]].space != TT_SPACE_OFFLOADED)
            continue;
        sum.values++;
        sum.bytes += p->operands[i->out[0]].bytes;
    }
    return sum;
}
