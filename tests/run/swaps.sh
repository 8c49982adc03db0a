# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts about converters that change while a run goes on, which source it.
. "$(dirname "$0")/processes.sh"
mkdir -p "$dir/more/converters"
more="--plugin-dir $dir/more --checkpoint.interval 10"
# build SOURCE FILE OPTION...: a plugin, put in place at once, as a linker does not
build() {
    source=$1 file=$2
    shift 2
    cc -std=c11 -Wall -Wextra -Werror -Wno-unused-parameter -shared -fPIC "-I$SRC/include" "$@" "$SRC/tests/plugins/$source.c" -o "$dir/built.so" &&
        mv "$dir/built.so" "$dir/more/converters/$file.so"
}
short() { train "$@" $more && [ "$rc" -eq 0 ]; }
steps() { # FOLDER FROM TO: of a file that may have a million lines
    seq "$2" "$3" | sed 's/.*/{"step":&,/' >"$dir/wanted"
    tail -n 500000 "$1/metrics.jsonl" | LC_ALL=C grep -F -f "$dir/wanted" >"$dir/newest"
    losses "$dir/newest"
}
same() { # FOLDER FOLDER FROM TO: the losses of these steps
    steps "$1" "$3" "$4" >"$dir/a"
    steps "$2" "$3" "$4" >"$dir/b"
    [ "$(wc -l <"$dir/a")" -eq $(($4 - $3 + 1)) ] && cmp -s "$dir/a" "$dir/b"
}
forever() { # FOLDER OPTION...: a run in the background, until it has made some steps
    folder=$1
    shift
    start "$folder" --plugin-dir "$dir/more" --training.steps 100000000 --checkpoint.interval 100000000 "$@"
    until_true has_lines "$folder/metrics.jsonl" 3
}
ctl() { # WORD...: to the run in $folder
    "$TTRUN" ctl "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ]
}
refuses() { [ "$rc" -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "$1" "$dir/err"; }
step_said() { sed -n 's/^\(.* was reloaded; \)\{0,1\}converters from step \([0-9]*\) on.*/\2/p' "$dir/out"; }
step_now() { tail -n 2 "$folder/metrics.jsonl" | sed -n 's/^{"step":\([0-9]*\),.*}$/\1/p' | tail -n 1; }
passed() { [ -n "$(step_now)" ] && [ "$(step_now)" -ge "$1" ]; }
# The bytes that the run under heap.so has and has not given back. A step takes some while it is under way: a run that stands at a gate, and has
# answered the last command, has the same number each time.
heap() {
    : >"$dir/heap.ask"
    until_true test ! -e "$dir/heap.ask" && cat "$dir/heap"
}
# between_steps COMMAND...: of a run that was started under $gated
between_steps() {
    gate 1
    stands && "$@"
    let_go
}
counted() { # COMMAND...: starts a run whose bytes are counted, where that is possible: a sanitizer keeps what is freed
    case $BUILD in
    */asan | */tsan | */ubsan) "$@" ;;
    *) preload heap && TTRUN_HEAP=$dir/heap LD_PRELOAD=$dir/heap.so "$@" ;;
    esac
}
bytes() { case $BUILD in */asan | */tsan | */ubsan) echo 0 ;; *) heap ;; esac; }
# A connection of `ttrun ctl`, or a file that a step writes, may be open for a moment: a few more are none too many.
descriptors() { ls "/proc/$pid/fd" | wc -l; }
