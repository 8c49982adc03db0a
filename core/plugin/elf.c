/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <elf.h>
#include <link.h>
#include <string.h>

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Phdr) elf_segment;
typedef ElfW(Shdr) elf_section;
typedef ElfW(Dyn) elf_dynamic;

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#define HOST_RELATIVE R_X86_64_RELATIVE
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#define HOST_RELATIVE R_AARCH64_RELATIVE
#elif defined(__riscv)
#define HOST_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define HOST_MACHINE EM_PPC64
#else
#define HOST_MACHINE EM_NONE /* not checked here; the dynamic loader checks it */
#endif

#define HOST_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define HOST_DATA (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

static tt_status truncated(size_t n, const char *part, tt_error *err)
{
    return TT_FAIL(err, TT_EFORMAT,
                   "truncated or damaged: %s is beyond its %zu bytes; copy or build it again", part,
                   n);
}

/* Whether [offset, offset + size) is within the file's n bytes. */
static bool inside(uint64_t offset, uint64_t size, size_t n)
{
    return offset <= n && size <= n - offset;
}

static tt_status check_header(const unsigned char *p, size_t n, elf_header *h, tt_error *err)
{
    if (n == 0)
        return TT_FAIL(err, TT_EFORMAT, "not a plugin: the file is empty");
    if (n < SELFMAG || memcmp(p, ELFMAG, SELFMAG) != 0)
        return TT_FAIL(err, TT_EFORMAT,
                       "not a plugin: no ELF file; build it as a shared object, with -shared");
    if (n < sizeof *h)
        return truncated(n, "the ELF header", err);
    memcpy(h, p, sizeof *h);
    if (h->e_ident[EI_CLASS] != HOST_CLASS)
        return TT_FAIL(err, TT_EFORMAT, "built for another word size; build it for this machine");
    if (h->e_ident[EI_DATA] != HOST_DATA ||
        (HOST_MACHINE != EM_NONE && h->e_machine != HOST_MACHINE))
        return TT_FAIL(err, TT_EFORMAT,
                       "built for another machine (ELF machine %u); build it for this one",
                       (unsigned)h->e_machine);
    if (h->e_type != ET_DYN)
        return TT_FAIL(err, TT_EFORMAT, "not a shared object (ELF type %u); link it with -shared",
                       (unsigned)h->e_type);
    if (h->e_phentsize != sizeof(elf_segment) || h->e_phnum == 0)
        return TT_FAIL(err, TT_EFORMAT, "damaged: its ELF header has no program headers");
    if (!inside(h->e_phoff, (uint64_t)h->e_phnum * sizeof(elf_segment), n))
        return truncated(n, "the table of segments", err);
    return TT_OK;
}

/* The dynamic loader uses the symbol and string tables without checking that they exist. */
static tt_status check_dynamic(const unsigned char *p, size_t n, const elf_segment *s,
                               tt_error *err)
{
    bool strings = false, symbols = false;
    for (uint64_t at = 0; at + sizeof(elf_dynamic) <= s->p_filesz; at += sizeof(elf_dynamic)) {
        elf_dynamic d;
        memcpy(&d, p + s->p_offset + at, sizeof d);
        if (d.d_tag == DT_NULL)
            break;
        strings = strings || d.d_tag == DT_STRTAB;
        symbols = symbols || d.d_tag == DT_SYMTAB;
    }
    if (!strings || !symbols)
        return TT_FAIL(err, TT_EFORMAT,
                       "damaged: its dynamic section names no symbols (%zu bytes); build it again",
                       n);
    return TT_OK;
}

static tt_status check_segments(const unsigned char *p, size_t n, const elf_header *h,
                                tt_error *err)
{
    bool dynamic = false;
    uint64_t end = 0; /* of the segments before, in memory */
    for (unsigned i = 0; i < h->e_phnum; i++) {
        elf_segment s;
        memcpy(&s, p + h->e_phoff + (size_t)i * sizeof s, sizeof s);
        if (s.p_type != PT_LOAD && s.p_type != PT_DYNAMIC)
            continue;
        if (!inside(s.p_offset, s.p_filesz, n))
            return truncated(n, "a segment", err);
        if (s.p_type == PT_DYNAMIC) {
            dynamic = true;
            TT_TRY(check_dynamic(p, n, &s, err));
        } else if (s.p_memsz < s.p_filesz) {
            return TT_FAIL(err, TT_EFORMAT,
                           "damaged: a segment is larger in the file than in memory");
        } else if (s.p_vaddr < end || s.p_memsz > UINT64_MAX - s.p_vaddr) {
            return TT_FAIL(err, TT_EFORMAT, /* mapped, it would overwrite what is there */
                           "damaged: its segments overlap; copy or build it again");
        } else {
            end = s.p_vaddr + s.p_memsz;
        }
    }
    if (!dynamic)
        return TT_FAIL(err, TT_EFORMAT,
                       "not a shared object: it has no dynamic section; link it with -shared");
    return TT_OK;
}

#ifdef HOST_RELATIVE
static elf_segment segment_of(const unsigned char *p, const elf_header *h, unsigned i)
{
    elf_segment s;
    memcpy(&s, p + h->e_phoff + (size_t)i * sizeof s, sizeof s);
    return s;
}

/* Whether [address, address + size) is within a loaded segment; *at: its offset in the file, if its
 * bytes are there. */
static bool loaded(const unsigned char *p, const elf_header *h, uint64_t address, uint64_t size,
                   uint64_t *at)
{
    for (unsigned i = 0; i < h->e_phnum; i++) {
        const elf_segment s = segment_of(p, h, i);
        if (s.p_type != PT_LOAD || address < s.p_vaddr ||
            !inside(address - s.p_vaddr, size, at ? s.p_filesz : s.p_memsz))
            continue;
        if (at)
            *at = s.p_offset + (address - s.p_vaddr);
        return true;
    }
    return false;
}

/* What the dynamic section says; 0: nothing. */
typedef struct {
    uint64_t relocations, relocation_bytes, n_relative, plt_kind, hash, symbol_size, entry_size;
} dynamic_info;

static dynamic_info read_dynamic(const unsigned char *p, const elf_header *h)
{
    dynamic_info x = {
        .plt_kind = DT_RELA, .symbol_size = sizeof(ElfW(Sym)), .entry_size = sizeof(ElfW(Rela))};
    for (unsigned i = 0; i < h->e_phnum; i++) {
        const elf_segment s = segment_of(p, h, i);
        elf_dynamic d = {.d_tag = DT_NULL};
        for (uint64_t k = 0; s.p_type == PT_DYNAMIC && k + sizeof d <= s.p_filesz; k += sizeof d) {
            memcpy(&d, p + s.p_offset + k, sizeof d);
            if (d.d_tag == DT_NULL)
                break;
            uint64_t *to = d.d_tag == DT_RELA        ? &x.relocations
                           : d.d_tag == DT_RELASZ    ? &x.relocation_bytes
                           : d.d_tag == DT_RELACOUNT ? &x.n_relative
                           : d.d_tag == DT_RELAENT   ? &x.entry_size
                           : d.d_tag == DT_PLTREL    ? &x.plt_kind
                           : d.d_tag == DT_SYMENT    ? &x.symbol_size
                           : d.d_tag == DT_GNU_HASH  ? &x.hash
                                                     : NULL;
            if (to)
                *to = d.d_un.d_val;
        }
    }
    return x;
}

/* Each relocation's place is loaded, and the first n_relative are of that type. */
static bool sound_relocations(const unsigned char *p, const elf_header *h, const dynamic_info *x)
{
    uint64_t at = 0, n = x->relocation_bytes / sizeof(ElfW(Rela));
    bool sound = n == 0 || loaded(p, h, x->relocations, x->relocation_bytes, &at);
    sound = sound && x->n_relative <= n;
    for (uint64_t i = 0; sound && i < n; i++) {
        ElfW(Rela) r;
        memcpy(&r, p + at + i * sizeof r, sizeof r);
        sound = (i >= x->n_relative || ELF64_R_TYPE(r.r_info) == HOST_RELATIVE) &&
                (ELF64_R_TYPE(r.r_info) == 0 || loaded(p, h, r.r_offset, 8, NULL));
    }
    return sound;
}

/* Its head: buckets, first symbol, words of the filter (a power of two), shift. */
static bool sound_hash(const unsigned char *p, const elf_header *h, uint64_t table)
{
    uint32_t head[4];
    uint64_t at = 0;
    if (!table)
        return true;
    if (!loaded(p, h, table, sizeof head, &at))
        return false;
    memcpy(head, p + at, sizeof head);
    const uint64_t bytes = sizeof head + (uint64_t)head[2] * sizeof(void *) + head[0] * UINT64_C(4);
    return head[2] > 0 && (head[2] & (head[2] - 1)) == 0 && loaded(p, h, table, bytes, &at);
}

/* The dynamic loader asserts some of these, which ends the process with a status of its own, and
 * writes to wherever a relocation points. */
static tt_status check_relocations(const unsigned char *p, const elf_header *h, tt_error *err)
{
    const dynamic_info x = read_dynamic(p, h);
    if (x.plt_kind == DT_RELA && x.entry_size == sizeof(ElfW(Rela)) &&
        x.symbol_size == sizeof(ElfW(Sym)) && sound_relocations(p, h, &x) &&
        sound_hash(p, h, x.hash))
        return TT_OK;
    return TT_FAIL(err, TT_EFORMAT,
                   "damaged: its tables for the dynamic loader are wrong; copy or build it again");
}
#else
static tt_status check_relocations(const unsigned char *p, const elf_header *h, tt_error *err)
{
    (void)p;
    (void)h;
    (void)err;
    return TT_OK;
}
#endif

/* Loading does not need the sections, but they are at the file's end: checking them finds a file
 * whose end is missing or is zeros. */
static tt_status check_sections(const unsigned char *p, size_t n, const elf_header *h,
                                tt_error *err)
{
    if (h->e_shoff == 0)
        return TT_OK; /* the sections were stripped */
    if (h->e_shentsize != sizeof(elf_section) ||
        !inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(elf_section), n))
        return truncated(n, "the table of sections", err);
    for (unsigned i = 0; i < h->e_shnum; i++) {
        elf_section s;
        memcpy(&s, p + h->e_shoff + (size_t)i * sizeof s, sizeof s);
        if (s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS && !inside(s.sh_offset, s.sh_size, n))
            return truncated(n, "a section", err);
        if (i == h->e_shstrndx && i != SHN_UNDEF && s.sh_type != SHT_STRTAB)
            return TT_FAIL(err, TT_EFORMAT,
                           "damaged: it has no valid table of sections; copy or build it again");
    }
    return TT_OK;
}

tt_status tt_elf_check_head(const unsigned char *p, size_t n, tt_error *err)
{
    elf_header h;
    TT_TRY(check_header(p, n, &h, err));
    return check_segments(p, n, &h, err);
}

tt_status tt_elf_check(const unsigned char *p, size_t n, tt_error *err)
{
    elf_header h;
    TT_TRY(tt_elf_check_head(p, n, err));
    memcpy(&h, p, sizeof h);
    TT_TRY(check_relocations(p, &h, err));
    return check_sections(p, n, &h, err);
}

/* The dynamic section gives the size of .init_array; of its entries one is the compiler's own
 * (frame_dummy of crtbegin). */
int tt_elf_constructors(const unsigned char *p, size_t n)
{
    elf_header h;
    uint64_t bytes = 0;
    if (tt_elf_check(p, n, NULL) != TT_OK)
        return 0;
    memcpy(&h, p, sizeof h);
    for (unsigned i = 0; i < h.e_phnum; i++) {
        elf_segment s;
        memcpy(&s, p + h.e_phoff + (size_t)i * sizeof s, sizeof s);
        const uint64_t at = s.p_type == PT_DYNAMIC ? s.p_offset : n;
        for (uint64_t k = 0; at < n && k + sizeof(elf_dynamic) <= s.p_filesz &&
                             inside(at + k, sizeof(elf_dynamic), n);
             k += sizeof(elf_dynamic)) {
            elf_dynamic d;
            memcpy(&d, p + at + k, sizeof d);
            if (d.d_tag == DT_NULL)
                break;
            if (d.d_tag == DT_INIT_ARRAYSZ || d.d_tag == DT_PREINIT_ARRAYSZ)
                bytes += d.d_un.d_val;
        }
    }
    return (int)(bytes / sizeof(void *)) - 1;
}
