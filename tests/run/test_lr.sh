#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The learning rate of a run: a warm-up in tokens or as a part of the run, a schedule longer or shorter than the run, a second warm-up after a
# resume, and the schedules by name.
. "$(dirname "$0")/lib.sh"
rates() { # FOLDER: "step rate", of 4 significant digits
    awk -F '[:,]' '/^{"step":/ { for (i = 1; i < NF; i++) if ($i == "\"lr\"") printf "%d %.4g\n", $2, $(i + 1) }' "$1/metrics.jsonl"
}
rate() { rates "$1" | sed -n "s/^$2 //p"; }
s=--lr_scheduler
# 4 samples of 32 tokens are 128 tokens a step; 300 tokens are 3 steps
sed -i "s/, \"warmup_steps\": 0//" "$job"
train "$dir/tokens" --training.steps 4 $s.warmup_tokens 300 && [ "$rc" -eq 0 ] && [ "$(rates "$dir/tokens" | tr '\n' ';')" = "1 0.003333;2 0.006667;3 0.01;4 0.01;" ]
ok warmup_tokens
grep -q '4 steps, 3 of them warm-up; local batch 4 × 1 data rank, global batch 4, sequence length 32' "$dir/err" && grep -q 'model llama3 debugmodel: 32,288 parameters, ' "$dir/err"
ok a_line_has_the_length_and_the_warmup
train "$dir/both" $s.warmup_tokens 300 $s.warmup_steps 3
[ "$rc" -eq 2 ] && grep -q 'warmup_tokens: lr_scheduler.warmup_steps is set, too: keep one of them' "$dir/err"
ok warmup_tokens_and_steps_are_refused
train "$dir/ratio" --training.steps 8 $s.warmup_ratio 0.3 && [ "$(rate "$dir/ratio" 1) $(rate "$dir/ratio" 2) $(rate "$dir/ratio" 3)" = "0.003333 0.006667 0.01" ]
ok warmup_ratio_is_rounded_up
train "$dir/zero" --training.steps 4 $s.warmup_ratio 0.5 $s.warmup_from_zero true && [ "$(rates "$dir/zero" | tr '\n' ';')" = "1 0;2 0.005;3 0.01;4 0.01;" ]
ok warmup_from_zero
train "$dir/long" --training.steps 4 $s.name polynomial $s.warmup_steps 0 $s.total_steps 8 && [ "$(rates "$dir/long" | tr '\n' ';')" = "1 0.01;2 0.00875;3 0.0075;4 0.00625;" ] &&
    train "$dir/short" --training.steps 4 $s.name polynomial $s.warmup_steps 0 $s.total_steps 2 $s.min_lr_factor 0.5 && [ "$(rates "$dir/short" | tr '\n' ';')" = "1 0.01;2 0.0075;3 0.005;4 0.005;" ]
ok total_steps
# lr_min is a share of the rate, as in torchtitan: a line says what rate that is
train "$dir/share" --training.steps 2 $s.name wsd $s.lr_min 1e-3 && grep -q 'lr_scheduler.lr_min: 0.001 is a share of optimizer.lr (min_lr_factor): the rate ends at 1e-05, that is 0.001 times 0.01' "$dir/err" &&
    train "$dir/factor" --training.steps 2 $s.name wsd $s.min_lr_factor 1e-3 && ! grep -q lr_min "$dir/err" && [ "$(rates "$dir/share")" = "$(rates "$dir/factor")" ]
ok lr_min_says_what_rate_it_is
# a run longer than its schedule: the rate of a schedule's end, whatever its function does there
while read -r name end options; do
    train "$dir/$name" --training.steps 12 $s.name "${name%%.*}" $s.total_steps 6 $options &&
        [ "$(rates "$dir/$name" | sed -n '7,12s/^[0-9]* //p' | sort -u)" = "$end" ]
    ok "the_end_of_$name"
done <<END
inverse_sqrt.warm 0.005774 $s.warmup_steps 3 $s.timescale 1.5
inverse_sqrt.cold 0.005 $s.warmup_steps 0 $s.timescale 2
polynomial 0.002 $s.warmup_steps 2 $s.min_lr_factor 0.2
cosine_restarts.cycles 0 $s.warmup_steps 0 $s.cycles 3
cosine_restarts.within 0.005 $s.warmup_steps 0 $s.first_cycle_steps 4
cosine_restarts.between 0.001 $s.warmup_steps 0 $s.first_cycle_steps 2 $s.cycle_factor 2 $s.min_lr_factor 0.1
wsd 0.001 $s.warmup_steps 1 $s.min_lr_factor 0.1
constant 0.01 $s.warmup_steps 2
END
train "$dir/again" --training.steps 4 && train "$dir/again" --training.steps 10 $s.rewarm_steps 4 && [ "$(rate "$dir/again" 4) $(rate "$dir/again" 5) $(rate "$dir/again" 6) $(rate "$dir/again" 8) $(rate "$dir/again" 9)" = "0.01 0.0025 0.005 0.01 0.01" ]
ok rewarm_steps_after_a_resume
train "$dir/fresh" --training.steps 2 $s.rewarm_steps 4 && [ "$(rate "$dir/fresh" 1)" = 0.01 ]
ok a_new_run_has_no_second_warmup
train "$dir/root" --training.steps 5 $s.name inverse_sqrt $s.warmup_steps 1 && [ "$(rate "$dir/root" 5)" = 0.005 ] &&
    train "$dir/sgdr" --training.steps 6 $s.name cosine_restarts $s.warmup_steps 0 $s.first_cycle_steps 2 $s.cycle_factor 2 && [ "$(rates "$dir/sgdr" | tr '\n' ';')" = "1 0.01;2 0.005;3 0.01;4 0.008536;5 0.005;6 0.001464;" ]
ok schedules_by_name
exit $failed
