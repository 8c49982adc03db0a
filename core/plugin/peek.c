/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <elf.h>
#include <link.h>
#include <string.h>

/* Reads which components a plugin has from the bytes of its file, without loading it: the descriptor
 * is constant data, and its pointers are relative relocations. So a job opens only the files that have
 * what it needs. What cannot be read so is not an error: the file is opened, and its fault is found
 * there. Nothing here trusts the file. */

#if defined(__x86_64__)
#define PEEK_RELATIVE R_X86_64_RELATIVE
#elif defined(__aarch64__)
#define PEEK_RELATIVE R_AARCH64_RELATIVE
#endif

#ifdef PEEK_RELATIVE

#define PEEK_ENTRY "tt_plugin_entry"
#define PEEK_NAME_MAX 64
#define PEEK_COMPONENTS_MAX 4096

typedef struct {
    const unsigned char *p;
    size_t n;
    ElfW(Ehdr) head;
    uint64_t symbols, strings, hash, relocations, relocation_bytes, n_relative;
} peeked;

/* The file's offset of [address, address + size), whose bytes are in the file; SIZE_MAX: they are not. */
static size_t offset_of(const peeked *f, uint64_t address, uint64_t size)
{
    for (unsigned i = 0; i < f->head.e_phnum; i++) {
        ElfW(Phdr) s;
        memcpy(&s, f->p + f->head.e_phoff + (size_t)i * sizeof s, sizeof s);
        if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr <= s.p_filesz &&
            size <= s.p_filesz - (address - s.p_vaddr))
            return (size_t)(s.p_offset + (address - s.p_vaddr));
    }
    return SIZE_MAX;
}

static bool peek_bytes(const peeked *f, uint64_t address, void *out, size_t size)
{
    const size_t at = offset_of(f, address, size);
    if (at == SIZE_MAX)
        return false;
    memcpy(out, f->p + at, size);
    return true;
}

static bool peek_dynamic(peeked *f)
{
    for (unsigned i = 0; i < f->head.e_phnum; i++) {
        ElfW(Phdr) s;
        memcpy(&s, f->p + f->head.e_phoff + (size_t)i * sizeof s, sizeof s);
        for (uint64_t k = 0; s.p_type == PT_DYNAMIC && k + sizeof(ElfW(Dyn)) <= s.p_filesz;
             k += sizeof(ElfW(Dyn))) {
            ElfW(Dyn) d;
            memcpy(&d, f->p + s.p_offset + k, sizeof d);
            if (d.d_tag == DT_NULL)
                break;
            uint64_t *to = d.d_tag == DT_SYMTAB      ? &f->symbols
                           : d.d_tag == DT_STRTAB    ? &f->strings
                           : d.d_tag == DT_GNU_HASH  ? &f->hash
                           : d.d_tag == DT_RELA      ? &f->relocations
                           : d.d_tag == DT_RELASZ    ? &f->relocation_bytes
                           : d.d_tag == DT_RELACOUNT ? &f->n_relative
                                                     : NULL;
            if (to)
                *to = d.d_un.d_val;
        }
    }
    f->n_relative = TT_MIN(f->n_relative, f->relocation_bytes / sizeof(ElfW(Rela)));
    return f->symbols && f->strings && f->hash;
}

/* The text at an address, of at most max bytes, inside the file; NULL: none. */
static const char *peek_text(const peeked *f, uint64_t address, size_t max)
{
    const size_t at = offset_of(f, address, 1);
    if (at == SIZE_MAX || !memchr(f->p + at, 0, TT_MIN(max + 1, f->n - at)))
        return NULL;
    return (const char *)f->p + at;
}

/* Finds the symbol in the hash table of GNU's format: a head of four words, a filter of words of the
 * machine's size, the buckets, and for each symbol from the first one its hash, whose lowest bit
 * marks the end of a chain. */
static bool peek_symbol(const peeked *f, ElfW(Sym) * out)
{
    uint32_t head[4], want = 5381, index, hash;
    for (const char *c = PEEK_ENTRY; *c; c++)
        want = want * 33 + (unsigned char)*c;
    if (!peek_bytes(f, f->hash, head, sizeof head) || !head[0])
        return false;
    const uint64_t buckets = f->hash + sizeof head + (uint64_t)head[2] * sizeof(ElfW(Addr));
    const uint64_t hashes = buckets + (uint64_t)head[0] * sizeof index;
    if (!peek_bytes(f, buckets + (want % head[0]) * sizeof index, &index, sizeof index) ||
        index < head[1])
        return false;
    for (;; index++) {
        if (!peek_bytes(f, hashes + (uint64_t)(index - head[1]) * sizeof hash, &hash, sizeof hash))
            return false;
        if ((hash | 1) == (want | 1)) {
            if (!peek_bytes(f, f->symbols + (uint64_t)index * sizeof *out, out, sizeof *out))
                return false;
            const char *name = peek_text(f, f->strings + out->st_name, sizeof PEEK_ENTRY);
            if (name && strcmp(name, PEEK_ENTRY) == 0)
                return out->st_shndx != SHN_UNDEF;
        }
        if (hash & 1)
            return false;
    }
}

/* Reads the pointer at an address: the addend of its relative relocation. The linker sorts these by
 * their places. */
static bool peek_pointer(const peeked *f, uint64_t address, uint64_t *out)
{
    uint64_t low = 0, high = f->n_relative;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        ElfW(Rela) r;
        if (!peek_bytes(f, f->relocations + middle * sizeof r, &r, sizeof r))
            return false;
        if (r.r_offset == address) {
            *out = (uint64_t)r.r_addend;
            return ELF64_R_TYPE(r.r_info) == PEEK_RELATIVE;
        }
        if (r.r_offset < address)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static bool peek_component(const peeked *f, uint64_t at, tt_arena *a, tt_peek *out)
{
    int kind;
    uint64_t text = 0;
    if (!peek_bytes(f, at + offsetof(tt_component, kind), &kind, sizeof kind) ||
        !peek_pointer(f, at + offsetof(tt_component, name), &text))
        return false;
    const char *name = peek_text(f, text, PEEK_NAME_MAX);
    if (!name)
        return false;
    *out = (tt_peek){(tt_kind)kind, tt_arena_str(a, name)};
    return true;
}

bool tt_plugin_peek(const unsigned char *p, size_t n, tt_arena *a, tt_peek **out, size_t *n_out)
{
    peeked f = {.p = p, .n = n};
    ElfW(Sym) symbol;
    tt_plugin d;
    uint64_t first = 0;
    if (tt_elf_check_head(p, n, NULL) != TT_OK)
        return false;
    memcpy(&f.head, p, sizeof f.head);
    if (!peek_dynamic(&f) || !peek_symbol(&f, &symbol) ||
        !peek_bytes(&f, symbol.st_value, &d, sizeof d))
        return false;
    if (d.magic != TT_PLUGIN_MAGIC || d.abi_major != TT_ABI_MAJOR || d.abi_minor != TT_ABI_MINOR ||
        d.struct_size < sizeof d || !d.n_components || d.n_components > PEEK_COMPONENTS_MAX ||
        d.component_size < TT_V1_0(tt_component, name) || d.component_size > TT_STRUCT_MAX ||
        !peek_pointer(&f, symbol.st_value + offsetof(tt_plugin, components), &first))
        return false;
    tt_peek *list = tt_arena_array(a, d.n_components, sizeof *list);
    for (size_t i = 0; i < d.n_components; i++)
        if (!peek_component(&f, first + i * d.component_size, a, &list[i]))
            return false;
    *out = list;
    *n_out = d.n_components;
    return true;
}

#else
bool tt_plugin_peek(const unsigned char *p, size_t n, tt_arena *a, tt_peek **out, size_t *n_out)
{
    (void)p, (void)n, (void)a, (void)out, (void)n_out;
    return false;
}
#endif
