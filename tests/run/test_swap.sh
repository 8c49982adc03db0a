#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Other converters while a run goes on, by schedule and by ttrun ctl: bit for bit what runs do that begin with them; on each mesh, as
# threads and processes; with parameters that come and go; what is wrong is refused and the run goes on.
. "$(dirname "$0")/swaps.sh"
{ build converter converter && build adapter adapter; } >"$dir/out" 2>&1
ok plugins_build
# from FOLDER STEP OPTION...: a run in $dir/tail that continues that checkpoint
from() {
    rm -rf "$dir/tail"
    mkdir -p "$dir/tail/checkpoint"
    cp -r "$1/checkpoint/step-$2" "$dir/tail/checkpoint/"
    shift 2
    short "$dir/tail" --training.steps 30 "$@"
}
# ---- by schedule: off, on, off ----
for mesh in "" "tensor_parallel_degree local" "data_parallel_shard_degree" "pipeline_parallel_degree" "expert_parallel_degree local mixtral" \
    ${TEST_LONG:+"data_parallel_shard_degree local" "pipeline_parallel_degree local" "tensor_parallel_degree" "expert_parallel_degree shm mixtral"}; do
    set -- $mesh
    name=$(echo "${mesh:-one_rank}" | tr ' ' _)
    which=half
    case $# in
    0) set -- ;;
    1) set -- "--parallelism.$1" 2 --nproc 2 ;;
    2) set -- "--parallelism.$1" 2 --comm.backend local ;;
    3) which=float8 && set -- "--parallelism.$1" 2 --comm.backend "$2" --nproc 2 --spec "$3" ;; # the products of experts, too
    esac
    half="[{\"name\":\"$which\"}]"
    scheduled="[{\"name\":\"$which\",\"from_step\":10,\"to_step\":20}]"
    bad=
    rm -rf "$dir/plain" "$dir/off-on-off"
    short "$dir/plain" --training.steps 10 "$@" || bad="$bad plain"
    short "$dir/off-on-off" --training.steps 30 --converters "$scheduled" "$@" || bad="$bad run"
    [ "$(grep -c 'converters from step 11 on: '$which'; .* kept; \|converters from step 21 on: none; .* kept; ' "$dir/err")" -eq 2 ] || bad="$bad lines"
    same "$dir/plain" "$dir/off-on-off" 1 10 || bad="$bad before"
    from "$dir/plain" 10 --converters "$half" "$@" && same "$dir/tail" "$dir/off-on-off" 11 20 || bad="$bad on"
    from "$dir/off-on-off" 20 "$@" && same "$dir/tail" "$dir/off-on-off" 21 30 || bad="$bad off"
    from "$dir/off-on-off" 10 --converters "$scheduled" "$@" && same "$dir/tail" "$dir/off-on-off" 11 30 || bad="$bad resumed-at-the-change"
    [ -z "$bad" ]
    ok "swap_by_schedule_is_exact_$name $bad"
done
half='[{"name":"half"}]'

# ---- with parameters of the converter ----
bad=
short "$dir/p" --training.steps 30
short "$dir/more1" --training.steps 30 --converters '[{"name":"adapter","from_step":10,"to_step":20}]' || bad="$bad run"
grep -q 'converters from step 11 on: adapter; 21 parameters and buffers kept, 30 added (' "$dir/err" && grep -q 'from step 21 on: none; 21 .* kept, 30 dropped (' "$dir/err" || bad="$bad said"
same "$dir/p" "$dir/more1" 1 11 || bad="$bad before" # the second layer begins as zeros
same "$dir/p" "$dir/more1" 1 12 && bad="$bad nothing"
from "$dir/p" 10 --converters '[{"name":"adapter"}]' && same "$dir/tail" "$dir/more1" 11 20 || bad="$bad added"
grep -q 'converters: 30 parameters added, which the checkpoint has not' "$dir/err" || bad="$bad added-said"
from "$dir/more1" 20 --converters '[{"name":"adapter"}]' && ! grep -q 'parameters added' "$dir/err" || bad="$bad kept"
from "$dir/more1" 20 && same "$dir/tail" "$dir/more1" 21 30 && grep -q '30 tensors not of this model ignored' "$dir/err" || bad="$bad dropped"
[ -z "$bad" ]
ok "swap_adds_and_drops_parameters $bad"

# ---- a pipeline whose stages other converters would cut elsewhere: ranks keep their layers ----
bad=
sizes='--model.args.dim 24 --model.args.n_layers 4 --model.args.hidden_dim 31 --training.mixed_precision_param bfloat16'
stages="$sizes --parallelism.pipeline_parallel_degree 2"
adapters='[{"name":"lora","rank":1,"dropout":0.2,"from_step":10,"to_step":20}]'
for backend in local shm; do
    # shellcheck disable=SC2086
    short "$dir/cut" --resume never --training.steps 30 $stages --comm.backend "$backend" --nproc 2 --converters "$adapters" || bad="$bad run-$backend"
    [ "$(grep -c 'converters from step 11 on: lora; .* 28 added \|converters from step 11 on: lora; .* 56 added \|converters from step 21 on: none; ' "$dir/err")" -eq 2 ] || bad="$bad said-$backend"
done
# shellcheck disable=SC2086
from "$dir/cut" 20 $stages --comm.backend local --converters "$adapters" && same "$dir/tail" "$dir/cut" 21 30 || bad="$bad resumed"
[ -z "$bad" ]
ok "swap_keeps_the_stages $bad"

# ---- a scheduled program that does not verify is found before the first step ----
bad=
short "$dir/w" --training.steps 30 --converters '[{"name":"half","from_step":5},{"name":"broken","from_step":10,"to_step":20}]' && bad="$bad ran"
[ "$rc" -eq 2 ] && [ "$(grep -c 'the program from step 11 on, where the converters change: .*broadcast' "$dir/err")" -eq 1 ] && [ "$(grep -c . "$dir/err")" -eq 1 ] || bad="$bad line"
[ -e "$dir/w/metrics.jsonl" ] && bad="$bad began"
ttrun plan "$job" --plugin-dir "$dir/more" --converters '[{"name":"broken","from_step":3}]' >"$dir/out" 2>"$dir/err" && bad="$bad plan"
short "$dir/w" --training.steps 10 --converters '[{"name":"broken","from_step":10}]' || bad="$bad after-the-last-step"
[ -z "$bad" ]
ok "schedule_that_does_not_verify_is_refused_at_the_start $bad"

# ---- by ttrun ctl ----
for way in one local own own_expert ${TEST_LONG:+local_expert local_tensor own_tensor local_pipeline own_pipeline}; do
    bad=
    case $way in
    one) set -- ;;
    local*) set -- --comm.backend local --nproc 2 ;;
    own*) set -- --comm.backend shm --nproc 2 ;;
    esac
    case $way in *_*) set -- "$@" "--parallelism.${way#*_}_parallel_degree" 2 ;; esac
    case $way in *_expert) set -- "$@" --spec mixtral ;; esac
    forever "$dir/$way" "$@" || bad="$bad start"
    ctl set converters '[{"name": "nohalf"}]'; refuses 'stay as they are: .*"nohalf" is unknown; did you mean' || bad="$bad unknown"
    ctl set converters '[{"name": "broken"}]'; refuses 'stay as they are: .*broadcast' || bad="$bad broken"
    ctl set converters '[{"name"'; refuses 'stay as they are: ' || bad="$bad json"
    ctl set converters '{}'; refuses 'expected a JSON list' || bad="$bad object"
    ctl set loss '[]'; refuses 'only converters can be set' || bad="$bad key"
    ctl set converters "$half" || bad="$bad on"
    on=$(step_said)
    ctl status --json && [ "$(value "$dir/out" converters.0.name)" = half ] || bad="$bad status"
    ctl set converters '[]' || bad="$bad off"
    off=$(step_said)
    ctl save || bad="$bad save"
    ctl stop || bad="$bad stop"
    ends 4 || bad="$bad end"
    short "$dir/$way-again" --checkpoint.enable false --training.steps $((off + 2)) \
        --converters "[{\"name\":\"half\",\"from_step\":$((on - 1)),\"to_step\":$((off - 1))}]" "$@" || bad="$bad again"
    same "$folder" "$dir/$way" 1 "$off" || bad="$bad losses"
    [ -z "$bad" ]
    ok "swap_by_ctl_is_that_by_schedule_$way $bad"
done

# ---- a change of the list's schedule that passes while its program is made is not missed ----
bad=
build reloaded held '-DNAME="held"' -DBY=0.5 "-DHOLD=\"$dir/hold\"" >"$dir/out" 2>&1 || bad="$bad build"
gate 6 before 0
forever "$dir/late" $gated --comm.backend shm --nproc 2 || bad="$bad start"
stands || bad="$bad stands"
at=6
# Rank 0 goes on step by step until the program is being made, which is held then; and it is let go when it has passed the change.
# (Should the command arrive as late as that, the answer is the same.)
for round in 1 2; do
    change=$((at + 30))
    : >"$dir/hold"
    (ctl set converters "[{\"name\":\"held\",\"to_step\":$change}]"; echo $rc >"$dir/client.rc") &
    client=$!
    until [ -e "$dir/hold.made" ] || [ $at -gt $((change + 2)) ]; do
        at=$((at + 1))
        gate $at before 0 && stands || break
    done
    [ $at -gt $((change + 2)) ] || { at=$((change + 3)) && gate $at before 0 && stands; } || bad="$bad $round-step-$at"
    [ -e "$dir/hold.made" ] || echo "# the command arrived after step $change"
    rm -f "$dir/hold" "$dir/hold.made"
    let_go
    wait $client
    [ "$(cat "$dir/client.rc")" -eq 0 ] && [ "$(step_said)" -gt $change ] && grep -q "on: none;" "$dir/out" || bad="$bad $round-to-$change($(cat "$dir/out"))"
    at=$(($(step_now) + 20))
    gate $at before 0 && stands && at=$(($(step_now) + 1)) || bad="$bad stands-$at"
done
let_go
ctl set converters '[{"name":"held","to_step":100000000}]' && grep -q 'on: held;' "$dir/out" || bad="$bad in-time($(cat "$dir/out"))"
rm -f "$dir/more/converters/held.so"
ctl stop && ends 4 || bad="$bad stop"
[ -z "$bad" ]
ok "schedule_that_passes_while_its_program_is_made $bad"

# ---- a program that the ranks do not make alike is dropped, and what it shares with the running one stays ----
bad=
build reloaded apart -D_GNU_SOURCE -include unistd.h "-DBY=(2.0 + getpid() % 1000)" >"$dir/out" 2>&1 || bad="$bad build"
forever "$dir/apart" --comm.backend shm --nproc 2 || bad="$bad start"
for i in 1 2 3; do
    ctl set converters '[{"name": "mine"}]'; [ "$rc" -eq 1 ] && grep -q 'stay as they are: the ranks made different plans' "$dir/err" || bad="$bad refuse-$i"
    until_true passed $(($(step_now) + 3)) || bad="$bad goes-on-$i"
    ctl set converters "$half" && ctl set converters '[]' || bad="$bad after-$i"
done
ctl stop && ends 4 || bad="$bad stop"
rm -f "$dir/more/converters/apart.so"
[ -z "$bad" ]
ok "program_that_differs_between_ranks_is_dropped $bad"

# ---- a program for which there is no room beside the running one is refused, whether there would be room for it alone or not ----
bytes_of() { # RANK OPTION...: of the program with an adapter of that rank; 0: none
    list="[{\"name\":\"adapter\",\"rank\":$1}]"
    [ "$1" -gt 0 ] || list='[]'
    shift
    ttrun plan "$job" --plugin-dir "$dir/more" --json --converters "$list" "$@" >"$dir/plan" 2>"$dir/err" && "$json" "$dir/plan" bytes_per_rank.peak
}
does_not_fit() { [ "$rc" -eq "${2-1}" ] && one_line "$dir/err" && grep -q 'stay as they are: '"${1-}"'the program does not fit beside the one that runs: both take [0-9.]* GiB, and there are 0.0 here' "$dir/err"; }
case $BUILD in
*/asan | */tsan | */ubsan) ;; # its own functions stand before those of this test
*)
    bad=
    preload memory || bad=" build"
    off='--checkpoint.enable false'
    alone=$(bytes_of 0 $off) of_64=$(bytes_of 64 $off) of_4096=$(bytes_of 4096 $off)
    room=$((of_64 + alone * 3 / 2)) # for rank 64 beside the program without an adapter
    fits=$((4096 - (of_4096 - room) * (4096 - 64) / (of_4096 - of_64))) # alone it would be as large as the room
    [ "$of_4096" -gt "$room" ] && [ "$fits" -gt 64 ] || bad="$bad sizes-$alone-$of_64-$of_4096"
    MEMORY=$room LD_PRELOAD=$dir/memory.so forever "$dir/room" $off || bad="$bad start"
    for rank in $((fits - 8)) 1000000; do
        ctl set converters "[{\"name\":\"adapter\",\"rank\":$rank}]"
        does_not_fit || bad="$bad $rank($(cat "$dir/err"))"
    done
    step=$(step_now) && until_true passed $((step + 3)) && ctl set converters '[{"name":"adapter","rank":64}]' && until_true passed $(($(step_said) + 1)) || bad="$bad smaller($(cat "$dir/err"))"
    ctl stop && ends 4 || bad="$bad stop"
    # the copy that a save writes from counts, too: half of it has room
    copy=$(($(bytes_of 0) - alone))
    MEMORY=$(($(bytes_of 4 $off) + alone + copy / 2)) LD_PRELOAD=$dir/memory.so forever "$dir/saves" || bad="$bad start-saves"
    ctl set converters '[{"name":"adapter"}]'; [ $copy -gt 0 ] && does_not_fit || bad="$bad copy-$copy($(cat "$dir/err"))"
    ctl set converters "$half" && ctl stop && ends 4 || bad="$bad stop-saves($(cat "$dir/err"))"
    [ -z "$bad" ]
    ok "program_that_does_not_fit_is_refused $bad"
    # on one of two machines alone: all ranks know why, and go on
    bad=
    MEMORY=$room MEMORY_RANK=1 LD_PRELOAD=$dir/memory.so forever "$dir/narrow" $off --comm.backend shm --nproc 2 || bad="$bad start"
    ctl set converters "[{\"name\":\"adapter\",\"rank\":$((4 * fits))}]" # of which each rank has a half
    does_not_fit 'rank 1: ' 2 || bad="$bad refused($(cat "$dir/err"))"
    step=$(step_now) && until_true passed $((step + 3)) && ctl set converters "$half" && until_true passed $(($(step_said) + 1)) || bad="$bad goes-on($(cat "$dir/err"))"
    ctl stop && ends 4 || bad="$bad stop"
    [ -z "$bad" ]
    ok "program_that_does_not_fit_one_rank_is_refused $bad"
    ;;
esac

# ---- sixty swaps leave nothing behind ----
bad=
make_gate && let_go || bad="$bad gate"
counted start "$dir/many" --plugin-dir "$dir/more" --training.steps 100000000 --checkpoint.interval 100000000 --metrics.log_freq 1000 $gated
until_true test -e "$folder/.ctl" || bad="$bad start"
i=0
while [ $i -lt 30 ]; do
    ctl set converters "$half" && ctl set converters '[]' || bad="$bad $i"
    i=$((i + 1))
    if [ $i -eq 10 ]; then first=$(between_steps bytes) fds=$(descriptors); fi
done
last=$(between_steps bytes) open=$(descriptors)
[ "$last" -le $((first + 20000)) ] || bad="$bad bytes-$first-$last"
[ "$open" -le $((fds + 4)) ] || bad="$bad descriptors-$fds-$open"
ctl stop && ends 4 || bad="$bad stop"
[ -z "$bad" ]
ok "swap_sixty_times_leaves_nothing: $first bytes, then $last $bad"

# ---- two at once: each hears of its own list ----
bad=
forever "$dir/two" || bad="$bad start"
for i in 1 2 3 4; do
    "$TTRUN" ctl "$folder" set converters "$half" >"$dir/of-half" 2>&1 &
    one=$!
    "$TTRUN" ctl "$folder" set converters '[]' >"$dir/of-none" 2>&1 &
    wait $one $! || bad="$bad status-$i"
    grep -q 'on: half;' "$dir/of-half" && grep -q 'on: none;' "$dir/of-none" || bad="$bad $i: $(cat "$dir/of-half" "$dir/of-none")"
done
ctl stop && ends 4 || bad="$bad stop"
[ -z "$bad" ]
ok "answer_belongs_to_its_command $bad"

# ---- a list that was set survives, unless the job has a new one ----
bad=
forever "$dir/kept" || bad="$bad start"
ctl set converters "$half" && [ "$(value "$folder/run.json" ctl.converters.0.name)" = half ] || bad="$bad set"
ctl stop && ends 4 || bad="$bad stop"
last=$(newest "$folder/checkpoint")
from "$dir/kept" "$last" --training.steps $((last + 4)) || bad="$bad resume"
grep -q 'converters stay \[{"name":"half".*, as ttrun ctl has set them; the job says \[\]' "$dir/err" && [ "$(value "$dir/tail/run.json" ctl.converters.0.name)" = half ] || bad="$bad stay"
cp -r "$dir/tail" "$dir/stays"
from "$dir/kept" "$last" --training.steps $((last + 4)) --converters "$half" || bad="$bad same"
grep -q "converters are the job's new ones, .*half.*; ttrun ctl had set .*half.* where the job said \[\]" "$dir/err" && ! grep -q '"ctl"' "$dir/tail/run.json" || bad="$bad new"
same "$dir/stays" "$dir/tail" $((last + 1)) $((last + 4)) || bad="$bad losses"
short "$dir/stays" --training.steps $((last + 6)) && grep -q 'converters stay' "$dir/err" || bad="$bad again"
start "$dir/stays" --plugin-dir "$dir/more" --training.steps 100000000
until_true passed $((last + 7)) && ctl set converters job && ! grep -q '"ctl"' "$folder/run.json" && ctl stop && ends 4 || bad="$bad job"
short "$dir/stays" --training.steps $(($(newest "$dir/stays/checkpoint") + 1)) && ! grep -q 'ttrun ctl' "$dir/err" || bad="$bad gone"
[ -z "$bad" ]
ok "list_that_ctl_set_is_in_checkpoints $bad"

# ---- a run that is always saving gets its new program all the same ----
bad=
for saves in "1 disabled" "1 async" "2 async"; do
    set -- $saves
    start "$dir/saving" --plugin-dir "$dir/more" --training.steps 100000000 --checkpoint.interval "$1" --checkpoint.async_mode "$2" --resume never
    folder=$dir/saving
    until_true has_lines "$folder/metrics.jsonl" 3 && ctl set converters "$half" && ctl set converters '[]' || bad="$bad every-$1-$2"
    ctl stop && ends 4 || bad="$bad stop"
    rm -rf "$dir/saving"
done
[ -z "$bad" ]
ok "swap_in_a_run_that_always_saves $bad"
exit $failed
