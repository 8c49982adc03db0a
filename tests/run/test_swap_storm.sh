#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A storm of random swaps, by ttrun ctl set, by reload, and by the schedule of a list, with checkpoints, stops and kills between: after each
# checkpoint the losses are those of another run that resumes there with that list, over the steps of its schedule too; memory and descriptors
# stay as they are. Every second process is killed, the others stop. 20 swaps; TEST_LONG=1: 1000. TTRUN_SEED: another storm.
. "$(dirname "$0")/swaps.sh"
{ build converter converter && build adapter adapter && build reloaded mine -DBY=0.5 && cp "$dir/more/converters/mine.so" "$dir/half.so" &&
    build reloaded mine -DBY=0.3 && cp "$dir/more/converters/mine.so" "$dir/third.so"; } >"$dir/out" 2>&1
ok plugins_build

# The bytes that a run has between two swaps are those that it had 80 swaps ago.
round() { # what each may leave behind, and back to the first list
    for list in '[{"name":"float8"}]' '[{"name":"adapter"}]' '[{"name":"mine"},{"name":"half","filter":["mlp"]}]' '[]'; do ctl set converters "$list" || bad="$bad set($(cat "$dir/err"))"; done
}
case $BUILD in
*/asan | */tsan | */ubsan) skip eighty_swaps_leave_nothing_behind "a sanitizer keeps what is freed" ;;
*)
    bad=
    make_gate && let_go || bad="$bad gate"
    counted start "$dir/heaped" --plugin-dir "$dir/more" --training.steps 100000000 --checkpoint.enable false $gated
    until_true passed 3 && until_true ctl status || bad="$bad start"
    for i in 1 2 3; do round; done
    before=$(between_steps heap) fds=$(descriptors)
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do round; done
    after=$(between_steps heap) open=$(descriptors)
    [ $((after - before)) -le 40000 ] || bad="$bad heap-$before-$after"
    [ "$open" -le $((fds + 4)) ] || bad="$bad descriptors-$fds-$open"
    ctl stop && ends 4 || bad="$bad stop"
    [ -z "$bad" ]
    ok "eighty_swaps_leave_nothing_behind: $before bytes, then $after $bad"
    ;;
esac

swaps=20 lives=7 seed=${TTRUN_SEED:-1} # swaps of a process
is_long && swaps=1000 lives=200
cat >"$dir/lists" <<'LISTS'
[]
job
[{"name":"half"}]
[{"name":"half","filter":["mlp"]}]
[{"name":"float8"}]
[{"name":"float8","roles":["forward"]},{"name":"half"}]
[{"name":"adapter"}]
[{"name":"mine"}]
[{"name":"mine","filter":["lm_head"]},{"name":"float8"}]
LISTS
# What is done, a line each: set LIST, timed (and a save), reload, bad; save or not after it; end: none, stop or kill.
awk -v seed="$seed" -v n="$swaps" -v life="$lives" 'BEGIN { srand(seed); for (i = 1; i <= n; i++) {
    r = rand(); what = r < 0.15 ? "reload" : r < 0.22 ? "bad" : r < 0.4 ? "timed" : "set" int(1 + 9 * rand())
    print what, rand() < 0.2 || what == "timed" || i % life == 0 ? "save" : "-", i % life ? "-" : i / life % 2 ? "kill" : "stop" } }' </dev/null >"$dir/plan"
begins() { counted start "$dir/storm" --plugin-dir "$dir/more" --training.steps 100000000 --checkpoint.interval 100000000 --checkpoint.keep_latest_k 2 "$@"; }
bad= done=0 checked=0 timed=0 kills=0 inlife=0 first= which=half
begins
folder=$dir/storm
until_true passed 3 && until_true ctl status || bad="$bad start"
while read -r what save end && [ -z "$bad" ]; do
    done=$((done + 1)) inlife=$((inlife + 1)) until=0
    case $what in
    reload)
        if [ $which = half ]; then which=third; else which=half; fi
        cp "$dir/$which.so" "$dir/next.so" && mv "$dir/next.so" "$dir/more/converters/mine.so"
        ctl reload mine || refuses 'was not loaded yet' || bad="$bad $done-reload($(cat "$dir/err"))"
        ;;
    timed) # changes at steps of their own: while the program is made, before the save, or after it
        from=$(($(step_now) + (done % 3 + 1) * (done % 3 + 1) * 50)) until=$((from + 1 + done % 40))
        ctl set converters "[{\"name\":\"half\",\"from_step\":$from,\"to_step\":$until},{\"name\":\"float8\",\"to_step\":$((from + 7))},{\"name\":\"adapter\",\"from_step\":$((until - 1))}]" ||
            bad="$bad $done-timed($(cat "$dir/err"))"
        ;;
    bad) ctl set converters '[{"name":"broken"}]' || refuses 'broadcast' || bad="$bad $done-broken($(cat "$dir/err"))" ;;
    *) ctl set converters "$(sed -n "${what#set}p" "$dir/lists")" || bad="$bad $done-set($(cat "$dir/err"))" ;;
    esac
    # What the process has depends on the program that runs: the most of 20 swaps is compared with the most of the last 20.
    bytes >>"$dir/bytes"
    if [ $inlife -eq 40 ]; then first=$(tail -n 20 "$dir/bytes" | sort -n | tail -n 1) fds=$(descriptors); fi
    [ $save = save ] || continue
    ctl save || bad="$bad $done-save"
    at=$(sed -n 's/.*step-\([0-9]*\)$/\1/p' "$dir/out")
    last=$((at + 4))
    if [ $until -gt $at ]; then last=$((until + 4)) timed=$((timed + 1)); fi
    until_true passed $last || bad="$bad $done-stands"
    rm -rf "$dir/beside"
    mkdir -p "$dir/beside/checkpoint"
    cp -r "$folder/checkpoint/step-$at" "$dir/beside/checkpoint/"
    train "$dir/beside" --plugin-dir "$dir/more" --training.steps $last --checkpoint.interval 100000000 && [ "$rc" -eq 0 ] || bad="$bad $done-beside"
    folder=$dir/storm
    same "$dir/storm" "$dir/beside" $((at + 1)) $last || bad="$bad $done-losses-after-$at"
    checked=$((checked + 1))
    [ "$end" = - ] && continue
    if [ -n "$first" ]; then
        most=$(tail -n 20 "$dir/bytes" | sort -n | tail -n 1) now=$(descriptors)
        [ "$most" -le $((first + 8000000)) ] || bad="$bad $done-bytes-$first-$most"
        [ "$now" -le $((fds + 4)) ] || bad="$bad $done-descriptors-$fds-$now"
        echo "# after $done swaps: $first then $most bytes, descriptors $fds then $now"
    fi
    if [ "$end" = kill ]; then
        kills=$((kills + 1))
        kill -9 $pid
        wait $pid 2>/dev/null
    else
        ctl stop && ends 4 || bad="$bad $done-stop"
        at=$(newest "$folder/checkpoint")
    fi
    inlife=0 first=
    begins
    until_true grep -q "resumed from .*/step-$at, next" "$folder.err" && until_true ctl status && until_true passed $((at + 3)) || bad="$bad $done-resume($(tail -n 2 "$folder.err"))"
done <"$dir/plan"
ctl stop && ends 4 || bad="$bad stop"
[ -z "$bad" ] && [ $done -eq $swaps ]
ok "storm_of_${swaps}_swaps_seed_$seed: $checked checkpoints compared, $timed with a schedule under way, $kills kills $bad"
exit $failed
