#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The flavors of the decoder models have as many parameters as the published checkpoints (the balancing biases of deepseek_v3
# and glm4_moe are buffers; GLM-4.5-Air's 110468824832 elements are these, those of the block of multi-token prediction, which has the
# embedding and the head once more, and 46 x 128 biases; Kimi-K2's 1026408232448 are these and 60 x 384 biases).
. "$(dirname "$0")/lib.sh"
# size SPEC FLAVOR: the number of parameters
size() {
    echo '{"training": {"seq_len": 16, "local_batch_size": 1}}' >"$dir/size.json"
    ttrun plan "$dir/size.json" --spec "$1" --model.flavor "$2" --json >"$dir/plan" 2>"$dir/err"
    value "$dir/plan" parameters
}
while read -r spec flavor want; do
    n=$(size "$spec" "$flavor")
    [ "$n" = "$want" ]
    ok "${spec}_${flavor}_has_${want}_parameters" # it has $n
done <<END
llama3 llama1-7B 6738415616
llama3 llama2-13B 13015864320
llama3 llama2-70B 68976648192
llama3 smollm2-135M 134515008
llama3 smollm2-360M 361821120
llama3 smollm2-1.7B 1711376384
gemma debugmodel 5639424
gemma 2B 2506172416
gemma 7B 8537680896
gemma2 debugmodel 5839104
gemma2 2B 2614341888
gemma2 9B 9241705984
gemma2 27B 27227128320
gemma3 270M 268098176
gemma3 1B 999885952
gemma3 12B 11766034176
gemma3 27B 27009346304
phi3 mini-4k 3821079552
phi3 medium-4k 13960238080
phi3 phi-4 14659507200
phi3 phi-4-mini 3836021760
olmo2 1B 1484916736
olmo2 7B 7298617344
olmo2 13B 13716198400
olmo2 32B 32234279936
olmo3 7B 7298011136
olmo3 32B 32233522176
smollm3 3B 3075098624
mixtral 8x7B 46702792704
mixtral 8x22B 140620634112
qwen3_moe 30B-A3B 30532122624
qwen3_moe 235B-A22B 235093634560
deepseek_v3 16B 15706484224
deepseek_v3 671B 671026404352
deepseek_v3 kimi-k2 1026408209408
glm4_moe 4.5-Air 106852245504
glm4_moe 4.5 352797814784
glm4_moe 4.6 352797814784
llama4 17B-16E 107769861120
llama4 17B-128E 400711848960
gpt_oss 20b 20914757184
gpt_oss 120b 116829156672
END
# FLOPs are those of the experts that a token chooses, on every mesh, also where a weight is transposed first (gpt_oss)
flops() { # SPEC FLAVOR OPTION...
    spec=$1 flavor=$2
    shift 2
    ttrun plan "$dir/size.json" --spec "$spec" --model.flavor "$flavor" --json "$@" >"$dir/plan" 2>"$dir/err"
    value "$dir/plan" flops_per_token
}
while read -r spec flavor billions; do # of parameters that a token uses
    near "$(flops "$spec" "$flavor" | awk '{print $1 / 6e9}')" "$billions" 0.01
    ok "${spec}_${flavor}_computes_with_${billions}_billion_parameters"
done <<END
mixtral 8x7B 12.75
qwen3_moe 30B-A3B 3.04
gpt_oss 20b 3.61
gpt_oss 120b 5.13
deepseek_v3 kimi-k2 31.71
glm4_moe 4.5-Air 12.82
glm4_moe 4.5 32.89
llama4 17B-16E 16.15
llama4 17B-128E 16.16
END
[ "$(flops gpt_oss debugmodel)" = "$(flops gpt_oss debugmodel --world 4 --parallelism.expert_parallel_degree 2)" ] &&
    [ "$(flops gpt_oss debugmodel)" = "$(flops gpt_oss debugmodel --world 4 --parallelism.pipeline_parallel_degree 2 --parallelism.expert_parallel_degree 2)" ]
ok flops_are_equal_on_meshes
for spec in gemma gemma2 gemma3 phi3 olmo2 olmo3 smollm3; do
    n=$(size "$spec" debugmodel)
    [ "${n:-0}" -ge 4500000 ] && [ "$n" -le 6500000 ]
    ok "${spec}_debugmodel_is_small"
done
exit $failed
