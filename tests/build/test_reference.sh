#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/reference.md is what the option tables say; the man page and the completion know the commands and options there are.
cd "$SRC" || exit 1
check() { # NAME CONDITION…
    name=$1
    shift
    if "$@"; then echo "ok $name"; else echo "not ok $name"; fi
}
reference_is_what_the_tables_say() {
    "$TTRUN" config --plugin-dir "$PLUGINS" --reference >"$TMPDIR/now" && diff docs/reference.md "$TMPDIR/now" ||
        { echo "run: make docs"; return 1; }
}
commands() { "$TTRUN" --help | sed -n '/^commands/,/^$/s/^  \([a-z]*\) .*/\1/p'; }
# "--name" of every line of a help text that begins with one
options() { "$TTRUN" "$@" --help | sed -n 's/^  --\([a-z][a-z_-]*\).*/\1/p'; }
man_has_every_command_and_option() {
    man=$(sed 's/\\-/-/g; s/\\f[BIPR]//g' docs/ttrun.1)
    for c in $(commands); do
        echo "$man" | grep -q "^\.B ttrun $c\|^\.RB \[ $c \]" || { echo "docs/ttrun.1: no synopsis of $c"; return 1; }
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
completion_has_every_command_and_option() {
    for c in $(commands); do
        grep -q "[\" ]$c[\" ]" mk/ttrun.bash || { echo "mk/ttrun.bash: no $c"; return 1; }
        for o in $(options "$c"); do
            grep -q -e "--$o[\" ]" mk/ttrun.bash || { echo "mk/ttrun.bash: no --$o (of $c)"; return 1; }
        done
    done
}
check reference_agrees_with_the_option_tables reference_is_what_the_tables_say
check man_has_every_command_and_option man_has_every_command_and_option
check man_has_no_other_command man_has_no_other_command
check completion_has_every_command_and_option completion_has_every_command_and_option
