/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <string.h>

/* The interpreter of pointwise programs. It works tile by tile: each instruction is one vector loop
 * over registers that stay in cache, or a step of a chain (chain.h). A program register has a slot
 * of scratch from its instruction to its last reader. Full operands are read, and results written,
 * in place. A register whose operands are all single elements is a single element itself. Naive
 * twin: ref_fused in backends/reference/pointwise.c. */

#define NO_SLOT (-1)
#define FETCH_FROM (1 << 20) /* bytes of operands; fewer are in the second-level cache already */
/* programs of fewer instructions are bound by memory; prefetching measured slower */
#define FETCH_INSTR 4

static bool same_shape(const tt_tensor *x, const int64_t *shape, int n_dims)
{
    if (x->n_dims != n_dims)
        return false;
    for (int i = 0; i < n_dims; i++)
        if (x->shape[i] != shape[i])
            return false;
    return true;
}

static bool is_full(const cpu_program *p, int reg)
{
    return same_shape(&p->in[reg], p->shape, p->n_dims);
}

static tt_dtype reg_dtype(const cpu_program *p, int reg)
{
    return reg < p->f->n_in ? p->in[reg].dtype : p->f->instr[reg - p->f->n_in].dtype;
}

/* May register r be written to `out` while the program still runs over a tile? An operand that
 * shares out's memory must be read element by element in the same places, and not after r is
 * computed. */
static bool writable(const cpu_program *p, int out, int r, const int16_t *last)
{
    for (int i = 0; i < p->f->n_in; i++)
        if (p->in[i].data == p->out[out].data &&
            (!is_full(p, i) || last[i] > r ||
             tt_dtype_size(reg_dtype(p, i)) != tt_dtype_size(reg_dtype(p, r))))
            return false;
    return true;
}

/* Is operand i, of several elements, one row that repeats for all rows of the result, and does each part of the work lie within a
 * row? */
static bool is_row(const cpu_program *p, int i)
{
    const tt_tensor *x = &p->in[i];
    return p->in_rows && x->shape[x->n_dims - 1] == p->shape[p->n_dims - 1] &&
           tt_tensor_numel(x) == x->shape[x->n_dims - 1];
}

/* Assigns slots by last use. Single elements, computed once for all tiles, share their slot with
 * nothing. */
static void assign_slots(cpu_program *p)
{
    const tt_fused *f = p->f;
    const int n_regs = f->n_in + f->n_instr;
    int16_t free_slots[CPU_MAX_REGS], *last = p->last;
    int n_free = 0;
    for (int r = 0; r < n_regs; r++) {
        last[r] = (int16_t)r; /* nobody reads the result: it dies where it is computed */
        p->slot[r] = NO_SLOT;
        p->direct[r] = -1;
    }
    for (int i = 0; i < f->n_instr; i++)
        for (int s = 0; s < f->instr[i].n_src; s++) {
            last[f->instr[i].src[s]] = (int16_t)(f->n_in + i);
            p->loaded[f->instr[i].src[s]] = true;
        }
    for (int o = 0; o < f->n_out; o++)
        last[f->out[o]] = INT16_MAX;
    for (int o = 0; o < f->n_out; o++)
        if (f->out[o] >= f->n_in && !p->splat[f->out[o]] && writable(p, o, f->out[o], last))
            p->direct[f->out[o]] = (int16_t)o;
    for (int r = 0; r < n_regs; r++) {
        bool own = r < f->n_in ? !(p->splat[r] || p->row[r] || is_full(p, r)) : p->direct[r] < 0;
        if (own)
            p->slot[r] = n_free && !p->splat[r] ? free_slots[--n_free] : (int16_t)p->n_slots++;
        for (int q = 0; q <= r && r >= f->n_in; q++)
            if (last[q] == r && p->slot[q] != NO_SLOT && !p->splat[q])
                free_slots[n_free++] = p->slot[q];
    }
}

/* Where the registers without a slot are, and which operands are read from one end to the other. */
static void find_memory(cpu_program *p)
{
    const tt_fused *f = p->f;
    p->n_streams = 0;
    for (int r = 0; r < f->n_in + f->n_instr; r++) {
        p->dtype[r] = reg_dtype(p, r);
        p->step[r] = p->splat[r] ? 0 : (int64_t)tt_dtype_size(p->dtype[r]);
        p->base[r] = NULL;
        if (p->slot[r] != NO_SLOT)
            continue;
        p->base[r] = r < f->n_in ? p->in[r].data : p->out[p->direct[r]].data;
        if (r < f->n_in && p->step[r] && p->loaded[r] && !p->row[r])
            p->stream[p->n_streams++] = (int16_t)r;
    }
    if (f->n_instr < FETCH_INSTR || p->n * p->n_streams * (int64_t)sizeof(float) < FETCH_FROM ||
        p->in_rows)
        p->n_streams = 0;
}

static tt_status prepare(cpu_program *p, tt_error *err)
{
    const tt_fused *f = p->f;
    if (f->n_in + f->n_instr > CPU_MAX_REGS)
        return TT_FAIL(err, TT_EUNSUPPORTED, "fused: %d registers are more than %d; fuse less",
                       f->n_in + f->n_instr, CPU_MAX_REGS);
    for (int r = 0; r < f->n_in; r++) {
        p->splat[r] = tt_tensor_numel(&p->in[r]) == 1;
        p->row[r] = !p->splat[r] && is_row(p, r);
    }
    for (int i = 0; i < f->n_instr; i++) {
        int op = cpu_op_find(f->instr[i].op);
        if (op < 0)
            return TT_FAIL(err, TT_EUNSUPPORTED, "fused: no pointwise op \"%s\" in the cpu backend",
                           f->instr[i].op);
        p->op[i] = (int16_t)op;
        bool splat = true;
        for (int s = 0; s < f->instr[i].n_src; s++)
            splat = splat && p->splat[f->instr[i].src[s]];
        p->splat[f->n_in + i] = splat;
    }
    assign_slots(p);
    find_memory(p);
    cpu_chains_find(p);
    int alone = 0;
    for (int i = 0; i < f->n_instr; i += p->chain[i] ? p->chain[i] : 1)
        alone += !p->chain[i] && !p->splat[f->n_in + i];
    p->ahead = (CPU_TILE * (int64_t)sizeof(float) / CPU_LINE + cpu_max(alone, 1) - 1) /
               cpu_max(alone, 1) * CPU_LINE;
    return TT_OK;
}

char *cpu_program_at(const cpu_program *p, int r, int64_t begin, char *slots)
{
    if (!p->base[r])
        return slots + p->slot[r] * p->slot_bytes;
    const int64_t at = r < p->f->n_in && p->row[r] ? begin % p->shape[p->n_dims - 1] : begin;
    return p->base[r] + at * p->step[r];
}
static cpu_reg locate(const cpu_program *p, int r, int64_t begin, char *slots)
{
    return (cpu_reg){cpu_program_at(p, r, begin, slots), p->dtype[r], p->splat[r]};
}

static void run_instr(const cpu_program *p, int i, int64_t begin, int64_t n, char *slots)
{
    const tt_fused_instr *in = &p->f->instr[i];
    cpu_reg src[3], dst = locate(p, p->f->n_in + i, begin, slots);
    for (int s = 0; s < in->n_src; s++)
        src[s] = locate(p, in->src[s], begin, slots);
    cpu_pointwise_run(p->isa, p->op[i], n, src, in->n_src, &dst, in->imm);
}

/* Each instruction that is in no chain prefetches its share of the next tile. Without that, loops
 * wait for memory and memory waits for loops. (Inlined always: gcc takes a function that only
 * prefetches for one without effect, and drops its calls.) */
static inline __attribute__((always_inline)) void ask_ahead(const cpu_program *p, int instr,
                                                            int64_t begin, int64_t n)
{
    for (int k = 0; k < p->n_streams; k++) {
        const int r = p->stream[k];
        const char *x = p->base[r] + begin * p->step[r];
        const int64_t first = instr * p->ahead, end = cpu_min(first + p->ahead, n * p->step[r]);
        for (int64_t i = first; i < end; i += CPU_LINE)
            __builtin_prefetch(x + i);
    }
}

/* ahead: number of elements in the tile that follows. */
static void run_tile(const cpu_program *p, int64_t begin, int64_t n, int64_t ahead, char *slots)
{
    const tt_fused *f = p->f;
    for (int r = 0; r < f->n_in; r++)
        if (p->slot[r] != NO_SLOT && p->loaded[r])
            cpu_broadcast_load(&p->in[r], p->shape, p->n_dims, begin, n,
                               locate(p, r, begin, slots).p);
    for (int i = 0, alone = 0; i < f->n_instr; i += p->chain[i] ? p->chain[i] : 1) {
        if (p->splat[f->n_in + i])
            continue;
        if (p->chain[i]) {
            cpu_chain_run(p, i, begin, n, slots);
            continue;
        }
        run_instr(p, i, begin, n, slots);
        if (ahead > 0)
            ask_ahead(p, alone++, begin + n, ahead);
    }
    for (int o = 0; o < f->n_out; o++) {
        int r = f->out[o];
        if (p->direct[r] == o)
            continue;
        cpu_reg src = locate(p, r, begin, slots), dst = {.dtype = src.dtype};
        size_t size = tt_dtype_size(src.dtype);
        dst.p = (char *)p->out[o].data + (size_t)begin * size;
        if (src.splat) {
            for (int64_t i = 0; i < n; i++)
                memcpy((char *)dst.p + (size_t)i * size, src.p, size);
        } else if (r < f->n_in && p->slot[r] != NO_SLOT) {
            cpu_broadcast_load(&p->in[r], p->shape, p->n_dims, begin, n, dst.p);
        } else {
            memmove(dst.p, src.p, (size_t)n * size);
        }
    }
}

void cpu_program_run(const cpu_program *p, int64_t begin, int64_t end, int thread)
{
    char *slots = p->scratch + (int64_t)thread * p->n_slots * p->slot_bytes;
    for (int i = 0; i < p->f->n_instr; i++)
        if (p->splat[p->f->n_in + i])
            run_instr(p, i, begin, 1, slots);
    for (int64_t t = begin; t < end; t += CPU_TILE)
        run_tile(p, t, cpu_min(CPU_TILE, end - t), cpu_min(CPU_TILE, end - t - CPU_TILE), slots);
}

static void tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    cpu_program_run(arg, begin, end, thread);
}

size_t cpu_program_scratch(const tt_fused *f, int n_threads)
{
    return (size_t)n_threads * (size_t)(f->n_in + f->n_instr) * CPU_TILE * sizeof(double);
}

tt_status cpu_program_make(cpu_program *p, const tt_fused *f, const cpu_isa *isa,
                           const tt_tensor *in, const tt_tensor *out, void *scratch, bool in_rows,
                           tt_error *err)
{
    p->f = f;
    p->in = in;
    p->out = out;
    p->isa = isa;
    p->scratch = scratch;
    p->shape = out[0].shape;
    p->n_dims = out[0].n_dims;
    p->n = tt_tensor_numel(&out[0]);
    p->n_slots = 0;
    p->in_rows = in_rows;
    p->slot_bytes = CPU_TILE * (int64_t)sizeof(double);
    memset(p->loaded, 0, sizeof p->loaded);
    for (int o = 1; o < f->n_out; o++)
        if (tt_tensor_numel(&out[o]) != p->n)
            return TT_FAIL(err, TT_EINTERNAL, "fused: output %d has another shape than output 0",
                           o);
    return prepare(p, err);
}

static tt_status run_program(void *self, const tt_fused *f, const tt_kernel_call *c, tt_error *err)
{
    cpu_program p;
    TT_TRY(cpu_program_make(&p, f, ((const cpu_backend *)self)->isa, c->in, c->out, c->scratch,
                            false, err));
    const int64_t share = p.n / (8 * tt_pool_threads(c->pool)) / CPU_TILE;
    tt_parallel_for(c->pool, p.n, cpu_max(16, cpu_min(share, 64)) * CPU_TILE, tiles, &p);
    return TT_OK;
}

static size_t fused_scratch(const tt_kernel_call *c, int n_threads)
{
    return cpu_program_scratch(c->attrs, n_threads);
}
static tt_status fused(void *self, const tt_kernel_call *c, tt_error *err)
{
    return run_program(self, c->attrs, c, err);
}

/* Runs a single pointwise op as a program of one instruction. */
static size_t single_scratch(const tt_kernel_call *c, int n_threads)
{
    return (size_t)n_threads * (size_t)(c->n_in + 1) * CPU_TILE * sizeof(double);
}
static tt_status single(void *self, const tt_kernel_call *c, tt_error *err)
{
    tt_fused_instr i = {
        .op = c->op, .src = {0, 1, 2},
             .n_src = (int16_t)c->n_in, .dtype = c->out[0].dtype
    };
    const int16_t out = (int16_t)c->n_in;
    if (strcmp(c->op, "scale") == 0)
        i.imm = ((const tt_attrs_scale *)c->attrs)->factor;
    if (strcmp(c->op, "const") == 0)
        i.imm = ((const tt_attrs_const *)c->attrs)->value;
    tt_fused f = {.n_in = c->n_in, .n_instr = 1, .n_out = 1, .instr = &i, .out = &out};
    return run_program(self, &f, c, err);
}

const cpu_kernel cpu_kernels_pointwise[] = {
#define CPU_OTHER(id, name, in_place) CPU_KERNEL_ANY(name, single, single_scratch, in_place),
#define CPU_ALIAS(id, name, in_place) CPU_OTHER(id, name, in_place)
#define CPU_UNARY(id, name, in_place, scalar, vector) CPU_OTHER(id, name, in_place)
#define CPU_BINARY(id, name, in_place, scalar, vector) CPU_OTHER(id, name, in_place)
#define CPU_COMPARE(id, name, scalar, vector) CPU_OTHER(id, name, 0)
#include "pointwise.def"
    CPU_KERNEL_ANY("fused", fused, fused_scratch, 0xffff),
    CPU_KERNEL_END,
};
