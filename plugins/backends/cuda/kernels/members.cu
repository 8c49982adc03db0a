/* SPDX-License-Identifier: Apache-2.0 */
#include "members.h"
#include "point_memory.h"

/* reduce_members: each element is summed by itself, in member order, so that neither grid nor width changes the bits. A sum
 * of bf16 is kept in f32 and rounded once. */

template <class T> TT_DEV T members_pair(T a, T b, int is_max)
{
    return !is_max ? a + b : a > b || a != a ? a : b;
}
TT_DEV int members_pair(int a, int b, int is_max) /* a sum that is too large wraps around */
{
    return !is_max ? (int)((u32)a + (u32)b) : a > b ? a : b;
}
TT_DEV i64 members_pair(i64 a, i64 b, int is_max)
{
    return !is_max ? (i64)((u64)a + (u64)b) : a > b ? a : b;
}

/* The register of the sum: of an element, and back. */
template <class T> TT_DEV T members_read(T v)
{
    return v;
}
TT_DEV float members_read(bf16 v)
{
    return tt_f32(v);
}
TT_DEV void members_write(bf16 *p, float v)
{
    *p = tt_bf16(v);
}
template <class T> TT_DEV void members_write(T *p, T v)
{
    *p = v;
}

TT_DEV const void *members_at(const members_call &c, int m)
{
    return c.step ? (const char *)c.in[0] + m * c.step : c.in[m];
}

template <class T> TT_DEV void members_reduce(const members_call &c)
{
    constexpr int WIDTH = 16 / sizeof(T);
    typedef decltype(members_read(T())) sum;
    union piece {
        point_words4 words;
        T v[WIDTH];
    };
    for (i64 i = point_first(); i < c.n_wide; i += point_all()) {
        piece x;
        sum s[WIDTH];
        x.words = ((const point_words4 *)members_at(c, 0))[i];
        for (int k = 0; k < WIDTH; k++)
            s[k] = members_read(x.v[k]);
        POINT_ROLLED
        for (int m = 1; m < c.n_members; m++) {
            x.words = ((const point_words4 *)members_at(c, m))[i];
            for (int k = 0; k < WIDTH; k++)
                s[k] = members_pair(s[k], members_read(x.v[k]), c.is_max);
        }
        for (int k = 0; k < WIDTH; k++)
            members_write(&x.v[k], s[k]);
        ((point_words4 *)c.out)[i] = x.words;
    }
    for (i64 i = c.n_wide * WIDTH + point_first(); i < c.n; i += point_all()) {
        sum s = members_read(((const T *)members_at(c, 0))[i]);
        POINT_ROLLED
        for (int m = 1; m < c.n_members; m++)
            s = members_pair(s, members_read(((const T *)members_at(c, m))[i]), c.is_max);
        members_write((T *)c.out + i, s);
    }
}

TT_KERNEL(MEMBERS_THREADS, tt_members_f32, const members_call c)
{
    members_reduce<float>(c);
}
TT_KERNEL(MEMBERS_THREADS, tt_members_bf16, const members_call c)
{
    members_reduce<bf16>(c);
}
TT_KERNEL(MEMBERS_THREADS, tt_members_f64, const members_call c)
{
    members_reduce<double>(c);
}
TT_KERNEL(MEMBERS_THREADS, tt_members_i32, const members_call c)
{
    members_reduce<int>(c);
}
TT_KERNEL(MEMBERS_THREADS, tt_members_i64, const members_call c)
{
    members_reduce<i64>(c);
}
