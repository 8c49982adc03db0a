/* SPDX-License-Identifier: Apache-2.0 */
/* Included before every file of a tree with mutants (mk/mutants.sh), in C and C++: tt_mutant(N) is 1 where MUTANT is N, else 0. With MUTANTS_REACHED,
 * the name of a file, byte N of it becomes 1 when the place of N is reached, in whatever process. It includes nothing, since what follows
 * has yet to say which features of libc it wants; each object that is linked has these names once. */
#ifndef TT_TESTS_MUTANT_H
#define TT_TESTS_MUTANT_H
#ifdef __cplusplus
extern "C" {
#endif
extern char *tt_mutant_env(const char *) __asm__("getenv");
extern int tt_mutant_number(const char *) __asm__("atoi");
extern int tt_mutant_open(const char *, int, ...) __asm__("open");
extern int tt_mutant_size(int, long) __asm__("ftruncate");
extern int tt_mutant_close(int) __asm__("close");
extern void *tt_mutant_map(void *, unsigned long, int, int, int, long) __asm__("mmap");

#define TT_MUTANTS 4096
#define TT_MUTANT_ONE __attribute__((weak, visibility("hidden")))
TT_MUTANT_ONE int tt_mutant_now;
TT_MUTANT_ONE unsigned char tt_mutant_nowhere[TT_MUTANTS];
TT_MUTANT_ONE unsigned char *tt_mutant_reached;

__attribute__((constructor(101))) static void tt_mutant_start(void)
{
    if (tt_mutant_reached)
        return;
    tt_mutant_reached = tt_mutant_nowhere;
    const char *now = tt_mutant_env("MUTANT"), *file = tt_mutant_env("MUTANTS_REACHED");
    tt_mutant_now = now ? tt_mutant_number(now) : -1;
    int fd = file ? tt_mutant_open(file, 02 | 0100 | 02000000, 0644)
                  : -1; /* O_RDWR, O_CREAT, O_CLOEXEC */
    if (fd < 0)
        return;
    if (tt_mutant_size(fd, TT_MUTANTS) == 0) {
        void *at = tt_mutant_map((void *)0, TT_MUTANTS, 1 | 2, 1, fd,
                                 0); /* PROT_READ, PROT_WRITE, MAP_SHARED */
        if (at != (void *)-1)
            tt_mutant_reached = (unsigned char *)at;
    }
    tt_mutant_close(fd);
}

static inline int tt_mutant(int n)
{
    if (tt_mutant_reached && !tt_mutant_reached[n])
        tt_mutant_reached[n] = 1;
    return tt_mutant_now == n;
}
#ifdef __cplusplus
}
#endif
#endif
