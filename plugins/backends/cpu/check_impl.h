/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of check.c. Eight floats are added in f32, the rest in double, so that these sums round
 * less than a product does. Squares only bound a rounding error: they are f32. */

INLINE double check_doubles(vd s)
{
    double sum[VW / 2];
    memcpy(sum, &s, sizeof sum);
    for (int n = VW / 4; n; n /= 2)
        for (int i = 0; i < n; i++)
            sum[i] += sum[i + n];
    return sum[0];
}

INLINE double check_lanes(vf x)
{
    return check_doubles(vlow(x) + vhigh(x));
}

INLINE void check_put(double *sum, vf x)
{
    typedef double vd_any __attribute__((vector_size(VW * 4), aligned(8), may_alias));
    vd_any *to = (vd_any *)(void *)sum;
    to[0] += vlow(x);
    to[1] += vhigh(x);
}

INLINE vf check_group(const int n, const float *p, int64_t ld, vf *squares)
{
    vf x[8];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        x[i] = vload(p + i * ld);
        *squares = vfma(x[i], x[i], *squares);
    }
    return n == 1 ? x[0] : ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* Rows of n floats, ld apart: sum[j] += the sum of column j. */
static void check_columns(const float *p, int64_t ld, int64_t rows, int64_t n, double *sum,
                          double *squares)
{
    const int64_t whole = n / VW * VW;
    vf s = vset(0.0f);
    for (int64_t r = 0; r < rows;) {
        const bool eight = rows - r >= 8;
        for (int64_t j = 0; j < whole; j += VW)
            check_put(sum + j, eight ? check_group(8, p + r * ld + j, ld, &s)
                                     : check_group(1, p + r * ld + j, ld, &s));
        r += eight ? 8 : 1;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = whole; j < n; j++) {
            const double x = (double)p[r * ld + j];
            sum[j] += x;
            *squares += x * x;
        }
    *squares += check_lanes(s);
}

/* sum += n floats, squares += their squares. Returns the sum of the last n mod VW of them. */
INLINE double check_run(const float *p, int64_t n, vd *sum, vf *squares, double *more)
{
    double rest = 0;
    int64_t j = 0;
    for (; j + 8 * VW <= n; j += 8 * VW) {
        const vf x = check_group(8, p + j, VW, squares);
        *sum += vlow(x) + vhigh(x);
    }
    for (; j + VW <= n; j += VW) {
        const vf x = check_group(1, p + j, VW, squares);
        *sum += vlow(x) + vhigh(x);
    }
    for (; j < n; j++) {
        rest += (double)p[j];
        *more += (double)p[j] * (double)p[j];
    }
    return rest;
}

/* The sum of `rows` rows of n floats, ld apart. */
static double check_total(const float *p, int64_t ld, int64_t rows, int64_t n, double *squares)
{
    double rest = 0;
    vd sum = {0};
    vf s = vset(0.0f);
    for (int64_t r = 0; r < rows; r++)
        rest += check_run(p + r * ld, n, &sum, &s, squares);
    *squares += check_lanes(s);
    return rest + check_doubles(sum);
}

/* sum[c] += the sum of the `rows` floats at p + c ld. */
static void check_lines(const float *p, int64_t ld, int64_t rows, int64_t n, double *sum,
                        double *squares)
{
    vf s = vset(0.0f);
    for (int64_t c = 0; c < n; c++) {
        vd line = {0};
        const double rest = check_run(p + c * ld, rows, &line, &s, squares);
        sum[c] += rest + check_doubles(line);
    }
    *squares += check_lanes(s);
}

/* sum[c] += the sum of column c of rows × n elements of a. */
static void check_sums(cpu_mat a, int64_t rows, int64_t n, double *sum, double *squares)
{
    if (a.cs == 1)
        check_columns(a.p, a.rs, rows, n, sum, squares);
    else
        check_lines(a.p, a.cs, rows, n, sum, squares);
}

/* sum[c] = the sum of column c of `rows` × n bf16 elements, sum[n] = that of all squares; rows <= 512. */
static void check_half(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t n,
                       float *sum)
{
    float wide[512], squares = 0;
    for (int64_t c = 0; c <= n; c++)
        sum[c] = 0;
    for (int64_t r = 0; cs == 1 && r < rows; r++)
        for (int64_t c = 0; c < n; c += 512) {
            const int64_t k = n - c < 512 ? n - c : 512;
            vf s = vset(0.0f);
            from_bf16(k, p + r * rs + c, wide);
            int64_t j = 0;
            for (; j + VW <= k; j += VW) {
                const vf x = vload(wide + j);
                s = vfma(x, x, s);
                vstore(sum + c + j, vload(sum + c + j) + x);
            }
            for (; j < k; j++) {
                sum[c + j] += wide[j];
                squares += wide[j] * wide[j];
            }
            squares += (float)check_lanes(s);
        }
    double more = 0;
    vf s = vset(0.0f);
    for (int64_t c = 0; cs != 1 && c < n; c++) {
        vd line = {0};
        from_bf16(rows, p + c * cs, wide);
        const double rest = check_run(wide, rows, &line, &s, &more);
        sum[c] = (float)(rest + check_doubles(line));
    }
    sum[n] = squares + (float)(more + check_lanes(s));
}
