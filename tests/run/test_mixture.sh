#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run on several loaders at once, one of them packed: equal on any mesh and after a resume.
. "$(dirname "$0")/lib.sh"
awk 'BEGIN {
    for (d = 0; d < 120; d++) {
        printf "{\"text\": \""
        for (i = 0; i < 1 + (d * 37) % 90; i++) printf "%c", 97 + (i * (d + 3)) % 26
        printf "\"}\n"
    }
}' >"$dir/many.jsonl"
# with NAME SECTION: the job with this dataloader section
with() { sed "s|\"dataloader\": .*|\"dataloader\": $2,|" "$dir/job.json" >"$dir/$1.json"; }
with mixed '{ "name": "text", "mixture": [ {"path": ["text.txt"], "weight": 3}, {"name": "jsonl", "path": "many.jsonl", "packing": "best_fit"} ] }'
job=$dir/mixed.json

train "$dir/one"
[ $rc -eq 0 ] && losses "$dir/one/metrics.jsonl" >"$dir/one.losses" && [ "$(wc -l <"$dir/one.losses")" -eq 10 ] &&
    grep -q 'mixture\[1\]: jsonl, 25 % of the samples' "$dir/err" && grep -q 'packed into .* padding$' "$dir/err"
ok mixture_trains_and_logs_its_sources
train "$dir/two" --nproc 2 --training.local_batch_size 2
[ $rc -eq 0 ] && losses "$dir/two/metrics.jsonl" >"$dir/two.losses" && [ "$(wc -l <"$dir/two.losses")" -eq 10 ] &&
    paste "$dir/one.losses" "$dir/two.losses" | awk '{d = $2 - $4; if ($1 != $3 || d > 1e-5 || d < -1e-5) bad = 1} END {exit bad || NR != 10}'
ok two_ranks_have_the_losses_of_one
train "$dir/part" --nproc 2 --training.local_batch_size 2 --training.steps 5
[ $rc -eq 0 ] && train "$dir/part" --nproc 2 --training.local_batch_size 2 && [ $rc -eq 0 ] && grep -q 'resum' "$dir/err" &&
    losses "$dir/part/metrics.jsonl" | cmp - "$dir/two.losses" &&
    [ "$(hash_of "$dir/part/checkpoint/step-10")" = "$(hash_of "$dir/two/checkpoint/step-10")" ]
ok resume_of_a_mixture_is_bitwise
train "$dir/plain" --validation.enable true --validation.freq 5 --validation.dataloader "{\"mixture\": [{\"path\": \"$dir/text.txt\"}, {\"path\": \"$dir/text.txt\", \"weight\": 2}]}"
[ $rc -eq 0 ] && [ "$(grep -c '"validation"' "$dir/plain/metrics.jsonl")" -eq 2 ] && grep -v '"validation"' "$dir/plain/metrics.jsonl" >"$dir/trained" &&
    losses "$dir/trained" | cmp - "$dir/one.losses"
ok validation_on_a_mixture
train "$dir/told" --training.steps 1 --checkpoint.enable false --validation.dataloader.path "$dir/text.txt"
[ $rc -eq 0 ] && [ "$(grep -c 'validation.dataloader is given, but validation.enable is false' "$dir/err")" -eq 1 ] && ! grep -q '"validation"' "$dir/told/metrics.jsonl"
ok validation_data_without_validation_is_a_warning

job=$dir/job.json
train "$dir/alone"
with single '{ "mixture": [ {"name": "text", "path": ["text.txt"]} ] }'
job=$dir/single.json
train "$dir/single"
[ $rc -eq 0 ] && losses "$dir/single/metrics.jsonl" >"$dir/out" && losses "$dir/alone/metrics.jsonl" | cmp - "$dir/out"
ok mixture_of_one_source_equals_that_source

job=$dir/mixed.json
ttrun data show "$job" --n 4 >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ "$(grep -c '^  from    mixture\[0\] (text), its sample [0-9]* of epoch 0$' "$dir/out")" -eq 3 ] &&
    [ "$(grep -c '^  from    mixture\[1\] (jsonl), its sample [0-9]* of epoch 0$' "$dir/out")" -eq 1 ] &&
    grep -q '^packed: [0-9.]* % padding$' "$dir/out"
ok show_names_the_source
ttrun data build "$job" --json >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q '"sources":\[{"share":0.75,"loader":"text",' "$dir/out" && grep -q '{"share":0.25,"loader":"jsonl",' "$dir/out"
ok build_lists_all_sources
ttrun eval --checkpoint "$dir/one" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -ne 0 ] && grep -q 'name it with --data' "$dir/err"
ok eval_needs_one_data_set
ttrun eval --checkpoint "$dir/one" --data "$dir/text.txt" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q '^loss ' "$dir/out"
ok eval_of_a_named_data_set

# refuses NAME WORDS SECTION: one line, at its place
refuses() {
    with refused "$3"
    job=$dir/refused.json
    train "$dir/refused"
    [ $rc -eq 2 ] && [ "$(grep -cv '^\[r[0-9]* +' "$dir/err")" -eq 1 ] && grep -q -e "refused.json:[0-9]*:[0-9]*: $2" "$dir/err"
    ok "refuses_$1"
}
refuses empty_list 'dataloader.mixture: 0 sources' '{ "mixture": [] }'
refuses not_a_list 'dataloader.mixture: expected a list' '{ "mixture": 3 }'
refuses source_that_is_not_an_object 'dataloader.mixture\[0\]: expected an object' '{ "mixture": [1] }'
refuses weight_of_zero 'dataloader.mixture\[1\].weight: expected .* got 0' '{ "mixture": [{"path": "text.txt"}, {"path": "text.txt", "weight": 0}] }'
refuses negative_weight 'dataloader.mixture\[0\].weight: expected .* got -2' '{ "mixture": [{"path": "text.txt", "weight": -2}] }'
refuses nested_mixture 'dataloader.mixture\[0\].mixture: a mixture cannot contain another one' '{ "mixture": [{"mixture": []}] }'
refuses unknown_loader 'dataloader.mixture\[0\].name: .*txet' '{ "mixture": [{"name": "txet", "path": "text.txt"}] }'
refuses unknown_key 'dataloader.mixture\[0\].pat: unknown key' '{ "mixture": [{"pat": "text.txt"}] }'
refuses missing_file 'dataloader.mixture\[1\].path: ' '{ "mixture": [{"path": "text.txt"}, {"path": "none.txt"}] }'
refuses a_path_next_to_a_mixture 'dataloader.path: not allowed with a mixture' '{ "path": "text.txt", "mixture": [{"path": "text.txt"}] }'
exit $failed
