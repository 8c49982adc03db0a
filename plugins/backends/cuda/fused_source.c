/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a pointwise program as the text of a kernel. It reads its operands, computes a line per step
 * and writes its results, either `width` elements at a time, in words of up to 16 bytes, or one. Sizes
 * and strides are arguments, so that a text serves all sizes. */

typedef struct source {
    char *text;
    size_t n, room;
    bool failed;
} source;

__attribute__((format(printf, 2, 3))) static void source_add(source *s, const char *format, ...)
{
    va_list list;
    while (!s->failed) {
        va_start(list, format);
        const int n = vsnprintf(s->text ? s->text + s->n : NULL, s->room - s->n, format, list);
        va_end(list);
        if (n < 0)
            s->failed = true;
        else if (s->n + (size_t)n < s->room) {
            s->n += (size_t)n;
            return;
        } else {
            const size_t room = 2 * s->room + (size_t)n + 1024;
            char *text = realloc(s->text, room);
            s->failed = !text;
            if (text) {
                s->text = text;
                s->room = room;
            }
        }
    }
}

size_t cuda_point_size(int dtype)
{
    return dtype == POINT_U8 || dtype >= POINT_BOOL    ? 1
           : dtype == POINT_BF16 || dtype == POINT_F16 ? 2
           : dtype == POINT_F32 || dtype == POINT_I32  ? 4
                                                       : 8;
}

bool cuda_point_is_f64(int dtype)
{
    return dtype == POINT_F64 || dtype == POINT_I32 || dtype == POINT_I64;
}

static int register_dtype(const point_program *p, int r)
{
    return r < p->n_in ? p->in_dtype[r] : p->steps[r - p->n_in].dtype;
}

bool cuda_program_goes_on(const cuda_program_key *k, int i)
{
    return k->whole[i] || (k->strided[i] >> (k->n_dims - 1) & 1);
}

int cuda_program_width(const cuda_program_key *k)
{
    const point_program *p = &k->program;
    size_t least = 8;
    for (int i = 0; i < p->n_in; i++)
        if (cuda_program_goes_on(k, i) && cuda_point_size(p->in_dtype[i]) < least)
            least = cuda_point_size(p->in_dtype[i]);
    for (int i = 0; i < p->n_out; i++)
        if (cuda_point_size(register_dtype(p, p->out[i])) < least)
            least = cuda_point_size(register_dtype(p, p->out[i]));
    return least <= 2 ? 8 : least == 4 ? 4 : 2;
}

static const char *suffix(int dtype)
{
    return cuda_point_is_f64(dtype) ? "f64" : "f32";
}
static const char *type(int dtype)
{
    return cuda_point_is_f64(dtype) ? "double" : "float";
}

/* The indices x0, x1, … of element i, and where the operands that are not whole have theirs. Within a
 * piece of several elements only the last index changes. */
static void add_places(source *s, const cuda_program_key *k)
{
    const point_program *p = &k->program;
    bool any = false;
    for (int i = 0; i < p->n_in; i++)
        any |= !k->whole[i] && k->strided[i];
    if (any && k->n_dims > 0)
        source_add(s, "        at rest = i;\n");
    for (int d = k->n_dims - 1; any && d >= 0; d--) {
        if (d == 0)
            source_add(s, "        const at x0 = rest;\n");
        else
            source_add(s,
                       "        const at x%d = rest %% (at)s.size[%d];\n"
                       "        rest /= (at)s.size[%d];\n",
                       d, d, d);
    }
    for (int i = 0; any && i < p->n_in; i++) {
        if (k->whole[i] || !k->strided[i])
            continue;
        source_add(s, "        const i64 at%d = 0", i);
        for (int d = 0; d < k->n_dims; d++)
            if (k->strided[i] >> d & 1)
                source_add(s, " + (i64)x%d * s.stride[%d][%d]", d, i, d);
        source_add(s, ";\n");
    }
    for (int d = 0; any && d < k->n_dims; d++)
        source_add(s, "        (void)x%d;\n", d);
}

/* Operand r of element k of the piece. Single elements were read before the loop. */
static void add_operand(source *s, const cuda_program_key *key, int r, int width)
{
    const int dtype = key->program.in_dtype[r];
    if (!key->strided[r] && !key->whole[r]) {
        source_add(s, "            const %s r%d = one%d;\n", type(dtype), r, r);
        return;
    }
    source_add(s, "            const %s r%d = ", type(dtype), r);
    if (cuda_program_goes_on(key, r) && width > 1)
        source_add(s, "point_word_%s(%d, w%d, k);\n", suffix(dtype), dtype, r);
    else if (key->whole[r])
        source_add(s, "point_read_%s(%d, s.in[%d], i);\n", suffix(dtype), dtype, r);
    else
        source_add(s, "point_read_%s(%d, s.in[%d], at%d);\n", suffix(dtype), dtype, r, r);
}

static unsigned long long number_bits(double v)
{
    unsigned long long bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void add_step(source *s, const point_program *p, int i)
{
    const point_step *t = &p->steps[i];
    source_add(s, "            const %s r%d = point_round_%s(%d, point_%s(%d", type(t->dtype),
               p->n_in + i, suffix(t->dtype), t->dtype, t->is_f64 ? "f64" : "f32", t->op);
    for (int j = 0; j < 3; j++)
        if (j < t->n_src)
            source_add(s, ", r%d", t->src[j]);
        else
            source_add(s, ", 0.0f");
    if (isfinite(t->imm))
        source_add(s, ", %a));\n", t->imm);
    else
        source_add(s, ", point_number(0x%016llxull)));\n", number_bits(t->imm));
}

static void add_piece(source *s, const cuda_program_key *k, int width)
{
    const point_program *p = &k->program;
    add_places(s, k);
    for (int r = 0; r < p->n_in && width > 1; r++) {
        const size_t size = cuda_point_size(p->in_dtype[r]), words = (size_t)width * size / 4;
        if (!cuda_program_goes_on(k, r))
            continue;
        source_add(s, "        u32 w%d[%zu];\n        point_fetch<%zu>(w%d, s.in[%d], ", r, words,
                   words, r, r);
        if (k->whole[r])
            source_add(s, "i * %zu);\n", size);
        else
            source_add(s, "at%d * %zu);\n", r, size);
    }
    for (int o = 0; o < p->n_out && width > 1; o++)
        source_add(s, "        u32 o%d[%zu] = {0};\n", o,
                   (size_t)width * cuda_point_size(register_dtype(p, p->out[o])) / 4);
    if (width > 1)
        source_add(s, "        POINT_UNROLL\n        for (int k = 0; k < %d; k++) {\n", width);
    else
        source_add(s, "        {\n");
    for (int r = 0; r < p->n_in; r++)
        add_operand(s, k, r, width);
    for (int i = 0; i < p->n_steps; i++)
        add_step(s, p, i);
    for (int o = 0; o < p->n_out; o++) {
        const int r = p->out[o], dtype = register_dtype(p, r);
        if (width > 1)
            source_add(s, "            point_set_word(%d, o%d, k, r%d);\n", dtype, o, r);
        else
            source_add(s, "            point_write(%d, s.out[%d], i, r%d);\n", dtype, o, r);
    }
    source_add(s, "        }\n");
    for (int o = 0; o < p->n_out && width > 1; o++) {
        const size_t size = cuda_point_size(register_dtype(p, p->out[o]));
        source_add(s, "        point_put<%zu>(o%d, s.out[%d], i * %zu);\n",
                   (size_t)width * size / 4, o, o, size);
    }
}

char *cuda_program_source(const cuda_program_key *k)
{
    const point_program *p = &k->program;
    const int width = cuda_program_width(k);
    source s = {0};
    source_add(&s,
               "#include \"point_memory.h\"\ntypedef %s at;\n"
               "TT_KERNEL(POINT_THREADS, " CUDA_PROGRAM_NAME ", const point_shape s)\n{\n",
               k->is_small ? "u32" : "u64");
    for (int r = 0; r < p->n_in; r++)
        if (!k->strided[r] && !k->whole[r])
            source_add(&s, "    const %s one%d = point_read_%s(%d, s.in[%d], 0);\n",
                       type(p->in_dtype[r]), r, suffix(p->in_dtype[r]), p->in_dtype[r], r);
    source_add(&s,
               "    for (i64 piece = point_first(); piece < s.n_wide; piece += point_all()) {\n"
               "        const i64 i = piece * %d;\n",
               width);
    add_piece(&s, k, width);
    source_add(&s,
               "    }\n"
               "    for (i64 i = s.n_wide * %d + point_first(); i < s.n; i += point_all()) {\n",
               width);
    add_piece(&s, k, 1);
    source_add(&s, "    }\n}\n");
    if (s.failed) {
        free(s.text);
        return NULL;
    }
    return s.text;
}
