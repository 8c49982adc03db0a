/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "interchange/formats/hf.h"
#include "interchange/formats/torch_file.h"

/* The weights of a Hugging Face folder: the files of its index, else its one file; others there are not looked at.
 * PyTorch's files count only where there are none of safetensors. */

static const struct {
    const char *index, *one, *suffix;
    tt_ckpt_file_fn open;
} forms[] = {
    {"model.safetensors.index.json", "model.safetensors", ".safetensors", tt_st_open   },
    {"pytorch_model.bin.index.json", "pytorch_model.bin", ".bin",         tt_torch_open}
};

bool tt_hf_has_weights(const char *folder)
{
    bool any = false;
    for (size_t i = 0; i < TT_COUNT(forms); i++)
        any = any || tt_folder_has(folder, forms[i].one) || tt_folder_has(folder, forms[i].index);
    return any && tt_folder_has(folder, "config.json") && !tt_folder_has(folder, "trainer.json");
}

static tt_status hf_fill(tt_ckpt_reader *r, const void *unused, tt_error *err)
{
    (void)unused;
    for (size_t i = 0; i < TT_COUNT(forms); i++) {
        const char **names = NULL;
        size_t n = 0;
        if (tt_folder_has(r->path, forms[i].index)) {
            TT_TRY(tt_ckpt_names_of_index(r, forms[i].index, forms[i].suffix, &names, &n, err));
            return tt_ckpt_add_files(r, names, n, forms[i].open, err);
        }
        if (tt_folder_has(r->path, forms[i].one))
            return tt_ckpt_add_files(r, &forms[i].one, 1, forms[i].open, err);
    }
    return TT_FAIL(err, TT_ENOTFOUND,
                   "%s: no model.safetensors, no pytorch_model.bin and no index of them: not a "
                   "Hugging Face folder",
                   r->path);
}

tt_status tt_hf_open(const char *folder, tt_ckpt_reader **out, tt_error *err)
{
    return tt_ckpt_open_with(folder, hf_fill, NULL, out, err);
}
