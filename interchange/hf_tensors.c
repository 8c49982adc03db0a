/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/hf_tensors.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the safetensors files of a Hugging Face folder have a tensor, before anything reads them: their names are
 * keys of JSON, in the index of the shards or at the begin of the one file. */

#define MAX_NAMES_BYTES ((size_t)256 << 20)

/* The JSON at the begin of a safetensors file: 8 bytes with its length, little-endian, and the text. */
static char *header_of(const char *path)
{
    unsigned char length[8];
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block for ever */
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "rb") : NULL;
    uint64_t n = 0;
    char *text = NULL;
    if (f && fread(length, 1, sizeof length, f) == sizeof length)
        for (int i = 7; i >= 0; i--)
            n = n << 8 | length[i];
    if (n > 0 && n < MAX_NAMES_BYTES)
        text = malloc((size_t)n + 1);
    if (text)
        text[fread(text, 1, (size_t)n, f)] = '\0';
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return text;
}

/* true too if the folder has no safetensors: what it has is not known then. */
static bool has_tensor(tt_arena *a, const char *folder, const char *name)
{
    const char *index = tt_path_join(a, folder, "model.safetensors.index.json");
    char *names = NULL;
    size_t n = 0;
    if (!tt_path_exists(index) || tt_read_file(index, MAX_NAMES_BYTES, &names, &n, NULL) != TT_OK)
        names = header_of(tt_path_join(a, folder, "model.safetensors"));
    const bool has = !names || strstr(names, tt_arena_printf(a, "\"%s\"", name));
    free(names);
    return has;
}

/* "model.layers.{num_hidden_layers}.enorm.weight" with the number of config.json; NULL: it has none. */
static const char *fill(tt_arena *a, const char *tensor, const tt_json *root)
{
    const char *open = strchr(tensor, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!close)
        return tensor;
    const tt_json *v = tt_json_get(root, tt_arena_strn(a, open + 1, (size_t)(close - open - 1)));
    if (!v || v->type != TT_JSON_INT)
        return NULL;
    return tt_arena_printf(a, "%.*s%lld%s", (int)(open - tensor), tensor, (long long)v->integer,
                           close + 1);
}

bool tt_setup_hf_counts(tt_arena *a, const tt_component *c, const char *config_path,
                        const tt_json *root, const char *key)
{
    const tt_model_hf_if *x = c->extension ? c->extension(TT_MODEL_HF_IF) : NULL;
    if (!x || strcmp(x->key, key) != 0)
        return true;
    const tt_json *v = tt_json_get(root, key);
    const char *tensor = fill(a, x->tensor, root);
    return !tensor || !v || v->type != TT_JSON_INT || v->integer == 0 ||
           has_tensor(a, tt_path_dir(a, config_path), tensor);
}

void tt_setup_hf_say_counts(tt_arena *a, const tt_component *c, const char *config_path,
                            const tt_json *root)
{
    const tt_model_hf_if *x = c->extension ? c->extension(TT_MODEL_HF_IF) : NULL;
    if (x && !tt_setup_hf_counts(a, c, config_path, root, x->key))
        tt_log(TT_INFO, "model", "%s: %s %lld is not applied: the folder has no tensor %s",
               config_path, x->key, (long long)tt_json_get(root, x->key)->integer,
               fill(a, x->tensor, root));
}
