#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/reference.md is what the option tables say; the man page and the help texts know the commands and options there are.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
reference_is_what_the_tables_say() {
    "$TTRUN" config --plugin-dir "$PLUGINS" --reference >"$dir/now" && diff docs/reference.md "$dir/now" ||
        { echo "run: make docs"; return 1; }
}
commands() { "$TTRUN" --help | sed -n '/^commands/,/^$/s/^  \([a-z]*\) .*/\1/p'; }
# "--name" of every line of a help text that begins with one
options() { "$TTRUN" "$@" --help | sed -n 's/^  --\([a-z][a-z_-]*\).*/\1/p'; }
# The lists of the man page are made from the same tables as the help texts.
man_is_what_the_tables_say() {
    for part in synopsis options; do
        "$TTRUN" complete "--man-$part" >"$dir/part" && [ -s "$dir/part" ] || return 1
        sed -n "/^\.\\\\\" begin $part/,/^\.\\\\\" end $part/p" docs/ttrun.1 | sed '1d;$d' | diff - "$dir/part" || { echo "run: make docs"; return 1; }
    done
}
man_has_every_command_and_option() {
    man=$(sed 's/\\-/-/g; s/\\f[BIPR]//g' docs/ttrun.1)
    for c in $(commands); do
        echo "$man" | grep -q "^\.B ttrun $c" || { echo "docs/ttrun.1: no synopsis of $c"; return 1; }
        for o in $(options "$c"); do
            echo "$man" | grep -q -e "--$o" || { echo "docs/ttrun.1: no --$o"; return 1; }
        done
    done
}
man_has_no_other_command() {
    for c in $(sed -n 's/^\.B ttrun \([a-z]*\)$/\1/p' docs/ttrun.1); do
        commands | grep -qx "$c" || { echo "docs/ttrun.1: ttrun has no command $c"; return 1; }
    done
}
# Each option of each command: a line of meaning in --help, and its place in the usage.
help_says_what_each_option_means() {
    for c in $(commands); do
        "$TTRUN" "$c" --help >"$dir/help" || return 1
        sed -n '/^usage:/,/^[a-z].*[^:]$/p' "$dir/help" >"$dir/usage"
        for o in $(sed -n "/^options of $c:/,/^\$/s/^  --\([a-z][a-z_-]*\).*/\1/p" "$dir/help"); do
            grep -q -e "--$o\([] ]\|\$\)" "$dir/usage" || { echo "usage of $c: no --$o"; return 1; }
        done
        ! sed -n 's/ *$//; /^  --/p' "$dir/help" | grep -vE '^  --[a-z_-]+( [^ ]+)?  +[^ ].{9,}' || { echo "help of $c: an option without meaning"; return 1; }
        ! LC_ALL=C awk 'length > 80' "$dir/help" | grep . || { echo "help of $c: a line that is too long"; return 1; }
    done
}
check reference_agrees_with_the_option_tables reference_is_what_the_tables_say
check man_has_every_command_and_option man_has_every_command_and_option
check man_has_no_other_command man_has_no_other_command
check man_is_what_the_tables_say man_is_what_the_tables_say
check help_says_what_each_option_means help_says_what_each_option_means
exit $failed
