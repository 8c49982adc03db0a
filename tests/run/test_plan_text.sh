#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The text of ttrun plan: no line is longer than 80 columns, and it speaks of one rank and of machines that exist.
. "$(dirname "$0")/lib.sh"
cat >"$dir/job.json" <<END
{"spec":"llama3","model":{"flavor":"8B"},"dataloader":{"path":["x.txt"]},"training":{"local_batch_size":4,"seq_len":256}}
END
plan() { # OPTION…: to $dir/out and $dir/err
    "$TTRUN" plan "$dir/job.json" --plugin-dir "$PLUGINS" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
longest() { # of $dir/out, in columns; × and other characters of UTF-8 are one column
    LC_ALL=C tr -d '\200-\277' <"$dir/out" | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }'
}
plan --hardware b200 --world 8 --recipes
[ "$rc" -eq 0 ] && [ "$(longest)" -le 80 ] && grep -q '^ *rows *out *in *layers *bf16 ms *tensor *row *row_hp *mxfp8 *block *nvfp4$' "$dir/out" && grep -q '^ *gate_proj, up_proj$' "$dir/out"
ok plan_says_which_recipes_pay
plan --hardware H100 --recipes && grep -q '^recipes ' "$dir/out" && ! grep -q nvfp4 "$dir/out" && plan --hardware a100 --recipes && grep -q '^recipes *none: the machine has no products of 8 bits$' "$dir/out"
ok plan_knows_which_machine_has_which_products
plan --hardware h100 --recipes --json && [ "$("$BUILD/tests/run/json_tool" "$dir/out" recipes.0.in)" -gt 0 ] && plan --recipes
[ "$rc" -ne 0 ] && grep -q -e '--recipes needs the machine' "$dir/err"
ok recipes_need_a_machine
bad=
for o in "" "--world 512 --parallelism.tensor_parallel_degree 8" \
    "--world 64 --hardware h100 --parallelism.tensor_parallel_degree 4 --parallelism.pipeline_parallel_degree 4 --parallelism.context_parallel_degree 2 --parallelism.enable_async_tensor_parallel true --activation_checkpoint.mode full" \
    "--world 16 --hardware a100 --parallelism.pipeline_parallel_degree 4 --parallelism.data_parallel_replicate_degree 2 --backend.name cpu"; do
    plan $o
    [ "$rc" -eq 0 ] && [ "$(longest)" -le 80 ] && [ "$(grep -c '^model \|^ranks \|^step \|^memory \|^network ' "$dir/out")" -eq 5 ] || bad="$bad($o: $(longest))"
done
[ -z "$bad" ]
ok "plan_fits_80_columns$bad"
plan --world 100000
grep -q '^fits        NO: [0-9.]* GiB per rank; this machine ([0-9.]* GiB) holds [0-9]* of the$' "$dir/out" && grep -A 2 '^fits' "$dir/out" | grep -q -e '--hardware a100, h100'
ok plan_says_how_many_ranks_fit_here
plan && grep -q '^fits        [yesNO]*: [0-9.]* GiB per rank; this machine has [0-9.]* GiB' "$dir/out"
ok plan_of_one_rank_does_not_count_ranks
plan --search --world 8 --hardware h100 --best 3 && cp "$dir/out" "$dir/all" && sed -i '/^best/d' "$dir/out" && [ "$(longest)" -le 80 ] && [ "$(grep -c '^ *[0-9]* *[0-9]* *[0-9]* *[0-9]* *[0-9]* *[0-9.]* ' "$dir/out")" -ge 1 ]
ok search_fits_80_columns
# the last line is options that can be pasted
best=$(sed -n 's/^best *//p' "$dir/all")
[ -n "$best" ] && plan --world 8 --hardware h100 $best && [ "$rc" -eq 0 ] && grep -q '^fits        yes' "$dir/out"
ok search_best_is_a_command_line
# a schedule of converters: a row for each program, with the numbers of a job that has these converters from the start
get() { "$BUILD/tests/run/json_tool" "$dir/out" "$1"; }
always='[{"name":"float8","recipe_name":"rowwise"}]'
plan --world 4 --json --parallelism.data_parallel_shard_degree 4 --converters "$always"
alone="$(get bytes_per_rank.peak)" && plan --world 4 --json --parallelism.data_parallel_shard_degree 4 && none=$(get bytes_per_rank.peak)
plan --world 4 --json --parallelism.data_parallel_shard_degree 4 --converters '[{"name":"float8","recipe_name":"rowwise","from_step":10,"to_step":20}]'
[ "$(get changes.0.from_step),$(get changes.0.peak)" = "0,$none" ] && [ "$(get changes.1.from_step),$(get changes.1.converters.0),$(get changes.1.peak)" = "10,float8,$alone" ] &&
    [ "$(get changes.2.from_step),$(get changes.2.peak)" = "20,$none" ] && [ "$(get peak_at_changes)" -gt "$alone" ] && [ "$alone" != "$none" ]
ok plan_shows_each_program_of_a_schedule
plan --hardware h100 --world 4 --parallelism.data_parallel_shard_degree 4 --converters '[{"name":"float8","from_step":10,"to_step":20},{"name":"mxfp8","from_step":20}]'
[ "$rc" -eq 0 ] && [ "$(longest)" -le 80 ] && grep -q '^ *1 *[0-9.]* *[0-9.]* *[0-9.e-]*  none$' "$dir/out" && grep -q '^ *21 *[0-9.]* *[0-9.]* *[0-9.e-]*  mxfp8$' "$dir/out" && plan && ! grep -q '^changes' "$dir/out"
ok plan_shows_converters_by_step
# the validation's program is there beside the training's: its values count
of() { "$BUILD/tests/run/json_tool" "$dir/$1" "bytes_per_rank.$2"; }
small='--model.flavor debugmodel --validation.dataloader.path x.txt --validation.local_batch_size 64 --validation.enable'
plan $small false --json && cp "$dir/out" "$dir/without" && plan $small true --json && cp "$dir/out" "$dir/with" && plan $small true
own=$(of with validation)
[ "$rc" -eq 0 ] && [ "$own" -gt 30000000 ] && [ "$(of with peak)" -eq $(($(of without peak) + own)) ] && grep -q '^ *validation *[0-9.]*  values of its own program$' "$dir/out" && ! grep -q validation "$dir/without"
ok plan_counts_the_validation
# --search counts what the plan of a mesh counts
mesh="--hardware h100 --world 2 --parallelism.pipeline_parallel_degree 2 --training.global_batch_size 8 --json"
for on in false true; do
    plan $small $on $mesh && cp "$dir/out" "$dir/mesh" &&
        plan $small $on $mesh --search && cp "$dir/out" "$dir/found"
    [ "$rc" -eq 0 ] && [ "$("$BUILD/tests/run/json_tool" "$dir/found" best.0.bytes)" = "$(of mesh peak)" ]
    ok "search_counts_as_plan_validation_$on"
done
exit $failed
