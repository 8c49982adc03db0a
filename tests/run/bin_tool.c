/* SPDX-License-Identifier: Apache-2.0 */
#include "../checkpoint/torch_writer.h"
#include <stdio.h>
#include <stdlib.h>

/* bin_tool IN.safetensors OUT.bin [BEGIN END]: writes tensors BEGIN to END - 1 (all) as torch.save would; those of
 * two dims lie transposed in their storages. For test_torch_bin.sh. */

static const char *class_of(const tt_st_tensor *t)
{
    return t->dtype == TT_F32 ? "FloatStorage" : t->dtype == TT_BF16 ? "BFloat16Storage" : NULL;
}

static void add_tensor(zip *z, tt_str *p, const tt_st_tensor *t, const char *key)
{
    const size_t size = tt_dtype_size(t->dtype);
    const int64_t rows = t->n_dims == 2 ? t->shape[0] : 1, all = (int64_t)(t->bytes / size),
                  columns = rows ? all / rows : 0;
    int64_t stride[8] = {0}, step = 1;
    char name[64];
    uint8_t *data = calloc(t->bytes + 1, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            memcpy(data + (size_t)(c * rows + r) * size,
                   (const uint8_t *)t->data + (size_t)(r * columns + c) * size, size);
    for (int d = t->n_dims - 1; d >= 0; step *= t->shape[d], d--)
        stride[d] = step;
    if (t->n_dims == 2) {
        stride[0] = 1;
        stride[1] = rows;
    }
    snprintf(name, sizeof name, "m/data/%s", key);
    zip_add(z, name, data, t->bytes);
    pickle_tensor(p, t->name, class_of(t), key, all, 0, t->shape, stride, t->n_dims);
    free(data);
}

int main(int argc, char **argv)
{
    tt_arena *a = tt_arena_new();
    tt_st_file st;
    tt_error err = {0};
    zip z = {.wide = argc > 3};
    tt_str p = {0};
    if (argc < 3 || tt_st_open(argv[1], a, &st, &err) != TT_OK) {
        fprintf(stderr, "usage: bin_tool IN.safetensors OUT.bin [BEGIN END] %s\n", err.text);
        return 2;
    }
    const size_t begin = argc > 4 ? strtoul(argv[3], NULL, 10) : 0,
                 end = argc > 4 ? strtoul(argv[4], NULL, 10) : st.n_tensors;
    pickle_begin(&p);
    for (size_t i = begin; i < end && i < st.n_tensors; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        add_tensor(&z, &p, &st.tensors[i], key);
        printf("%s\n", st.tensors[i].name);
    }
    pickle_end(&p);
    zip_add(&z, "m/data.pkl", p.s, p.n);
    zip_end(&z);
    const tt_status s = tt_write_file_atomic(argv[2], z.file.s, z.file.n, &err);
    if (s != TT_OK)
        fprintf(stderr, "%s\n", err.text);
    tt_st_close(&st);
    tt_arena_free(a);
    return s != TT_OK;
}
