/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"

/* Finds chains in a program: consecutive f32 instructions that can run on a few vectors held in
 * registers. An instruction reads its predecessor's result from the registers and any other operand
 * from memory. "In hand" below means: held in these registers. */

/* The step that an instruction becomes when its operand number `hand` is in hand, or -1. */
static int step_op(int op, int hand)
{
    switch (op) {
    case OP_ADD:
        return CPU_STEP_ADD;
    case OP_SUB:
        return hand == 0 ? CPU_STEP_SUB : CPU_STEP_FROM;
    case OP_MUL:
    case OP_SCALE:
        return CPU_STEP_MUL;
    case OP_DIV:
        return hand == 0 ? CPU_STEP_DIV : CPU_STEP_INTO;
    case OP_MAXIMUM:
        return hand == 0 ? CPU_STEP_MAX : CPU_STEP_MAX_OF;
    case OP_MINIMUM:
        return hand == 0 ? CPU_STEP_MIN : CPU_STEP_MIN_OF;
    case OP_RELU:
        return CPU_STEP_RELU;
    case OP_SQRT:
        return CPU_STEP_SQRT;
    case OP_NEG:
        return CPU_STEP_NEG;
    case OP_ABS:
        return CPU_STEP_ABS;
    default:
        return -1;
    }
}

static bool can_chain(const cpu_program *p, int i)
{
    const tt_fused_instr *in = &p->f->instr[i];
    bool f32 = in->dtype == TT_F32 && in->n_src > 0 && step_op(p->op[i], 0) >= 0;
    for (int s = 0; s < in->n_src; s++)
        f32 = f32 && p->dtype[in->src[s]] == TT_F32;
    return f32;
}

static cpu_step operand_step(const cpu_program *p, int op, int r)
{
    return (cpu_step){.op = (int8_t)op, .step = r >= 0 && !p->splat[r], .rx = (int16_t)r, .ry = -1};
}

/* The steps of instruction i; hand: the program register that is in hand, -1 for none. Returns how
 * many steps there are. */
static int add_steps(const cpu_program *p, int i, int hand, cpu_step *to)
{
    const tt_fused_instr *in = &p->f->instr[i];
    const int at = in->n_src == 2 && in->src[1] == hand && in->src[0] != hand;
    int n = 0;
    if (in->src[at] != hand)
        to[n++] = operand_step(p, CPU_STEP_LOAD, in->src[0]);
    to[n] = operand_step(p, step_op(p->op[i], at), in->n_src == 2 ? in->src[!at] : -1);
    to[n].imm = (float)in->imm;
    return n + 1;
}

/* Is register r read only by the next instruction, so that it need not be stored? `next` is a
 * register too. */
static bool only_in_hand(const cpu_program *p, int r, int next)
{
    const tt_fused_instr *in = &p->f->instr[next - p->f->n_in];
    return p->last[r] == next && !(in->n_src == 2 && in->src[0] == r && in->src[1] == r);
}

/* The chain that begins at instruction `first`. Constants and operands of one element are computed
 * beforehand. */
static void find_from(cpu_program *p, int first)
{
    const int n_in = p->f->n_in;
    cpu_step *steps = &p->steps[2 * first];
    int n = 0, length = 0, hand = -1;
    for (int i = first; i < p->f->n_instr && n + 2 <= CPU_CHAIN_STEPS; i++) {
        if (p->splat[n_in + i])
            continue;
        if (!can_chain(p, i))
            break;
        if (hand >= 0 && !only_in_hand(p, hand, n_in + i))
            steps[n - 1].ry = (int16_t)hand;
        n += add_steps(p, i, hand, steps + n);
        hand = n_in + i;
        p->chain[first] = (int16_t)(i - first + 1);
        length++;
    }
    if (n)
        steps[n - 1].ry = (int16_t)hand;
    p->n_steps[first] = (int16_t)n;
    /* A single instruction is as fast in its own loop, unless the chain avoids the divider. */
    const cpu_step *s = n ? &steps[n - 1] : NULL;
    if (length < 2 && !(s && (s->op == CPU_STEP_SQRT || (s->op == CPU_STEP_DIV && !s->step))))
        p->chain[first] = 0;
}

/* Marks the operands that no earlier step prefetches, so that this chain does. */
static void take_streams(cpu_program *p, int first)
{
    for (int k = 0; k < p->n_streams;) {
        cpu_step *s = &p->steps[2 * first], *end = s + p->n_steps[first];
        while (s < end && s->rx != p->stream[k])
            s++;
        if (s < end) {
            s->fetch = true;
            p->stream[k] = p->stream[--p->n_streams];
        } else {
            k++;
        }
    }
}

void cpu_chains_find(cpu_program *p)
{
    for (int i = 0; i < p->f->n_instr; i += p->chain[i] ? p->chain[i] : 1) {
        p->chain[i] = 0;
        if (!p->splat[p->f->n_in + i])
            find_from(p, i);
        if (p->chain[i])
            take_streams(p, i);
    }
}

void cpu_chain_run(const cpu_program *p, int first, int64_t begin, int64_t n, char *slots)
{
    cpu_step steps[CPU_CHAIN_STEPS];
    const int n_steps = p->n_steps[first];
    for (int i = 0; i < n_steps; i++) {
        const cpu_step *from = &p->steps[2 * first + i];
        steps[i] = *from;
        steps[i].x = from->rx < 0
                         ? &from->imm
                         : (const float *)(void *)cpu_program_at(p, from->rx, begin, slots);
        steps[i].y =
            from->ry < 0 ? NULL : (float *)(void *)cpu_program_at(p, from->ry, begin, slots);
    }
    p->isa->chain(steps, n_steps, n);
}
