#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The faults that `make mutants` puts in: the table fits the files, and each kind of drawn fault changes what a program does, only where it is chosen.
. "$(dirname "$0")/../script.sh"
tool=$BUILD/tests/mutants/mutate_tool

(cd "$SRC" && "$tool" tests/mutants/table check) >"$dir/out"
ok every_row_fits_its_file
awk -v RS= '/^#/ {next} {n++; split($0, line, "\n"); split(line[1], word, " "); m = split(word[2], test, ",")
    for (i = 1; i <= m; i++) if (test[i] != "-") print test[i]} END {exit n < 100}' "$SRC/tests/mutants/table" >"$dir/named" &&
    for t in $(cat "$dir/named"); do set -- "$SRC"/tests/*/"$t".* "$SRC"/tests/*/*/"$t".*; [ -e "$1" ] || [ -e "$2" ] || echo "$t"; done >"$dir/missing" && [ ! -s "$dir/missing" ]
ok every_test_that_it_names_exists

mkdir -p "$dir/src" && cat >"$dir/src/sample.c" <<'SOURCE'
#include <stdio.h>
#define LEAST 3 /* not "a > b" in a comment, nor 'c' */
enum { MOST = 8 + 1 };
static int less(int a, int b)
{
    static const int by[] = {1 - 1, 2};
    return a - b - by[0];
}
int main(void)
{
    for (int n = 2; n <= MOST; n++) {
        int x = 0;
        if (n >= LEAST && n < MOST)
            x = less(n, 2);
        printf("%d %d %s\n", n, x, x ? "a + 1" : "-");
    }
    return 0;
}
SOURCE
cp "$dir/src/sample.c" "$dir/sample.c"
echo src/sample.c | "$tool" /dev/null 100 3 "$dir" >"$dir/list" 2>&1
for kind in 'a condition turned' 'a clause taken for settled' 'a bound one further' 'a statement left out' 'arguments swapped'; do grep -F "$kind" "$dir/list" >/dev/null || echo "$kind"; done >"$dir/out" &&
    [ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/src/sample.c")" = "$(wc -l <"$dir/sample.c")" ]
ok every_kind_is_drawn
cc=${CC:-gcc}
$cc -include "$SRC/tests/mutants/mutant.h" "$dir/src/sample.c" -o "$dir/mutated" && $cc "$dir/sample.c" -o "$dir/sample" && "$dir/sample" >"$dir/want" &&
    MUTANTS_REACHED="$dir/reached" "$dir/mutated" >"$dir/got" && cmp "$dir/want" "$dir/got"
ok without_a_choice_nothing_changes
n=$(wc -l <"$dir/list")
[ "$(head -c $((n + 1)) "$dir/reached" | tail -c "$n" | tr -d '\001' | wc -c)" = 0 ]
ok every_place_was_reached
for i in $(seq 1 "$n"); do MUTANT=$i "$dir/mutated" >"$dir/got"; ! cmp -s "$dir/want" "$dir/got" || sed -n "${i}p" "$dir/list"; done >"$dir/same" && [ "$n" -eq 8 ] && [ ! -s "$dir/same" ]
ok each_changes_what_is_printed
cp "$dir/sample.c" "$dir/src/sample.c" && printf 'src/sample.c test_x the sum of two\n- return a - b - by[0];\n+ return a + b;\n' >"$dir/rows" && : | (cd "$dir" && "$tool" rows 0 1 . >list) &&
    grep -Fq 'if (tt_mutant(1)) { return a + b; } else { return a - b - by[0]; }' "$dir/src/sample.c" && grep -q "^1	src/sample.c:7	test_x	the sum of two$" "$dir/list"
ok a_row_of_the_table_is_put_in
! (cd "$dir" && printf 'src/sample.c test_x twice\n- x\n+ y\n' >rows && "$tool" rows check >out) && grep -q 'line 1 of the table: the old text is more than once in src/sample.c' "$dir/out"
ok a_row_that_fits_two_places_is_refused
while IFS='|' read -r old new; do (cd "$dir" && printf 'src/sample.c test_x a part\n- %s\n+ %s\n' "$old" "$new" >rows && ! "$tool" rows check >out) && grep -q 'line 1 of the table: not a whole' "$dir/out" || echo "$old"; done >"$dir/taken" <<'END'
less(n,|less(n + 1,
n, 2|n, 3
return a - b - by[0];|return a) - b;
END
[ ! -s "$dir/taken" ]
ok a_row_that_is_no_whole_expression_is_refused
exit $failed
