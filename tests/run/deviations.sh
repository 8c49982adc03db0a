# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts that print how far a job's numbers on a mesh are from those of one rank, as rows of a Markdown table.
. "$(dirname "$0")/lib.sh"
gap="$BUILD/tests/run/gap_tool"
p=--parallelism
fsdp=$p.data_parallel_shard_degree
hsdp=$p.data_parallel_replicate_degree
tp=$p.tensor_parallel_degree
cp=$p.context_parallel_degree
pp=$p.pipeline_parallel_degree
ep=$p.expert_parallel_degree
schedule=$p.pipeline_parallel_schedule

key_of() { # FOLDER KEY: lines "step value"
    sed -n 's/^{"step":\([0-9]*\),.*"'"$2"'":\([-0-9.e+]*\)[,}].*/\1 \2/p' "$1/metrics.jsonl"
}
# farthest FOLDER KEY: the largest |value / value of $dir/one - 1| of a step, which has as many steps
farthest() {
    key_of "$dir/one" "$2" >"$dir/wanted"
    key_of "$1" "$2" | paste -d' ' "$dir/wanted" - |
        awk 'NF != 4 || $1 != $3 {bad = 1} {d = $4 / $2 - 1; if (d < 0) d = -d; if (!(d <= most)) most = d}
             END {if (bad || !NR) print "nan"; else printf "%.1e\n", most}'
}
# gradients FOLDER [END]: the largest difference of an element of the gradients of the first step (a mean that begins with them), over
# the root mean square of its tensor
gradients() {
    found=$("$gap" "$dir/one/checkpoint/step-1" "$1/checkpoint/step-1" "${2:-.exp_avg}") || found="nan"
    awk -v x="${found%% *}" 'BEGIN {if (x + 0 != x) print "nan"; else printf "%.1e\n", x}'
}
within() { # VALUE LIMIT: nan is not
    awk -v x="$1" -v most="$2" 'BEGIN {exit !(x != "" && x != "nan" && x + 0 <= most + 0)}'
}
