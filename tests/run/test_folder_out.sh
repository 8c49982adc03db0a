#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a Hugging Face folder has besides weights comes out again, in hf/latest and by ckpt export, but for what the job says otherwise: its
# chat template, its end token. tests/peers/folders_peer.py opens such folders with transformers.
. "$(dirname "$0")/lib.sh"
bytes='for (b = 0; b < 256; b++)
        printf ",\"\\u%04x\":%d", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b'
mkdir "$dir/hf"
awk 'BEGIN {
    printf "{\"added_tokens\":["
    n = split("<s> </s> <|im_start|> <|im_end|>", t, " ")
    for (i = 1; i <= n; i++)
        printf "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", (i > 1 ? "," : ""), 256 + i, t[i]
    printf "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"merges\":[[\"H\",\"i\"]],\"vocab\":{\"Hi\":256"
    '"$bytes"'
    printf "}}}\n"
}' >"$dir/hf/tokenizer.json"
own="{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
cat >"$dir/hf/config.json" <<'JSON'
{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 264, "hidden_act": "silu",
  "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "bos_token_id": 257, "eos_token_id": 258, "tie_word_embeddings": false,
  "auto_map": {"AutoConfig": "configuration_x.C"}
}
JSON
printf '{"bos_token": "<s>", "eos_token": "</s>", "model_max_length": 1000000000000000019884624838656, "chat_template": "%s", "auto_map": {"AutoTokenizer": ["tokenization_x.T", null]}}' \
    "$own" >"$dir/hf/tokenizer_config.json"
printf '{"eos_token": "</s>"}' >"$dir/hf/special_tokens_map.json"
printf '{"eos_token_id": [258, 3], "temperature": 0.6, "top_p": 0.95, "max_new_tokens": 7}' >"$dir/hf/generation_config.json"
for f in tokenization_x.py configuration_x.py; do echo 'no code of ours' >"$dir/hf/$f"; done
mkdir "$dir/hf/additional_chat_templates" && printf 'with tools' >"$dir/hf/additional_chat_templates/tool_use.jinja"
i=0
while [ $i -lt 12 ]; do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi $i\"}, {\"role\": \"assistant\", \"content\": \"It is $((i * i)).\"}]}"; i=$((i + 1)); done >"$dir/talk.jsonl"
loader='"path": "talk.jsonl"'
go() { # FOLDER OPTION...: a run of conversations from the folder $hf, by the $loader; status in $rc
    folder=$1
    shift
    printf '{"model": {"hf": "%s"}, "dataloader": {"name": "chat", %s}, "training": {"steps": 1, "seq_len": 48, "local_batch_size": 2},
        "optimizer": {"lr": 0}, "lr_scheduler": {"warmup_steps": 0}, "backend": {"threads": 1}, "checkpoint": {"last_save_in_hf": true}}' "$hf" "$loader" >"$dir/talk.json"
    ttrun "$dir/talk.json" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
export_to() { ttrun ckpt export --to "$@" >"$dir/out" 2>"$dir/err"; rc=$?; } # FORM FROM OUT
hf=$dir/hf
go "$dir/w" && export_to hf "$dir/w" "$dir/w.hf" && cp "$dir/w.hf/model.safetensors" "$hf"
has_all() { # FOLDER: each file of the source, but config.json, which has the export's dtype
    for f in tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json tokenization_x.py configuration_x.py additional_chat_templates/tool_use.jinja; do
        cmp "$hf/$f" "$1/$f" || return 1
    done
}
go "$dir/a" && [ $rc -eq 0 ] && has_all "$dir/a/hf/latest" && ttrun ckpt import --from hf "$hf" "$dir/in" 2>"$dir/err" && export_to hf "$dir/in" "$dir/in.hf" && has_all "$dir/in.hf"
ok every_file_comes_out
loss=$(losses "$dir/a/metrics.jsonl")
hf=$(realpath "$dir/a/hf/latest")
go "$dir/b" && [ -n "$loss" ] && [ "$loss" = "$(losses "$dir/b/metrics.jsonl")" ] && has_all "$dir/b/hf/latest"
ok the_export_trains_as_its_source
hf=$dir/hf

# ---- the template of the job: a run with the export's own template has the losses of one that names it, so it renders and learns the same ----
printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}" >"$dir/mine.jinja"
mkdir "$dir/t" && printf '{"chat_template": [{"name": "default", "template": "%s"}, {"name": "tool_use", "template": "mine, with tools"}]}' "$(cat "$dir/mine.jinja")" >"$dir/t/tokenizer_config.json"
for template in chatml mine.jinja t t/tokenizer_config.json mixture; do
    name=run_$(echo "$template" | tr -c 'a-z\n' _) hf=$dir/hf
    case $template in
    mixture) loader='"mixture": [{"path": "talk.jsonl", "template": "chatml"}, {"path": "talk.jsonl"}]' ;;
    *) loader="\"path\": \"talk.jsonl\", \"template\": \"$template\"" ;;
    esac
    go "$dir/$name" && mv "$dir/$name" "$dir/$name.moved" && export_to hf "$dir/$name.moved" "$dir/$name.hf"
    same=$(losses "$dir/$name.moved/metrics.jsonl") loader='"path": "talk.jsonl"' bad=
    for hf in "$(realpath "$dir/$name.moved/hf/latest")" "$dir/$name.hf"; do
        [ -s "$hf/chat_template.jinja" ] && ! grep -q chat_template "$hf/tokenizer_config.json" && grep -q '"model_max_length": 1000000000000000019884624838656,' "$hf/tokenizer_config.json" &&
            [ "$(value "$hf/generation_config.json" eos_token_id.2)" = 260 ] && [ "$(value "$hf/generation_config.json" top_p)" = 0.95 ] && [ "$(value "$hf/generation_config.json" eos_token_id.1)" = 3 ] || bad=1
        case $template in
        t*) [ "$(cat "$hf/additional_chat_templates/tool_use.jinja")" = 'mine, with tools' ] || bad=1 ;;
        *) ! [ -e "$hf/additional_chat_templates" ] || bad=1 ;;
        esac
        [ "$template" = mixture ] || { rm -rf "$dir/again" && go "$dir/again" && [ "$same" != "$loss" ] && [ "$same" = "$(losses "$dir/again/metrics.jsonl")" ]; } || bad=1
    done
    [ $rc -eq 0 ] && [ -z "$bad" ]
    ok "the_template_of_the_job_is_the_exports_$name"
done
export_to gguf "$dir/run_chatml.moved" "$dir/x.gguf" && [ $rc -eq 0 ] && grep -aq "chat_template.*<|im_start|>' + message.role" "$dir/x.gguf" && grep -aq 'tokenizer.ggml.eot_token_id' "$dir/x.gguf" &&
    export_to gguf "$dir/hf" "$dir/y.gguf" && grep -aqF "$own" "$dir/y.gguf" && ! grep -aq 'eot_token_id' "$dir/y.gguf" && grep -aq 'chat_template.tool_use' "$dir/y.gguf"
ok gguf_has_it_too
mv "$dir/mine.jinja" "$dir/gone.jinja" && export_to hf "$dir/run_mine_jinja.moved" "$dir/kept" && [ $rc -eq 0 ] && cmp -s "$dir/gone.jinja" "$dir/kept/chat_template.jinja" &&
    rm -r "$dir/run_mine_jinja.moved/chat" && export_to hf "$dir/run_mine_jinja.moved" "$dir/none" && [ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'mine.jinja is gone, and the run has no copy of it' "$dir/err" && ! [ -e "$dir/none" ] &&
    export_to hf "$dir/run_mine_jinja.moved" "$dir/named" --dataloader.template "$dir/gone.jinja" && cmp -s "$dir/gone.jinja" "$dir/named/chat_template.jinja"
ok the_runs_copy_is_taken_and_without_it_the_template_is_asked_for

# ---- the end token of the job ----
hf=$dir/hf
go "$dir/end" --tokenizer.eos_token '<|im_end|>' && hf=$dir/end/hf/latest && [ "$(value "$hf/tokenizer_config.json" eos_token)" = '<|im_end|>' ] && [ "$(value "$hf/special_tokens_map.json" eos_token)" = '<|im_end|>' ] &&
    [ "$(value "$hf/tokenizer_config.json" bos_token)" = '<s>' ] && [ "$(value "$hf/config.json" eos_token_id)" = 260 ] && [ "$(value "$hf/generation_config.json" eos_token_id.0)" = 258 ] &&
    [ "$(value "$hf/generation_config.json" eos_token_id.2)" = 260 ] && [ "$(value "$hf/generation_config.json" temperature)" = 0.6 ]
ok the_end_token_of_the_job_is_the_exports
echo Hi | ttrun tokenize --tokenizer "$hf" --eos >"$dir/out" 2>"$dir/err" && [ "$(cat "$dir/out")" = '256 10 260' ]
ok and_it_is_read_again
go "$dir/end2" && [ "$(losses "$dir/end/metrics.jsonl")" = "$(losses "$dir/end2/metrics.jsonl")" ] && [ "$(losses "$dir/end/metrics.jsonl")" != "$loss" ]
ok the_template_ends_turns_with_it_in_the_run_and_in_the_export
# ids of another tokenizer go, the rest of the file stays
go "$dir/sizes" --model.hf "$dir/hf" --tokenizer.path "$dir/hf/tokenizer.json" --tokenizer.bos_token '</s>' --tokenizer.eos_token '<s>' && hf=$dir/sizes/hf/latest &&
    [ "$(value "$hf/generation_config.json" eos_token_id)" = 257 ] && [ "$(value "$hf/config.json" bos_token_id)" = 258 ] && [ "$(value "$hf/generation_config.json" temperature)" = 0.6 ] && [ "$(value "$hf/tokenizer_config.json" add_bos_token)" = true ]
ok ids_of_another_tokenizer_go_and_the_rest_stays

# ---- tokenizer.model: unknown, bos, eos and the bytes ----
mkdir "$dir/sp" && cp "$dir/hf/config.json" "$dir/hf/model.safetensors" "$dir/hf/configuration_x.py" "$dir/sp" && printf '{"bos_token": "<s>", "eos_token": "</s>"}' >"$dir/sp/tokenizer_config.json" &&
    LC_ALL=C awk 'function piece(text, type) {printf "%c%c%c%c%s%c%c", 10, length(text) + 4, 10, length(text), text, 24, type}
        BEGIN {
            piece("<unk>", 2); piece("<s>", 3); piece("</s>", 3)
            for (b = 0; b < 256; b++) piece(sprintf("<0x%02X>", b), 6)
            printf "%c%c%c%c%c%c%c", 18, 5, 24, 2, 152, 2, 1
        }' >"$dir/sp/tokenizer.model"
hf=$dir/sp
go "$dir/spm" --dataloader.template "$dir/hf" && cmp "$dir/sp/tokenizer.model" "$dir/spm/hf/latest/tokenizer.model" && export_to hf "$dir/spm" "$dir/spm.hf" && cmp "$dir/sp/tokenizer.model" "$dir/spm.hf/tokenizer.model" &&
    [ -e "$dir/spm.hf/configuration_x.py" ] && [ -e "$dir/spm/hf/latest/configuration_x.py" ] &&
    ! grep -q 'without a tokenizer' "$dir/err" && grep -q "<s>{{ m.role }}" "$dir/spm.hf/chat_template.jinja"
ok a_tokenizer_model_comes_out
exit $failed
