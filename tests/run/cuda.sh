# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts test_cuda*.sh, which source it: jobs on the backend "cuda" over the driver and the libraries of tests/fake.
. "$(dirname "$0")/lib.sh"
cuda="--backend.name cuda --backend.libraries $BUILD/tests/fake/lib --backend.cache $BUILD/tests/fake/cubin"
! is_long || : "${SEEDS:=1 2}"
turn=0
p=--parallelism

# close_to FOLDER FOLDER TOLERANCE: the losses of two runs, relative
close_to() {
    losses "$1/metrics.jsonl" >"$dir/a" && losses "$2/metrics.jsonl" >"$dir/b" && [ -s "$dir/a" ] &&
        paste "$dir/a" "$dir/b" | awk -v most="$3" '{d = ($2 - $4) / $2; if (d < 0) d = -d; if (!(d <= most)) {print "step", $1, $2, $4; bad = 1}}
            END {exit bad}' >>"$dir/err"
}

mine= # options of the cuda backend
# same NAME TOLERANCE OPTION…: the job has the losses of the reference; and the same bits in each order of FAKE_CUDA_SEED: for the first
# of four jobs, for all in the long tier. The last order is $seed.
same() {
    name=$1 most=$2
    shift 2
    turn=$((turn + 1))
    orders=$((turn % 2 + 1))
    [ $((turn % 4)) -ne 1 ] || orders="1 2"
    set -- --training.steps 2 --checkpoint.interval 1000 "$@"
    train "$dir/$name" --backend.name reference "$@"
    [ "$rc" -eq 0 ]
    ok "reference_runs_$name"
    first=
    for seed in ${SEEDS:-$orders}; do
        FAKE_CUDA_SEED=$seed
        export FAKE_CUDA_SEED
        # shellcheck disable=SC2086
        train "$dir/$name-$seed" $cuda $mine "$@"
        [ "$rc" -eq 0 ] && close_to "$dir/$name" "$dir/$name-$seed" "$most"
        ok "cuda_has_the_losses_of_the_reference_${name}_seed_$seed"
        losses "$dir/$name-$seed/metrics.jsonl" >"$dir/losses-$seed" 2>/dev/null
        if [ -n "$first" ]; then
            cmp "$dir/losses-$first" "$dir/losses-$seed" >>"$dir/err" 2>&1 && [ -s "$dir/losses-$seed" ]
            ok "seed_${seed}_has_the_bits_of_seed_${first}_$name"
        fi
        first=${first:-$seed}
    done
    unset FAKE_CUDA_SEED
}
