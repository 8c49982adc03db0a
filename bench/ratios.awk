# SPDX-License-Identifier: Apache-2.0
# Lines "CASE|OURS|THEIRS", one per round, as a table: medians, and the median, least and most of the rounds' ratios.
# less=1: less is better (a time), so that a ratio above 1 is always ours.
function median(v, n,    i, j, x) {
    for (i = 2; i <= n; i++) {
        x = v[i]
        for (j = i - 1; j > 0 && v[j] > x; j--)
            v[j + 1] = v[j]
        v[j + 1] = x
    }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
BEGIN { FS = "|" }
NF == 3 && $2 > 0 && $3 > 0 {
    if (!($1 in rounds))
        name[++n_cases] = $1
    k = ++rounds[$1]
    ours[$1, k] = $2
    theirs[$1, k] = $3
}
END {
    for (c = 1; c <= n_cases; c++) {
        n = rounds[name[c]]
        for (k = 1; k <= n; k++) {
            a[k] = ours[name[c], k]
            b[k] = theirs[name[c], k]
            r[k] = less ? b[k] / a[k] : a[k] / b[k]
        }
        m = median(r, n)
        printf "| %s | %.1f | %.1f | %.3f | %.3f | %.3f | %d |\n", name[c], median(a, n), median(b, n), m, r[1], r[n], n
    }
}
