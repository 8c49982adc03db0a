# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts about states of few bits, which source it.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/plugins/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/plugins/backends/"
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$SRC/tests/run/echo.c" "-L$BUILD" -lttrun -lm -o "$dir/plugins/echo.so"
ok echo_builds
mine="--plugin-dir $dir/plugins"
p=--parallelism

equal() { # A B STEP: every tensor of the two checkpoints
    "$TTRUN" ckpt diff "$1/checkpoint/step-$3" "$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"
}
dtypes() { # FOLDER WHAT: the dtypes of the tensors whose name matches
    grep -o "\"$2[^\"]*\":{\"dtype\":\"[A-Z0-9_]*\"" "$1/trainer.json" | sed 's/.*"dtype":"//; s/"//' | sort | uniq -c | awk '{printf "%s%s", n++ ? " " : "", $2}'
}

on_mesh() { # NAME OPTION…: the run $alone with the options $common again, on a mesh
    name=$1
    shift
    train "$dir/$alone-$name" $common "$@"
    [ "$rc" -eq 0 ] && equal "$dir/$alone" "$dir/$alone-$name" 6
    ok "the_same_bits_of_${alone}_on_$name"
}
on_meshes() { # RUN OPTION…
    alone=$1
    shift
    common=$*
    train "$dir/$alone" $common && [ "$rc" -eq 0 ]
    ok "${alone}_runs"
    on_mesh fsdp_2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2
    on_mesh fsdp_3 $p.data_parallel_shard_degree 3 --training.local_batch_size 2
    on_mesh ddp_2 $p.data_parallel_replicate_degree 2 --training.local_batch_size 2
    on_mesh tp_2 $p.tensor_parallel_degree 2
    on_mesh pp_2 $p.pipeline_parallel_degree 2
    on_mesh cp_2 $p.context_parallel_degree 2
}
