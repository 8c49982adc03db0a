#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun ctl RUN_DIR reload NAME: a third party's converter is put in, built again and reloaded while a job runs, off, on and off, bit for
# bit what a scheduled run does that has the versions under two names. A plugin that is bad is refused by one line and the run goes on.
# TEST_LONG=1: every mesh, as threads and processes.
. "$(dirname "$0")/swaps.sh"
mine() { build reloaded mine "$@"; }
{ build reloaded half -DNAME='"half"' -DBY=0.5 && build reloaded third -DNAME='"third"' -DBY=0.3; } >"$dir/out" 2>&1
ok plugins_build

# ---- off, on, on otherwise, off ----
shard="--parallelism.data_parallel_shard_degree 2" tp="--parallelism.tensor_parallel_degree 2" pp="--parallelism.pipeline_parallel_degree 2" ep="--parallelism.expert_parallel_degree 2 --spec mixtral"
local="--nproc 2 --comm.backend local" own="--nproc 2 --comm.backend shm"
exactly() { # NAME OPTION...
    name=$1
    shift
    bad=
    rm -f "$dir/more/converters/mine.so"
    forever "$dir/$name" "$@" || bad="$bad start"
    ctl reload mine; refuses '"mine" is unknown' || bad="$bad unknown"
    mine && { ctl reload mine; refuses 'was not loaded yet'; } || bad="$bad unloaded"
    ctl set converters '[{"name":"mine"}]' || bad="$bad set"
    mine -DBY=0.5 && ctl reload mine || bad="$bad on"
    on=$(step_said)
    mine -DBY=0.3 && ctl reload mine || bad="$bad other"
    other=$(step_said)
    mine && ctl reload mine || bad="$bad off"
    off=$(step_said)
    until_true passed $((off + 1)) && ctl stop && ends 4 || bad="$bad stop"
    grep -q "mine was reloaded; converters from step $on on: mine; .* kept; the loop stood still for " "$folder.err" || bad="$bad line"
    short "$dir/$name-again" --checkpoint.enable false --training.steps $((off + 1)) "$@" --converters \
        "[{\"name\":\"half\",\"from_step\":$((on - 1)),\"to_step\":$((other - 1))},{\"name\":\"third\",\"from_step\":$((other - 1)),\"to_step\":$((off - 1))}]" || bad="$bad again"
    same "$dir/$name" "$dir/$name-again" 1 $((off + 1)) || bad="$bad losses-$on-$other-$off"
    [ -z "$bad" ]
    ok "reload_is_that_by_schedule_$name $bad"
    rm -rf "$dir/$name" "$dir/$name-again"
}
exactly one_rank
exactly fsdp2_threads $local $shard
exactly pp2_processes $own $pp
exactly ep2_processes $own $ep
if is_long; then
    exactly fsdp2_processes $own $shard
    exactly tp2_threads $local $tp
    exactly tp2_processes $own $tp
    exactly pp2_threads $local $pp
    exactly ep2_threads $local $ep
    ! has_mpirun || exactly fsdp2_mpirun --nproc 2 $shard
fi

# ---- bad plugins: one line, and the run goes on with the version that it has ----
bad=
rm -f "$dir/more/converters/mine.so"
mine -DBY=0.5
forever "$dir/bad" --converters '[{"name":"mine"}]' || bad="$bad start"
refused() { # WHAT TEXT: a reload of the file that is there
    before=$(step_now)
    if ctl reload mine || ! refuses "stay as they are: .*$2"; then bad="$bad $1($(cat "$dir/err"))"; fi
    kill -0 $pid && until_true passed $((before + 2)) || bad="$bad $1-dead"
}
# the pages of all versions that are open; each has as many
mapped() { grep -c 'ttrun-mine.so' "/proc/$pid/maps"; }
one=$(mapped)
mine -DWRONG_ABI && refused abi 'mine.so.*ABI'
mine -DMISSING && refused missing 'undefined symbol: tt_no_such_function'
mine -DBROKEN && refused broken 'broadcast\|odd'
mine -DNAME='"other"' && refused other '"mine" is unknown\|no converter "mine"'
case $BUILD in */asan | */tsan | */ubsan) ;; # a sanitizer tells of crashes itself
*) mine -DCRASHES && refused crash 'mine.so crashed (SIGSEGV' ;; esac
mine -DEXITS && refused exit 'called exit()'
head -c 3000 "$dir/more/converters/half.so" >"$dir/cut" && mv "$dir/cut" "$dir/more/converters/mine.so" && refused cut 'mine.so: '
echo text >"$dir/more/converters/mine.so" && refused text 'mine.so: not a plugin'
rm "$dir/more/converters/mine.so" && refused gone 'mine'
mine -DBY=0.3 && ctl reload mine || bad="$bad mended"
step=$(step_said)
ctl reload; refuses 'reload: no NAME given' || bad="$bad empty"
ctl reload 'mi ne'; refuses '"mi ne" is unknown' || bad="$bad words"
ctl reload mime; refuses '"mime" is unknown; did you mean "mine"' || bad="$bad near"
closed() { [ "$(mapped)" -eq "$one" ]; }
[ "$one" -gt 0 ] && until_true closed || bad="$bad versions-$one-$(mapped)"
until_true passed $((step + 1)) && ctl stop && ends 4 || bad="$bad stop"
[ "$(grep -c 'W train. the converters stay as they are after step' "$folder.err")" -ge 8 ] || bad="$bad lines"
[ -z "$bad" ]
ok "reload_refuses_bad_plugins $bad"
exit $failed
