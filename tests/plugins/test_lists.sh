#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The job's lists of plugins: converters and their filter, metrics.sinks and their options; from the file, by an override
# and by the schema.
. "$(dirname "$0")/../run/lib.sh"
mkdir -p "$dir/more/converters" "$dir/more/metrics" "$dir/more/specs"
build() { cc -std=c11 -Wall -Wextra -Werror -shared -fPIC "-I$SRC/include" "$SRC/tests/plugins/$1.c" -o "$2"; }
{ build converter "$dir/more/converters/converter.so" && build sink "$dir/more/metrics/sink.so" && build spec "$dir/more/specs/spec.so"; } >"$dir/out" 2>&1
ok plugins_build_from_the_public_headers
more="--plugin-dir $dir/more"
with() { # MEMBER: the job with this member
    job=$dir/with.json
    echo "{\"extends\": \"job.json\", $1}" >"$job"
}
short() { train "$@" $more --training.steps 2 --checkpoint.enable false; }
refused() { [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -- "$1" "$dir/err"; }

# ---- converters ----
short "$dir/plain"
cp "$dir/plain/metrics.jsonl" "$dir/plain.jsonl"
with "\"converters\": [{\"name\": \"half\", \"file\": \"$dir/all\"}]"
short "$dir/c1"
[ $rc -eq 0 ] && [ "$(sort -u "$dir/all" | wc -l)" -eq 15 ] && [ "$(wc -l <"$dir/all")" -eq 15 ] && grep -q '^lm_head.weight$' "$dir/all" &&
    grep -q '^model.layers.1.mlp.down_proj.weight$' "$dir/all"
ok converter_is_asked_for_every_linear
with "\"converters\": [{\"name\": \"half\", \"file\": \"$dir/some\", \"filter\": [\"layers.0.self_attn\", \"lm_head\"]}]"
short "$dir/c2"
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/some")" -eq 10 ] && ! grep -q 'layers.0.self_attn\|lm_head' "$dir/some" &&
    [ "$(grep -c 'layers.1.self_attn' "$dir/some")" -eq 4 ] && [ "$(grep -c 'mlp' "$dir/some")" -eq 6 ] &&
    ! grep -q 'has no effect' "$dir/err"
ok filter_leaves_out_names_that_contain_a_word
short "$dir/c3" '--converters[0].filter' '["weight"]' '--converters[0].file' "$dir/none"
losses "$dir/c1/metrics.jsonl" >"$dir/l1"
losses "$dir/c3/metrics.jsonl" >"$dir/l3"
losses "$dir/plain.jsonl" >"$dir/l0"
[ $rc -eq 0 ] && ! [ -e "$dir/none" ] && cmp -s "$dir/l0" "$dir/l3" && ! cmp -s "$dir/l0" "$dir/l1"
ok filter_by_override_leaves_other_linears_unchanged
job=$dir/job.json
short "$dir/c4" --converters "[{\"name\": \"half\", \"file\": \"$dir/cli\", \"filter\": \"lm_head\"}]" --hooks '[]'
[ $rc -eq 0 ] && [ -s "$dir/cli" ] && ! grep -q lm_head "$dir/cli"
ok converters_as_a_list_on_the_command_line
short "$dir/c5" --converters '[{"name": "half", "filter": ["wqq"]}]'
[ $rc -eq 0 ] && [ "$(grep -c 'converters\[0\].filter: no parameter.s name contains "wqq"' "$dir/err")" -eq 1 ]
ok a_filter_word_that_matches_nothing_is_a_warning
short "$dir/c6" --converters '[{"name": "half", "from_step": 5, "to_step": 5}]'
refused 'converters\[0\].to_step: 5 is not above from_step 5, so no step would be converted'
ok no_steps_are_refused
short "$dir/c6" --converters '[{"name": "half", "from_step": 2}]' && [ $rc -eq 0 ] && losses "$dir/c6/metrics.jsonl" | cmp -s - "$dir/l0"
ok before_its_first_step_nothing_is_converted
short "$dir/c6a" --converters '[{"name": "half", "to_step": 2}]' && [ $rc -eq 0 ] && losses "$dir/c6a/metrics.jsonl" | cmp -s - "$dir/l1"
ok up_to_its_last_step_it_is
short "$dir/c6" --converters '[{"name": "half", "roles": ["forward"]}]'
refused 'converters\[0\].roles: half replaces whole layers, not single products: leave roles out'
ok roles_of_a_converter_of_layers_are_refused
short "$dir/c6" --converters '[{"name": "half", "filter": [""]}]'
refused 'converters\[0\].filter: "" matches every name'
ok an_empty_filter_word_is_refused
short "$dir/c8" --converters "[{\"name\": \"half\", \"file\": \"$dir/expr\", \"filter\": [\"layers\\\\.[01]\\\\.mlp\", \"^lm_\"]}]"
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/expr")" -eq 8 ] && ! grep -q 'mlp\|lm_head' "$dir/expr"
ok filter_takes_regular_expressions
short "$dir/c8" --converters '[{"name": "half", "filter": ["(lm"]}]'
refused 'converters\[0\].filter: "(lm" is not a regular expression: missing closing parenthesis'
ok a_bad_regular_expression_is_refused
short "$dir/c8" --converters '[{"name": "half", "filter": ["tag:nrm", "layers\\.9"]}]'
[ $rc -eq 0 ] && grep -q 'converters\[0\].filter: no parameter has the tag "nrm", so it has no effect' "$dir/err" &&
    grep -q 'converters\[0\].filter: no parameter.s name matches "layers..9"' "$dir/err"
ok a_tag_and_an_expression_that_match_nothing_are_warnings
short "$dir/c6" --converters '[{"name": "half", "filtre": ["lm_head"]}]'
refused 'converters\[0\].filtre: unknown key (did you mean converters\[0\].filter?)'
ok an_unknown_key_of_a_converter_is_refused
short "$dir/c7" --converters "[{\"name\": \"own\", \"roles\": \"+mine\", \"file\": \"$dir/own\"}]"
[ $rc -eq 0 ] && grep -q '^lm_head.weight+mine$' "$dir/own"
ok a_key_that_is_an_option_of_the_plugin_is_the_plugins

# ---- metrics ----
job=$dir/job.json
short "$dir/m0"
[ $rc -eq 0 ] && [ -s "$dir/m0/metrics.jsonl" ] && ! [ -e "$dir/m0/tb" ]
ok without_a_list_the_spec_names_the_sinks
with "\"metrics\": {\"sinks\": [{\"name\": \"jsonl\"}, {\"name\": \"prom\", \"path\": \"$dir/a.prom\"}, {\"name\": \"prom\"}]}"
short "$dir/m1" --metrics.log_freq 1
[ $rc -eq 0 ] && grep -q '^ttrun_loss [0-9]' "$dir/a.prom" && cmp -s "$dir/a.prom" "$dir/m1/metrics.prom" && [ -s "$dir/m1/metrics.jsonl" ]
ok sinks_have_options_and_defaults
job=$dir/job.json
short "$dir/m2" --metrics.sinks '[{"name": "prom", "prefix": "x_"}]'
[ $rc -eq 0 ] && grep -q '^x_loss' "$dir/m2/metrics.prom" && ! [ -e "$dir/m2/metrics.jsonl" ]
ok sinks_on_the_command_line
short "$dir/m3" --metrics.sinks '[{"name": "prom", "pathh": "x"}]'
refused 'metrics.sinks\[0\].pathh: unknown key (did you mean metrics.sinks\[0\].path?)'
ok sink_options_are_checked
short "$dir/m3" --metrics.sinks '[{"name": "jsonl"}, {"name": "jsonl"}]'
refused 'metrics.sinks\[1\]: the same as metrics.sinks\[0\]'
ok one_sink_twice_is_refused
short "$dir/m3" --metrics.sinks '[{"name": "jsonk"}]'
refused 'metrics.sinks\[0\].name: metrics "jsonk" is unknown; did you mean "jsonl"'
ok an_unknown_sink_is_refused
short "$dir/m3" --metrics.sinks '[{"path": "x"}]'
refused 'metrics.sinks\[0\]: needs a "name"'
ok a_sink_needs_a_name

# ---- a spec that names neither a tokenizer nor sinks ----
with '"spec": "tokens_only"'
tokens='--dataloader.name bin --dataloader.format uint16'
awk 'BEGIN {for (i = 0; i < 2000; i++) printf "%c\001", 1 + i % 5}' >"$dir/tokens.bin" # 257 to 261
# shellcheck disable=SC2086
short "$dir/t1" $tokens --dataloader.path "$dir/tokens.bin"
[ $rc -eq 0 ] && [ -s "$dir/t1/metrics.jsonl" ] && ! grep -q '"tokenizer"' "$dir/t1/run.json"
ok a_spec_needs_no_tokenizer
train "$dir/t3" $more $tokens --dataloader.path "$dir/tokens.bin" --training.steps 2
ttrun generate --checkpoint "$dir/t3" --prompt hi $more >"$dir/out" 2>"$dir/err"
rc=$?
refused 'tokenizer: this needs a tokenizer'
ok a_text_prompt_needs_a_tokenizer
echo '{"ids": [257, 258]}' >"$dir/prompts.jsonl"
ttrun generate --checkpoint "$dir/t3" --prompts "$dir/prompts.jsonl" --max-tokens 3 $more >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q '^257 258 ' "$dir/out"
ok a_prompt_of_ids_needs_no_tokenizer
train "$dir/t2" $more --training.steps 1 --dataloader.name text
refused 'tokenizer: this needs a tokenizer, and the spec has none: set tokenizer.name'
ok reading_text_needs_a_tokenizer
train "$dir/t2" $more --training.steps 1 --dataloader.name text --tokenizer.name byte
[ $rc -eq 0 ]
ok the_tokenizer_may_be_the_jobs

# ---- the check, the schema ----
ttrun plugins check "$dir/more/metrics/sink.so" >"$dir/out" 2>"$dir/err"
rc=$?
refused 'metrics "null" crashed (SIGSEGV'
ok check_finds_a_sink_that_reads_null
ttrun plugins check "$dir/more/metrics/sink.so" --metrics.sinks "[{\"name\": \"prom\", \"path\": \"$dir/check.prom\"}]" >"$dir/out" 2>"$dir/err"
[ -s "$dir/check.prom" ]
ok check_accepts_options_of_a_sink
ttrun config --schema $more >"$dir/schema.json" && ttrun config --explain metrics.sinks $more >"$dir/out" 2>"$dir/err" && ttrun config --explain converters $more >>"$dir/out"
[ "$(value "$dir/schema.json" properties.metrics.properties.sinks.type)" = array ] && [ "$(value "$dir/schema.json" properties.converters.type)" = array ] &&
    grep -q '^metrics.sinks\[\].path \[prom\]' "$dir/out" && grep -q '^converters\[\].filter' "$dir/out" && grep -q '"prefix"' "$dir/schema.json"
ok schema_and_explain_have_the_lists
ttrun config "$dir/with.json" $more >"$dir/resolved.json" 2>"$dir/err" && ttrun config "$dir/resolved.json" --json $more >"$dir/again.json" 2>>"$dir/err" &&
    ttrun config "$dir/with.json" --json $more | cmp -s - "$dir/again.json"
ok the_resolved_job_resolves_to_itself
exit $failed
