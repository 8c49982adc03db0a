#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun top: tables for scripts, folders and globs, and on a pseudo-terminal a screen that is left as it was found.
. "$(dirname "$0")/lib.sh"
train "$dir/runs/one" && train "$dir/runs/two" --training.steps 4
top() {
    env LC_ALL=C COLUMNS=200 "$TTRUN" top "$@" >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
}
top "$dir/runs" --once && [ "$(wc -l <"$dir/out")" -eq 3 ] && grep -q '^RUN  STATE  *STEP ' "$dir/out" && ! [ -s "$dir/err" ] &&
    grep -q '^one  done  *10/10  .* MiB  *-  *10  ' "$dir/out" && grep -q '^two  done  *4/4  ' "$dir/out" && ! LC_ALL=C grep -q '[^ -~]' "$dir/out"
ok top_prints_a_line_per_run
top "$dir/runs/t*" "$dir/runs/two/" --once && [ "$(wc -l <"$dir/out")" -eq 2 ]
ok top_takes_globs_and_each_run_once
top "$dir/runs" --once --json && tail -n 1 "$dir/runs/one/metrics.jsonl" >"$dir/last" &&
    [ "$(value "$dir/out" runs.1.loss)" = "$(value "$dir/last" loss)" ] && [ "$(value "$dir/out" runs.1.steps)" = 10 ]
ok top_json_has_the_numbers_of_the_metrics
bad=
top "$dir/none"
[ "$rc" -eq 2 ] && one_line "$dir/err" || bad="$bad missing"
top "$dir/runs"
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -e '--once' "$dir/err" && ! [ -s "$dir/out" ] || bad="$bad pipe"
[ -z "$bad" ]
ok "top_without_a_run_or_a_terminal_is_an_error $bad"
# a run that is training holds its lock; killed, it does not
"$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/runs/live" --training.steps 1000000 -q >/dev/null 2>&1 &
pid=$!
lives() { top "$dir/runs" --once && grep -q '^live  running  *[1-9][0-9,]*/1,000,000 ' "$dir/out"; }
until_true lives
sed -n 2p "$dir/out" | grep -q '^live  running '
ok top_sees_a_run_that_trains_and_puts_it_first
kill -TERM $pid
wait $pid
pid=
top "$dir/runs/live" --once && grep -q '^live  stopped ' "$dir/out"
ok top_sees_that_it_was_stopped
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    esc=$(printf '\033')
    shows() { until_true grep -qF -e "$1" "$dir/pty"; } # TEXT: on the terminal
    # Ctrl-C goes to the shell too: dash would end with it and print no status, so the command traps it.
    pty() { # INPUT COMMAND: on a terminal of 80 columns; the input is typed when the screen is there
        : >"$dir/pty"
        (shows "${esc}[?1049h" && printf '%s' "$1" && shows 'status ') |
            script -qec "trap : INT; stty cols 80 rows 20; TERM=xterm LC_ALL=C.UTF-8 $2; echo status \$?" /dev/null >"$dir/pty" 2>&1
    }
    pty q "$TTRUN top $dir/runs"
    grep -q 'status 0' "$dir/pty" && grep -qF "${esc}[?1049h" "$dir/pty" && grep -F "${esc}[?1049l" "$dir/pty" | grep -qF "${esc}[?25h" && grep -q '▁' "$dir/pty"
    ok top_on_a_terminal_leaves_it_clean
    # behind a text that fills the line, "clear to its end" would clear the last digit
    sed "s/$esc\[H$esc\[K//g; s/^$esc\[K//" "$dir/pty" | tr -d '\r' >"$dir/lines" && grep -qF "${esc}[K" "$dir/pty" && ! grep -F "${esc}[K" "$dir/lines"
    ok top_clears_a_line_before_it_writes
    pty "$(printf '\003')" "$TTRUN top $dir/runs/one"
    grep -q 'status 0' "$dir/pty" && grep -qF "${esc}[?1049l" "$dir/pty"
    ok top_is_left_by_ctrl_c
    # a step's line on 80 columns is one line, without a head
    run_on() { # TERM FOLDER
        TERM=$1 LC_ALL=C script -qec "stty cols 80 rows 20; $TTRUN $job --plugin-dir $PLUGINS --dump_folder $dir/$2 --training.steps 20" /dev/null </dev/null >"$dir/out"
    }
    run_on xterm wide
    tr -d '\r' <"$dir/out" | sed "s/$esc\[[0-9]*[A-Za-z]//g" | grep -o 'step:  .*' >"$dir/lines"
    [ "$(wc -l <"$dir/lines")" -eq 20 ] && [ "$(awk '{ if (length($0) > n) n = length($0) } END { print n }' "$dir/lines")" -lt 80 ] &&
        grep -q 'lr: 1.0e-02' "$dir/lines" && ! grep -qF '[r0 ' "$dir/out"
    ok step_lines_fit_the_terminal
    run_on dumb dumb
    grep -q 'step:   20 ' "$dir/out" && ! grep -q "$esc" "$dir/out"
    ok dumb_terminals_get_no_escape_sequences
else
    for name in top_on_a_terminal_leaves_it_clean top_is_left_by_ctrl_c step_lines_fit_the_terminal dumb_terminals_get_no_escape_sequences; do
        skip $name "script(1) gives no terminal here"
    done
fi
exit $failed
