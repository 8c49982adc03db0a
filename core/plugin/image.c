/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dlfcn.h>
#include <link.h>
#include <string.h>

typedef struct collector {
    tt_arena *arena;
    tt_image *image;
} collector;

static int add_object(struct dl_phdr_info *info, size_t size, void *user)
{
    collector *c = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || h->p_memsz == 0)
            continue;
        uintptr_t begin = (uintptr_t)(info->dlpi_addr + h->p_vaddr);
        tt_segment s = {begin, begin + h->p_memsz, (h->p_flags & PF_R) != 0,
                        (h->p_flags & PF_X) != 0};
        tt_vec_push(c->arena, &c->image->segments, s);
    }
    return 0;
}

void tt_image_collect(tt_arena *a, tt_image *out)
{
    collector c = {a, out};
    memset(out, 0, sizeof *out);
    dl_iterate_phdr(add_object, &c);
}

static const tt_segment *segment_of(const tt_image *m, uintptr_t address)
{
    for (size_t i = 0; i < m->segments.n; i++)
        if (address >= m->segments.items[i].begin && address < m->segments.items[i].end)
            return &m->segments.items[i];
    return NULL;
}

bool tt_image_readable(const tt_image *m, const void *p, size_t n, size_t align)
{
    uintptr_t at = (uintptr_t)p;
    const tt_segment *s = segment_of(m, at);
    return s && s->readable && at % align == 0 && n <= s->end - at;
}

bool tt_image_code(const tt_image *m, uintptr_t address)
{
    const tt_segment *s = segment_of(m, address);
    return s && s->executable;
}

bool tt_image_text(const tt_image *m, const char *s, size_t max)
{
    const tt_segment *g = segment_of(m, (uintptr_t)s);
    if (!g || !g->readable)
        return false;
    size_t room = g->end - (uintptr_t)s;
    return memchr(s, '\0', TT_MIN(room, max)) != NULL;
}

size_t tt_image_symbol_size(const void *p)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    if (!dladdr1(p, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != p)
        return 0;
    return (size_t)symbol->st_size;
}
