/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"
#include <pthread.h>
#include <string.h>

/* "fused", and how any pointwise program is launched. */

#define MOST_BLOCKS 8192
#define FEW 32 /* elements: a kernel for so few is not worth the time to compile it */

static const char *const names[POINT_N_OPS] = {
#define POINT_ROW(id, name, n, expression) [POINT_##id] = name,
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
};
static const signed char operands[POINT_N_OPS] = {
#define POINT_ROW(id, name, n, expression) [POINT_##id] = n,
    POINT_OPS(POINT_ROW)
#undef POINT_ROW
};

/* The ops by the hash of their names: each launch looks for those of its steps. */
#define SLOTS 256
static signed char slots[SLOTS]; /* number + 1 */

static unsigned slot_of(const char *op)
{
    unsigned h = 2166136261u;
    for (; *op; op++)
        h = (h ^ (unsigned char)*op) * 16777619u;
    return (h ^ h >> 16) % SLOTS;
}

static void fill_slots(void)
{
    for (int i = 0; i < POINT_N_OPS; i++) {
        unsigned at = slot_of(names[i]);
        while (slots[at])
            at = (at + 1) % SLOTS;
        slots[at] = (signed char)(i + 1);
    }
}

int cuda_point_op(const char *op)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_slots);
    for (unsigned at = slot_of(op); slots[at]; at = (at + 1) % SLOTS)
        if (strcmp(names[slots[at] - 1], op) == 0)
            return slots[at] - 1;
    return -1;
}

/* ---- the program as the device has it ---- */

static bool step_is_f64(const point_program *p, const point_step *t)
{
    bool any = cuda_point_is_f64(t->dtype);
    for (int j = 0; j < t->n_src; j++) {
        const int r = t->src[j];
        any |= cuda_point_is_f64(r < p->n_in ? p->in_dtype[r] : p->steps[r - p->n_in].dtype);
    }
    return any;
}

static bool pack_step(point_program *p, int i, const tt_fused_instr *from)
{
    point_step *t = &p->steps[i];
    const int op = cuda_point_op(from->op);
    if (op < 0 || from->n_src != operands[op] || (unsigned)from->dtype >= TT_N_DTYPES)
        return false;
    t->op = (unsigned char)op;
    t->dtype = (unsigned char)from->dtype;
    t->n_src = (unsigned char)from->n_src;
    t->imm = op == POINT_SCALE || op == POINT_CONST ? from->imm : 0.0;
    for (int j = 0; j < from->n_src; j++) {
        if (from->src[j] < 0 || from->src[j] >= p->n_in + i)
            return false;
        t->src[j] = (unsigned char)from->src[j];
    }
    t->is_f64 = step_is_f64(p, t);
    return true;
}

static bool pack_program(const tt_fused *f, const tt_tensor *in, point_program *p)
{
    if (f->n_in > POINT_INS || f->n_out > POINT_OUTS || f->n_instr > POINT_STEPS || f->n_out < 1)
        return false;
    p->n_in = f->n_in;
    p->n_steps = f->n_instr;
    p->n_out = f->n_out;
    for (int i = 0; i < f->n_in; i++) {
        if ((unsigned)in[i].dtype >= TT_N_DTYPES)
            return false;
        p->in_dtype[i] = (unsigned char)in[i].dtype;
    }
    for (int i = 0; i < f->n_instr; i++)
        if (!pack_step(p, i, &f->instr[i]))
            return false;
    for (int i = 0; i < f->n_out; i++) {
        if (f->out[i] < 0 || f->out[i] >= f->n_in + f->n_instr)
            return false;
        p->out[i] = (unsigned char)f->out[i];
    }
    return true;
}

/* ---- shapes ---- */

static void broadcast_strides(const tt_tensor *in, const tt_tensor *out, long long *stride)
{
    long long step = 1;
    for (int d = out->n_dims - 1; d >= 0; d--) {
        const int e = d - (out->n_dims - in->n_dims);
        const long long size = e < 0 ? 1 : in->shape[e];
        stride[d] = size == 1 ? 0 : step;
        step *= size;
    }
}

/* Leaves out dims of one element, and joins a dim with the one before it wherever every operand goes on
 * from one to the other. */
static void join_dims(point_shape *s, int n_in, const tt_tensor *out,
                      long long (*stride)[TT_MAX_DIMS])
{
    int n = 0;
    for (int d = 0; d < out->n_dims; d++) {
        bool joins = n > 0;
        if (out->shape[d] == 1)
            continue;
        for (int k = 0; k < n_in && joins; k++)
            joins = s->stride[k][n - 1] == stride[k][d] * out->shape[d];
        if (joins)
            s->size[n - 1] *= out->shape[d];
        else
            s->size[n++] = out->shape[d];
        for (int k = 0; k < n_in; k++)
            s->stride[k][n - 1] = stride[k][d];
    }
    if (n == 0) {
        s->size[0] = 1;
        n = 1;
    }
    s->n_dims = n;
}

static void fill_shape(const tt_fused *f, const tt_tensor *in, const tt_tensor *out, point_shape *s,
                       cuda_program_key *key)
{
    long long stride[POINT_INS][TT_MAX_DIMS];
    s->n = tt_tensor_numel(&out[0]);
    for (int k = 0; k < f->n_in; k++) {
        broadcast_strides(&in[k], &out[0], stride[k]);
        s->in[k] = in[k].data;
    }
    for (int k = 0; k < f->n_out; k++)
        s->out[k] = out[k].data;
    join_dims(s, f->n_in, &out[0], stride);
    key->n_dims = s->n_dims;
    key->is_small = s->n < INT32_MAX;
    for (int k = 0; k < f->n_in; k++) {
        key->whole[k] = s->n > 1 && tt_tensor_numel(&in[k]) == s->n;
        for (int d = 0; d < s->n_dims; d++)
            key->strided[k] |= (unsigned char)((s->stride[k][d] != 0) << d);
    }
}

/* How many pieces of `width` elements can be read and written in words. */
static long long wide_pieces(const cuda_program_key *key, const point_shape *s, int width)
{
    const point_program *p = &key->program;
    bool any_strided = false;
    for (int k = 0; k < p->n_in; k++) {
        const size_t align = (size_t)width * cuda_point_size(p->in_dtype[k]);
        any_strided |= !key->whole[k] && key->strided[k];
        if (cuda_program_goes_on(key, k) && (uintptr_t)s->in[k] % (align < 16 ? align : 16))
            return 0;
    }
    for (int k = 0; k < p->n_out; k++) {
        const int r = p->out[k];
        const size_t align =
            (size_t)width *
            cuda_point_size(r < p->n_in ? p->in_dtype[r] : p->steps[r - p->n_in].dtype);
        if ((uintptr_t)s->out[k] % (align < 16 ? align : 16))
            return 0;
    }
    if (any_strided && s->size[s->n_dims - 1] % width)
        return 0;
    return s->n / width;
}

/* ---- launches ---- */

bool cuda_program_supports(cuda_backend *b, const tt_fused *f, const tt_tensor *in,
                           const tt_tensor *out)
{
    cuda_program_key key = {0};
    point_shape shape = {0};
    if (!pack_program(f, in, &key.program))
        return false;
    if (!b || b->is_target)
        return true;
    fill_shape(f, in, out, &shape, &key);
    if (shape.n > FEW)
        cuda_program_want(b, &key);
    return true;
}

static tt_status check_outputs(const point_program *p, const tt_tensor *out, tt_error *err)
{
    for (int i = 0; i < p->n_out; i++) {
        const int r = p->out[i];
        const unsigned dtype = r < p->n_in ? p->in_dtype[r] : p->steps[r - p->n_in].dtype;
        if (tt_tensor_numel(&out[i]) != tt_tensor_numel(&out[0]) || (unsigned)out[i].dtype != dtype)
            return TT_FAIL(err, TT_EINTERNAL,
                           "fused: output %d has another shape or dtype than the program says", i);
    }
    return TT_OK;
}

tt_status cuda_program_run(cuda_backend *b, tt_device_queue *q, const tt_fused *f,
                           const tt_tensor *in, const tt_tensor *out, tt_error *err)
{
    static cuda_kernel interpret = CUDA_KERNEL("interpret", "tt_point_interpret");
    cuda_program_key key = {0};
    point_shape s = {0};
    cuda_kernel *kernel = NULL;
    if (!pack_program(f, in, &key.program))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "fused: cuda has no kernel for this program of %d operands and %d steps",
                       f->n_in, f->n_instr);
    TT_TRY(check_outputs(&key.program, out, err));
    fill_shape(f, in, out, &s, &key);
    if (s.n == 0)
        return TT_OK;
    if (s.n > FEW)
        TT_TRY(cuda_program_find(b, &key, &kernel, err));
    if (!kernel) {
        const cuda_grid g = {cuda_blocks(s.n, POINT_THREADS, MOST_BLOCKS), 1, 1, POINT_THREADS, 0};
        return cuda_launch(b, q, &interpret, g, (void *const[]){&s, &key.program}, err);
    }
    const int width = cuda_program_width(&key);
    s.n_wide = wide_pieces(&key, &s, width);
    const long long rest = s.n - s.n_wide * width, pieces = s.n_wide > rest ? s.n_wide : rest;
    const cuda_grid g = {cuda_blocks(pieces, POINT_THREADS, MOST_BLOCKS), 1, 1, POINT_THREADS, 0};
    return cuda_launch(b, q, kernel, g, (void *const[]){&s}, err);
}

static tt_status fused(void *backend, const tt_kernel_call *c, tt_error *err)
{
    return cuda_program_run(backend, c->queue, c->attrs, c->in, c->out, err);
}

static int fused_supports(const tt_kernel_call *c)
{
    return !c->accumulate && cuda_program_supports(c->backend, c->attrs, c->in, c->out);
}

const tt_kernel cuda_kernels_fused[] = {
    {.struct_size = sizeof(tt_kernel),
     .op = "fused",
     .run = fused,
     .in_place = 0xffff,
     .supports = fused_supports},
    {0                    },
};
