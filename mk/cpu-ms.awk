# SPDX-License-Identifier: Apache-2.0
# From what a shell's `times` has written to a file (in a pipe it would tell nothing): the milliseconds of CPU of the processes that it has waited for.
END {
    for (i = 1; i <= 2; i++) {
        split($i, t, "m")
        ms += 60000 * t[1] + 1000 * t[2]
    }
    printf "%d\n", ms
}
