#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun serve: what OpenAI's clients and lm-evaluation-harness ask for; texts as generate and chat have them, alone and side by side; refusals; a server
# that outlives rude clients.
. "$(dirname "$0")/lib.sh"
http=$BUILD/tests/run/http_tool
train "$dir/run" --training.steps 60 --training.seq_len 64 --checkpoint.interval 1000 && [ "$rc" -eq 0 ]
ok there_is_a_model
server=
listens_or_ended() { grep -q ' at http' "$dir/serve.log" || ! kill -0 "$server"; }
start() { # OPTION…: sets port
    : >"$dir/serve.log" # not the line of the server before
    (ulimit -S -v "${most-unlimited}" && exec "$TTRUN" serve --checkpoint "$dir/run" --port 0 "$@") >"$dir/serve.log" 2>&1 &
    server=$!
    until_true listens_or_ended
    port=$(sed -n 's|.* at https*://[^ ]*:\([0-9]*\)/v1.*|\1|p' "$dir/serve.log")
    [ -n "$port" ]
}
end() { kill "$server" 2>/dev/null; wait "$server"; }
trap 'kill $server 2>/dev/null; rm -rf "$dir"' EXIT
ask() { # METHOD PATH BODY [HEADER]: sets code; the body goes to answer.json
    "$http" "$port" "$@" >"$dir/answer" 2>>"$dir/err"
    code=$(head -n 1 "$dir/answer")
    tail -n +2 "$dir/answer" >"$dir/answer.json"
}
get() { "$json" "$dir/answer.json" "$1" 2>>"$dir/err"; }

start --template chatml
ok listens
ask GET /health && [ "$code" = 200 ] && [ "$(get status)" = ok ]
ok health
ask GET /v1/models && [ "$(get data.0.id)" = run ] && [ "$(get data.0.max_model_len)" = 2048 ]
ask GET /v1/models/run && [ "$(get id)" = run ] && ask GET /v1/models/%72un && [ "$(get id)" = run ] && [ "$(get created)" -gt 0 ]
ok models
ask GET /tokenizer_info && [ "$(get vocab_size)" = 262 ] && grep -q '"chat_template"' "$dir/answer.json"
ok tokenizer_info
ask POST /tokenize '{"prompt":"line 7","add_special_tokens":false}' && [ "$(get count)" = 6 ] && [ "$(get tokens.0)" = 108 ] &&
    ask POST /tokenize '{"prompt":"line 7"}' && [ "$(get count)" = 7 ] && [ "$(get tokens.0)" = 256 ]
ok tokenize
ask POST /detokenize '{"tokens":[256,108,105,110,101,32,55]}' && [ "$(get prompt)" = 'line 7' ]
ok detokenize

# ---- completions ----
generated() { ttrun generate --checkpoint "$dir/run" --prompt 'line 7' --max-tokens 24 "$@" 2>>"$dir/err"; }
complete() { ask POST /v1/completions "{\"prompt\":\"line 7\",\"max_tokens\":24,$1}"; }
complete '"temperature":0' && [ "line 7$(get choices.0.text)" = "$(generated --temperature 0)" ] && [ "$(get choices.0.finish_reason)" = length ] &&
    [ "$(get usage.prompt_tokens)" = 7 ] && [ "$(get usage.completion_tokens)" = 24 ] && [ "$(get model)" = run ]
ok greedy_text_is_that_of_generate
complete '"temperature":0.7,"seed":5,"top_p":0.9,"n":2' && [ "line 7$(get choices.0.text)" = "$(generated --temperature 0.7 --top-p 0.9 --seed 5)" ] &&
    [ "$(get choices.0.text)" != "$(get choices.1.text)" ] && [ "$(get choices.1.index)" = 1 ]
ok drawn_text_is_that_of_generate
greedy=$(generated --temperature 0 | sed 's/^line 7//')
stop=$(printf '%s' "$greedy" | cut -c 9-11)
complete "\"temperature\":0,\"stop\":[\"$stop\",\"zz\"]" && [ "$(get choices.0.text)" = "$(printf '%s' "$greedy" | awk -v s="$stop" '{print substr($0, 1, index($0, s) - 1)}')" ] && [ "$(get choices.0.finish_reason)" = stop ] && [ ${#stop} -eq 3 ]
ok a_text_that_ends_it
complete "\"temperature\":0,\"stream\":true,\"stop\":\"$stop\"" && [ "$code" = 200 ] && [ "$(grep -c '^data: ' "$dir/answer.json")" -gt 3 ] && grep -q '^data: \[DONE\]$' "$dir/answer.json" &&
    sed -n 's/^data: \({.*\)/\1/p' "$dir/answer.json" | sed 's/.*"text":"\([^"]*\)".*/\1/' | tr -d '\n' >"$dir/streamed" && complete "\"temperature\":0,\"stop\":\"$stop\"" && [ "$(cat "$dir/streamed")" = "$(get choices.0.text)" ]
ok a_stream_has_the_same_text
complete '"temperature":0,"logit_bias":{"122":100},"user":"me","use_beam_search":false,"top_a":0,"length_penalty":1.0' && [ "$(get choices.0.text)" = zzzzzzzzzzzzzzzzzzzzzzzz ]
ok biased_ids_come
# 257 ends a text
complete '"temperature":0,"logit_bias":{"257":100}' && [ "$(get usage.completion_tokens) $(get choices.0.finish_reason)" = '1 stop' ] &&
    complete '"temperature":0,"logit_bias":{"257":100},"min_tokens":5' && [ "$(get usage.completion_tokens) $(get choices.0.finish_reason)" = '6 stop' ] && [ "$(get choices.0.text)" = "$(printf '%s' "$greedy" | cut -c 1-5)" ] &&
    complete '"temperature":0,"logit_bias":{"257":100},"ignore_eos":true' && [ "$(get usage.completion_tokens) $(get choices.0.finish_reason)" = '24 length' ]
ok texts_end_as_asked
code_of_ninth=$(printf '%d' "'$(printf '%s' "$greedy" | cut -c 9)")
complete "\"temperature\":0,\"stop_token_ids\":[$code_of_ninth]" && [ "$(get choices.0.finish_reason)" = stop ] && [ "$(get choices.0.text)" = "$(printf '%s' "$greedy" | sed "s/$(printf '%s' "$greedy" | cut -c 9).*//")" ]
ok an_id_that_ends_it
complete '"temperature":0,"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0' && [ "$(get choices.0.text)" = "$greedy" ] &&
    complete '"temperature":0,"frequency_penalty":2' && [ "$(get choices.0.text)" != "$greedy" ] && complete '"temperature":0,"repetition_penalty":5' && [ "$(get choices.0.text)" != "$greedy" ] &&
    complete '"temperature":9,"min_p":1,"seed":3' && [ "$(get choices.0.text)" = "$greedy" ]
ok penalties
ask POST /v1/completions '{"prompt":[[256,108,105],[256,110,101,32]],"max_tokens":3,"temperature":0}' && [ "$(get choices.1.index)" = 1 ] && [ "$(get usage.prompt_tokens)" = 7 ] && [ "$(get usage.completion_tokens)" = 6 ]
ok prompts_as_ids

# As lm-evaluation-harness scores: the prompt with logprobs, and one token more.
ask POST /v1/completions '{"prompt":[[256,108,105,110,101,32,55]],"max_tokens":1,"temperature":0,"logprobs":1,"echo":true,"seed":1234}' && [ "$code" = 200 ] && [ "$(get choices.0.logprobs.tokens.1)" = l ] &&
    grep -q '"token_logprobs":\[null,-' "$dir/answer.json" && grep -q '"top_logprobs":\[null,{' "$dir/answer.json" && [ "$(get choices.0.logprobs.text_offset.6)" = 5 ]
ok echo_with_logprobs
ask POST /v1/completions '{"prompt":[256,108,105,110,101,32,55,257],"max_tokens":0,"logprobs":0,"echo":true}'
sum=$(sed 's/.*"token_logprobs":\[null,\([^]]*\)\].*/\1/' "$dir/answer.json" | tr ',' '\n' | awk '{s += $1} END {printf "%.6f", -s / NR}')
printf 'line 7' >"$dir/one.txt"
loss=$(ttrun eval --checkpoint "$dir/run" --data "$dir/one.txt" --seq_len 7 2>>"$dir/err" | sed -n 's/^loss \([0-9.]*\) .*/\1/p')
[ -n "$loss" ] && near "$sum" "$loss" 2e-5
ok the_logprobs_are_those_of_eval
# Bytes that are a part of a character have names of their own, and each character counts once. The last byte is not the likeliest one: JSON's readers
# keep the last of equal keys, and would take it for that.
ask POST /v1/completions '{"prompt":[256,195,188,98,230,151,165,33,230],"max_tokens":0,"logprobs":1,"echo":true}' && [ "$(get choices.0.logprobs.tokens.1)" = 'bytes:\xc3' ] &&
    [ "$(get choices.0.logprobs.tokens.3)" = b ] && [ "$(get choices.0.logprobs.tokens.6)" = 'bytes:\xa5' ] && grep -q '"text_offset":\[0,0,0,1,2,2,2,3,4\]' "$dir/answer.json" &&
    [ "$(grep -o '{[^{}]*"bytes:\\\\xe6":[-0-9.]*' "$dir/answer.json" | wc -l)" -eq 2 ] && ! grep -q 'top_logprobs.*\xef\xbf\xbd.*text_offset' "$dir/answer.json"
ok parts_of_characters_have_names
# greedy: the token's number is the largest one, to the last digit
complete '"temperature":0,"logprobs":2' && sed 's/.*"token_logprobs":\[\([^]]*\)\],"top_logprobs":\[\(.*\)\],"text_offset.*/\1\n\2/' "$dir/answer.json" | awk 'NR == 1 {n = split($0, a, ",")} NR == 2 {for (i = 1; i <= n; i++) if (!index($0, ":" a[i] ",") && !index($0, ":" a[i] "}")) exit 1; exit n != 24}'
ok equal_numbers_are_equal_texts

# ---- side by side ----
complete '"temperature":0.8,"seed":3' && get choices.0.text >"$dir/alone"
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$http" "$port" POST /v1/completions "{\"prompt\":\"line 7\",\"max_tokens\":24,\"temperature\":0.8,\"seed\":$((i % 4)),\"n\":$((i % 3 + 1))}" >"$dir/side$i" &
    pids="$pids $!"
done
# shellcheck disable=SC2086
wait $pids
right=0
for i in 3 7 11 15 19; do
    tail -n +2 "$dir/side$i" >"$dir/side.json"
    [ "$("$json" "$dir/side.json" choices.0.text)" = "$(cat "$dir/alone")" ] && right=$((right + 1))
done
[ $right -eq 5 ]
ok texts_side_by_side_are_those_alone

# ---- chat ----
said=$(printf 'line 3\n' | ttrun chat --checkpoint "$dir/run" --template chatml --temperature 0 --max-tokens 12 2>>"$dir/err")
chat() { ask POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"line 3\"}],\"temperature\":0,\"max_tokens\":12${1-}}"; }
chat && [ "$(get choices.0.message.content)" = "$said" ] && [ "$(get choices.0.message.role)" = assistant ] && [ "$(get object)" = chat.completion ]
ok chat_answers_as_ttrun_chat
ask POST /v1/chat/completions '{"messages":[{"role":"user","content":[{"type":"text","text":"line"},{"type":"text","text":" 3"}]}],"temperature":0,"max_tokens":12}' && [ "$(get choices.0.message.content)" = "$said" ]
ok contents_in_parts
chat ',"logprobs":true,"top_logprobs":3' && [ "$(get choices.0.logprobs.content.0.top_logprobs.0.logprob)" = "$(get choices.0.logprobs.content.0.logprob)" ] && [ -n "$(get choices.0.logprobs.content.11.bytes.0)" ]
ok chat_logprobs
chat ',"stream":true,"stream_options":{"include_usage":true}' && grep -q '"delta":{"role":"assistant","content":""}' "$dir/answer.json" && grep -q '"delta":{}.*"finish_reason":"length"' "$dir/answer.json" && grep -q '"choices":\[\],"usage":{' "$dir/answer.json"
ok chat_stream

# ---- tools ----
end
cat >"$dir/tools.jinja" <<'END'
{%- if tools and not short %}T{{ tools | tojson }}{% endif %}{% if short %}!{% endif %}
{%- for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
END
start --template "$dir/tools.jinja"
tool='{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}'
seen='T[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]'
ask_chat() { ask POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"line 3\"}${2-}],\"temperature\":0,\"max_tokens\":9$1}" && [ "$code" = 200 ]; }
# the answer is that to the text that the template makes
ask_chat ",\"tools\":[$tool],\"tool_choice\":\"auto\"" && said=$(get choices.0.message.content) && n=$(get usage.prompt_tokens) &&
    text="$seen<user>line 3<assistant>" && [ "$n" = ${#text} ] && ask POST /tokenize "{\"add_special_tokens\":false,\"prompt\":\"$(printf '%s' "$text" | sed 's/"/\\"/g')\"}" && [ "$(get count)" = "$n" ] &&
    ask POST /v1/completions "{\"prompt\":$(sed 's/.*"tokens":\(\[[^]]*\]\).*/\1/' "$dir/answer.json"),\"temperature\":0,\"max_tokens\":9}" && [ "$(get choices.0.text)" = "$said" ]
ok tools_go_through_the_template
# /tokenize has the ids of the chat, without what begins an answer if it is not wanted
tokenized() { # KEYS COUNT TEXT: begins with that text, and has so many ids
    ask POST /tokenize "{\"messages\":[{\"role\":\"user\",\"content\":\"line 3\"}],\"return_token_strs\":true$1}" && [ "$code" = 200 ] && [ "$(get count)" = "$2" ] &&
        [ "$(sed 's/.*"token_strs":\[\(.*\)\]}/\1/' "$dir/answer.json" | sed 's/\\"/Q/g; s/","//g; s/^"//; s/"$//; s/Q/"/g' | cut -c -${#3})" = "$3" ]
}
tokenized ",\"tools\":[$tool]" ${#text} "$text" && text='<user>line 3<assistant>' && tokenized '' ${#text} "$text" && tokenized ',"chat_template_kwargs":{"short":true}' $((${#text} + 1)) "!$text" &&
    tokenized ',"add_generation_prompt":false' $((${#text} - 11)) '<user>line 3' && tokenized ',"add_special_tokens":true' $((${#text} + 1)) "<token 256>$text" &&
    ask POST /tokenize '{"model":"run","prompt":"\u00fc","return_token_strs":true}' && [ "$(get token_strs.0) $(get token_strs.1)" = '<token 256> bytes:\xc3' ]
ok tokenize_of_messages
ask_chat ",\"tools\":[$tool],\"tool_choice\":\"none\"" && [ "$(get usage.prompt_tokens)" = 23 ] && ask_chat ',"tools":[]' && [ "$(get usage.prompt_tokens)" = 23 ] && ask_chat ',"chat_template_kwargs":{"short":true}' && [ "$(get usage.prompt_tokens)" = 24 ]
ok no_tools
! ask_chat ",\"tools\":[$tool],\"chat_template_kwargs\":{\"short\":true}" && [ "$code" = 400 ] && grep -q 'chat template does not use them' "$dir/answer.json"
ok tools_that_the_template_leaves_out
called() { ask_chat ",\"tools\":[$tool]" ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":$1}}]},{\"role\":\"tool\",\"content\":\"4\"}" && get usage.prompt_tokens; }
text="$seen<user>line 3<assistant>f({\"x\": 2})<tool>4<assistant>"
[ "$(called '"{\"x\":2}"')" = ${#text} ] && [ "$(called '{"x":2}')" = ${#text} ] && [ "$(called '"x"')" = $((${#text} - 5)) ]
ok arguments_of_calls_are_objects
end
# A model that has learned a call by heart, and one in Llama's form: the message has it apart, a stream, too.
learn() { # FILE TEXT: a run of a model that knows the text, which begins after "1Q"
    yes "1Q$2E" | head -c 8000 >"$dir/$1.txt"
    train "$dir/$1" --dataloader.path "$dir/$1.txt" --training.steps 120 --training.seq_len 128 --checkpoint.interval 1000
}
printf '%s' "{{ '1' if tools else '' }}{{ messages[0].content }}" >"$dir/short.jinja"
learn tagged 'I look.<tool_call>{"name":"f","arguments":{"x":[1,"y"]}}</tool_call>' && [ "$rc" -eq 0 ] && learn untagged '{"name":"f","parameters":{"x":2}}' && [ "$rc" -eq 0 ]
ok models_that_call
of() { # RUN: serves it
    run=$1 && cp -r "$dir/$run" "$dir/served" && mv "$dir/run" "$dir/first" && mv "$dir/served" "$dir/run"
    start --template "$dir/short.jinja"
}
back() { end; rm -rf "$dir/run"; mv "$dir/first" "$dir/run"; }
call() { ask POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"temperature\":0,\"max_tokens\":${2-99},\"stop\":\"E\"$1}" && [ "$code" = 200 ]; }
streamed() { sed -n 's/^data: \({.*\)/\1/p' "$dir/answer.json"; }
with=",\"tools\":[$tool]"
of tagged
call "$with" && [ "$(get choices.0.message.content)" = 'I look.' ] && [ "$(get choices.0.message.tool_calls.0.function.name)" = f ] && [ "$(get choices.0.message.tool_calls.0.function.arguments)" = '{"x":[1,"y"]}' ] &&
    [ "$(get choices.0.message.tool_calls.0.type)" = function ] && [ -n "$(get choices.0.message.tool_calls.0.id)" ] && [ "$(get choices.0.finish_reason)" = tool_calls ]
ok a_call_is_apart
call '' && [ "$(get choices.0.message.content)" = 'I look.<tool_call>{"name":"f","arguments":{"x":[1,"y"]}}</tool_call>' ] && [ "$(get choices.0.finish_reason)" = stop ] && call "$with,\"tool_choice\":\"none\"" && [ "$(get choices.0.finish_reason)" = stop ]
ok without_tools_it_is_text
call "$with,\"n\":2" && [ "$(get choices.1.message.tool_calls.0.function.name)" = f ] && [ "$(get choices.0.message.tool_calls.0.id)" != "$(get choices.1.message.tool_calls.0.id)" ]
ok each_choice_has_its_own
call "$with,\"stream\":true" && [ "$(streamed | grep -c tool_call)" -eq 2 ] && streamed | grep -q '"delta":{"tool_calls":\[{"index":0,"id":"call-[^"]*","type":"function","function":{"name":"f","arguments":"{\\"x\\":\[1,\\"y\\"\]}"}}\]}.*"finish_reason":null' &&
    streamed | tail -n 1 | grep -q '"delta":{},.*"finish_reason":"tool_calls"' && [ "$(streamed | sed -n 's/.*"content":"\([^"]*\)".*/\1/p' | tr -d '\n')" = 'I look.' ]
ok a_stream_has_the_call
call "$with" 30 && [ "$(get choices.0.finish_reason)" = length ] && get choices.0.message.content | grep -q '^I look.<tool_call>{"name"'
ok half_a_call_is_text
! call "$with,\"response_format\":{\"type\":\"json_object\"}" && [ "$code" = 400 ] && grep -q 'leave out one of response_format and tools' "$dir/answer.json"
ok json_and_tools
back && of untagged
call "$with" && [ "$(get choices.0.message.content)" = null ] && [ "$(get choices.0.message.tool_calls.0.function.arguments)" = '{"x":2}' ] && [ "$(get choices.0.finish_reason)" = tool_calls ] && call "$with,\"stream\":true" && streamed | grep -q '"arguments":"{\\"x\\":2}"' && ! streamed | grep -q '"content":"[^"]'
ok a_call_without_tags
call ',"tools":[{"type":"function","function":{"name":"g"}}]' && [ "$(get choices.0.message.content)" = '{"name":"f","parameters":{"x":2}}' ] && [ "$(get choices.0.finish_reason)" = stop ]
ok json_that_names_no_tool_is_text
# ---- JSON ----
# A model that knows no JSON writes objects: any that end are JSON for the parser of json_tool, those that do not begin so.
objects=0
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do
    ask POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],\"response_format\":{\"type\":\"json_object\"},\"temperature\":1.5,\"seed\":$seed,\"max_tokens\":400}" && [ "$code" = 200 ] || break
    get choices.0.message.content | tr '\n' ' ' >"$dir/object.json" # a string has no newline, nor does a number
    [ "$(tr -d ' \t\r' <"$dir/object.json" | head -c 1)" = '{' ] || break
    if [ "$(get choices.0.finish_reason)" = stop ]; then
        "$json" "$dir/object.json" nothing >/dev/null 2>"$dir/why" # our parser wants more: no key twice, no \u0000
        [ $? -eq 2 ] || grep -q 'occurs twice\|u0000' "$dir/why" || break
        objects=$((objects + 1))
    fi
done
[ "$code" = 200 ] && [ "$seed" -eq 12 ] && [ "$objects" -ge 1 ]
ok "json_objects ($objects of 12 ended)"
complete '"temperature":0,"response_format":{"type":"text"}' && plain=$(get choices.0.text) && complete '"temperature":0' && [ "$(get choices.0.text)" = "$plain" ] &&
    complete '"temperature":0,"response_format":{"type":"json_object"}' && get choices.0.text | grep -q '^[[:space:]]*{' && complete '"temperature":0,"stream":true,"response_format":{"type":"json_object"}' && streamed | sed -n '1s/.*"text":"\([^"\\]*\).*/\1/p' | grep -q '^[[:space:]]*{\|^[[:space:]]*$'
ok json_of_completions
back
start --template chatml

# ---- refusals ----
refused() { # NAME STATUS TEXT METHOD PATH BODY
    name=$1 want=$2 text=$3
    shift 3
    ask "$@" && [ "$code" = "$want" ] && grep -q '"error":{"message":"' "$dir/answer.json" && grep -q "$text" "$dir/answer.json"
    ok "refused_$name"
}
refused path 404 'no such path' GET /v1/nothing
refused method 405 'takes POST' GET /v1/completions
refused json 400 'body:[0-9]*:' POST /v1/completions '{"prompt":'
refused list 400 'must be a JSON object' POST /v1/completions '[]'
refused no_prompt 400 'prompt is missing' POST /v1/completions '{}'
refused type 400 'prompt is neither' POST /v1/completions '{"prompt":{"a":1}}'
refused id 400 'not in the vocabulary' POST /v1/completions '{"prompt":[99999]}'
refused empty 400 'prompt is empty' POST /v1/completions '{"prompt":[[]]}'
refused temperature 400 'temperature must be a number from 0 to 100' POST /v1/completions '{"prompt":"a","temperature":-1}'
refused n 400 'n must be an integer from 1 to 128' POST /v1/completions '{"prompt":"a","n":1000000}'
for key in '"guided_json":{"a":1}' '"typical_p":0.5' '"best":2' '"continue_final_message":true' '"suffix":"b"' '"echo":true'; do
    name=${key%%:*}
    refused "key_$(echo "$name" | tr -d '"')" 400 "$(echo "$name" | tr -d '"') is not supported" POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],$key}"
done
refused penalty 400 'frequency_penalty ' POST /v1/completions '{"prompt":"a","frequency_penalty":2.5}'
refused bias_list 400 'logit_bias must be' POST /v1/completions '{"prompt":"a","logit_bias":[1]}'
refused bias_id 400 'logit_bias: .*262.* must be a token id from 0 to 261' POST /v1/completions '{"prompt":"a","logit_bias":{"262":1}}'
refused bias_value 400 'logit_bias: the value of 7 must be a number from -100 to 100' POST /v1/completions '{"prompt":"a","logit_bias":{"7":101}}'
refused stop_ids 400 'stop_token_ids: element 1 must be' POST /v1/completions '{"prompt":"a","stop_token_ids":[1,-1]}'
refused min_tokens 400 'min_tokens is more than max_tokens' POST /v1/completions '{"prompt":"a","min_tokens":5,"max_tokens":4}'
refused usage 400 'stream_options must be an object' POST /v1/completions '{"prompt":"a","stream":true,"stream_options":5}'
refused other_model 404 'there is only .*run' POST /v1/completions '{"prompt":"a","model":"gpt"}'
ask POST /v1/completions '{"prompt":"a","model":"default","max_tokens":1}' && [ "$code" = 200 ] && [ "$(get model)" = run ]
ok placeholder_of_a_model
refused model_type 400 'there is only .*run' POST /v1/completions '{"prompt":"a","model":1}'
refused model_path 404 'no such model' GET /v1/models/gpt
refused tools 400 'chat template does not use them' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]}'
refused tools_of_a_text 400 'tools is not supported' POST /v1/completions '{"prompt":"a","tools":[{}]}'
refused tools_list 400 'tools must be a list of tools' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"tools":{"a":1}}'
refused tools_objects 400 'tools: element 1 must be an object' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"tools":[{},3]}'
refused tool_choice 400 'tool_choice is not supported, but' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"tools":[{}],"tool_choice":"required"}'
refused format 400 'response_format is not supported, but' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema"}}'
refused kwargs 400 'chat_template_kwargs must be an object' POST /v1/chat/completions '{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[1]}'
refused messages 400 'messages must be a list' POST /v1/chat/completions '{"messages":"x"}'
refused picture 400 'part 0 of the content must be text' POST /v1/chat/completions '{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}'
refused long 400 'the context holds 2048' POST /v1/completions "{\"prompt\":\"$(printf '%03000d' 7)\"}"
refused tokenize_both 400 'exclude each other' POST /tokenize '{"prompt":"a","messages":[{"role":"user","content":"a"}]}'
refused tokenize_nothing 400 'prompt must be text' POST /tokenize '{}'
refused tokenize_key 400 'chat_template is not supported' POST /tokenize '{"messages":[{"role":"user","content":"a"}],"chat_template":"x"}'
refused tokenize_model 404 'there is only .*run' POST /tokenize '{"prompt":"a","model":"gpt"}'
refused tokenize_flag 400 'return_token_strs must be true or false' POST /tokenize '{"prompt":"a","return_token_strs":1}'
refused detokenize_key 400 'prompt is not supported' POST /detokenize '{"tokens":[1],"prompt":"a"}'
refused token 400 'element 1 must be a token id' POST /detokenize '{"tokens":[1,-1]}'

# ---- rude clients ----
printf 'GET / HTTP/1.1\r\nbad\r\n\r\n' | "$http" "$port" raw | grep -q '^HTTP/1.1 400 '
ok a_broken_head
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n' | "$http" "$port" raw | grep -q '^HTTP/1.1 413 '
ok a_body_that_is_too_long
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n' | "$http" "$port" raw >"$dir/answer" && [ "$(grep -c '^HTTP/1.1 200 ' "$dir/answer")" -eq 2 ] && grep -q '^HTTP/1.1 404 ' "$dir/answer"
ok requests_one_behind_the_other
# A file as the body, which may be longer than an argument.
post() { # PATH FILE HEADER…: the answer goes to answer
    path=$1 file=$2
    shift 2
    { printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n' "$path"; for h in "$@"; do printf '%s\r\n' "$h"; done; printf '\r\n'; cat "$file"; } | "$http" "$port" raw >"$dir/answer"
}
body() { printf '%s' "$1" >"$dir/body"; }
sized() { post "$1" "$dir/body" "Content-Length: $(wc -c <"$dir/body")"; } # PATH
answered() { grep -q "^HTTP/1.1 $1 " "$dir/answer" && grep -q "$2" "$dir/answer"; }
body '{"prompt":"line 7","max_tokens":2,"temperature":0}' && { printf '5\r\n' && head -c 5 "$dir/body" && printf '\r\n2d;x=y\r\n' && tail -c +6 "$dir/body" && printf '\r\n0\r\nX: y\r\n\r\n'; } >"$dir/chunks" &&
    post /v1/completions "$dir/chunks" 'Transfer-Encoding: chunked' && answered 200 '"completion_tokens":2'
ok a_body_in_chunks
{ printf '{"prompt":"a","user":[0'; yes ,0 | head -n 1100000 | tr -d '\n'; printf ']}'; } >"$dir/body" && sized /v1/completions && answered 413 'too many values'
ok a_body_of_many_values
{ printf '{"prompt":"'; head -c 60000 /dev/zero | tr '\0' a; printf '","messages":[{"role":"user","content":"'; head -c 60000 /dev/zero | tr '\0' a; printf '"}]}'; } >"$dir/body" &&
    sized /v1/completions && answered 400 'prompt: a text of 60000 bytes' && sized /v1/chat/completions && answered 400 'messages: a text of 600[0-9]* bytes' && sized /tokenize && answered 400 'exclude each other' &&
    sed -i 's/,"messages.*/}/' "$dir/body" && sized /tokenize && answered 200 '"count":60001'
ok a_text_beyond_the_context_is_not_tokenized
{ printf '{"prompt":[1'; yes ,1 | head -n 5000 | tr -d '\n'; printf ']}'; } >"$dir/body" && sized /v1/completions && answered 400 'has 5001 tokens, but the context holds 2048'
ok ids_beyond_the_context
body '{"prompt":"line 7","max_tokens":2,"stream":true}'
{ printf 'POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' "$(wc -c <"$dir/body")"; cat "$dir/body"; } | "$http" "$port" raw >"$dir/answer" && answered 200 '^data: \[DONE\]' && ! grep -qi '^transfer-encoding\|^[0-9a-f][0-9a-f]*.$' "$dir/answer"
ok a_stream_to_http_1_0_has_no_chunks
raw() { printf "$1" | "$http" "$port" raw >"$dir/answer"; } # a format
raw 'HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' && answered 200 '^Content-Length: [1-9]' && [ "$(tail -c 2 "$dir/answer" | od -An -tx1 | tr -d ' ')" = 0d0a ] && ! grep -q '{' "$dir/answer" &&
    raw 'OPTIONS /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' && answered 204 '^Allow: POST, OPTIONS'
ok head_and_options
raw 'GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n' && answered 403 'Host is not this machine' && raw 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n' && answered 403 'pages of this origin may not ask'
ok strangers_may_not_ask
# Each asks for 256,000 tokens. If they were made for nobody, the answer after them would come in an hour.
made() { ask GET /metrics && sed -n 's/^[a-z_:]*generated_tokens_total\({.*}\)\{0,1\} //p' "$dir/answer.json"; }
before=$(made)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do "$http" "$port" leave POST /v1/completions '{"prompt":"line 7","max_tokens":2000,"n":128,"stream":true}'; done
complete '"temperature":0' && [ "$code" = 200 ] && made=$(($(made) - before)) && [ "$made" -ge 24 ] && [ "$made" -lt 256000 ]
ok who_goes_takes_the_request_along
end
[ $? -eq 0 ]
ok ends_at_a_signal

# ---- keys and limits ----
ttrun serve --checkpoint "$dir/run" --host 0.0.0.0 --port 0 >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && grep -q 'other machines would reach the model without a key' "$dir/err"
ok other_machines_need_a_key
TTRUN_API_KEY=secret start --name mine --context 64 --batch 2 --queue 3
ok listens_with_a_key
refused no_key 401 'the key is missing or wrong' GET /v1/models
refused wrong_key 401 'the key is missing or wrong' GET /v1/models '' 'Authorization: Bearer secre'
ask GET /v1/models '' 'Authorization: Bearer secret' && [ "$code" = 200 ] && [ "$(get data.0.id)" = mine ] && ask GET /health && [ "$code" = 200 ]
ok the_key
refused queue 503 'too many texts wait' POST /v1/completions '{"prompt":"line","n":4}' 'Authorization: Bearer secret'
ask POST /v1/completions '{"prompt":"line","max_tokens":59,"temperature":0}' 'Authorization: Bearer secret' && [ "$(get choices.0.finish_reason)" = length ] && [ "$(get usage.total_tokens)" = 64 ]
ok a_text_fills_the_context
refused beyond 400 'the prompt has 5 tokens and max_tokens is 60, but the context holds 64' POST /v1/completions '{"prompt":"line","max_tokens":60}' 'Authorization: Bearer secret'
refused no_template 400 'no chat template' POST /v1/chat/completions '{"messages":[{"role":"user","content":"x"}]}' 'Authorization: Bearer secret'
end
TTRUN_API_KEY= start --name mine --api-key secret --allow-origin https://a.example
! tr '\0' ' ' <"/proc/$server/cmdline" | grep -q secret && grep -q 'TTRUN_API_KEY keeps the key' "$dir/serve.log"
ok the_key_is_not_in_the_list_of_processes
raw 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\nAuthorization: bearer secret\r\nConnection: close\r\n\r\n' && answered 200 '^Access-Control-Allow-Origin: https://a.example'
ok pages_of_an_allowed_origin
ttrun serve --checkpoint "$dir/run" --allow-origin a.example >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && grep -q 'or an origin such as' "$dir/err"
ok no_origin
other=$port
ttrun serve --checkpoint "$dir/run" --port "$other" >"$dir/out" 2>"$dir/err"
[ $? -ne 0 ] && grep -q "cannot listen at 127.0.0.1, port $other: Address already in use" "$dir/err"
ok a_port_that_is_taken
end

# ---- no memory ----
fat() { # PATH BEFORE REPEATED TIMES AFTER: sends that body
    awk -v a="$2" -v b="$3" -v n="$4" -v c="$5" 'BEGIN {printf "%s", a; while (n--) printf "%s", b; printf "%s", c}' >"$dir/fat"
    { printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n' "$1" "$(wc -c <"$dir/fat")" && cat "$dir/fat"; } | "$http" "$port" raw >"$dir/answer"
    head -n 1 "$dir/answer" | grep -q ' 500 ' && grep -q 'out of memory' "$dir/answer"
}
user='{"messages":[{"role":"user","content":"'
case $BUILD in
*/asan | */tsan) skip no_memory_for_a_request "a sanitizer needs more address space than ulimit -v leaves" ;;
*)
    export MALLOC_ARENA_MAX=1 # by chance, a thread may take 64 MiB of addresses
    start --template chatml
    most=$(($(sed -n 's/^VmSize:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$server/status") + 60000))
    end
    start --template chatml
    ok listens_with_little_memory
    fat /v1/completions '{"prompt":"line","x":[0' ',0' 1040000 ']}' && fat /v1/chat/completions "$user"'x"}],"chat_template_kwargs":{"x":[0' ',0' 1040000 ']}}' &&
        fat /v1/chat/completions "$user" 'line 3 ' 2300000 '"}]}' && fat /tokenize '{"prompt":"x","x":[0' ',0' 1040000 ']}' &&
        ask POST /v1/completions '{"prompt":"line 7","max_tokens":24,"temperature":0}' && [ "$(get choices.0.text)" = "$greedy" ]
    ok no_memory_for_a_request_is_its_own_error
    end
    unset most MALLOC_ARENA_MAX
    ;;
esac

# ---- TLS ----
if ! command -v openssl >/dev/null || ! command -v curl >/dev/null || ! ldconfig -p 2>/dev/null | grep -q libevent_openssl-2.1; then
    skip tls "no openssl, curl or libevent_openssl here"
    exit $failed
fi
new_pair() { # NAME OPTION…
    name=$1
    shift
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -keyout "$dir/$name.key" -out "$dir/$name.pem" -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost "$@" 2>>"$dir/err"
}
new_pair own -nodes && new_pair other -nodes && new_pair locked -passout pass:secret && chmod 600 "$dir"/*.key && cp "$dir/own.key" "$dir/open.key" && chmod 604 "$dir/open.key" && echo text >"$dir/text.pem"
text_of_line='{"prompt":"line 7 of","max_tokens":24,"temperature":0}'
# this server's port is taken, so that a pair that is not refused ends there
start && ask POST /v1/completions "$text_of_line" && plain=$(get choices.0.text) && [ -n "$plain" ]
while IFS='|' read -r name options want; do
    (cd "$dir" && ttrun serve --checkpoint run --port "$port" $options >out 2>err)
    [ $? -eq 2 ] && one_line "$dir/err" && grep -q -- "$want" "$dir/err"
    ok "tls_refuses_$name"
done <<'END'
no_key|--tls-cert own.pem|belong together: --tls-key is missing
no_certificate|--tls-key own.key|belong together: --tls-cert is missing
a_key_that_others_read|--tls-cert own.pem --tls-key open.key|--tls-key open.key: every user of this machine may read or write it (mode 604)
an_absent_file|--tls-cert none.pem --tls-key own.key|--tls-cert none.pem: No such file
no_pem|--tls-cert text.pem --tls-key own.key|--tls-cert text.pem: .*a PEM file
another_key|--tls-cert own.pem --tls-key other.key|--tls-key other.key: .*mismatch
a_passphrase|--tls-cert locked.pem --tls-key locked.key|--tls-key locked.key: .*without a passphrase
END
tls() { # PATH OPTION…
    path=$1
    shift
    curl -sS --noproxy '*' --cacert "$dir/own.pem" -H 'Content-Type: application/json' "$@" "https://localhost:$port$path" >"$dir/answer.json" 2>>"$dir/err"
}
end
start --tls-cert "$dir/own.pem" --tls-key "$dir/own.key" && grep -q 'run at https://127.0.0.1:' "$dir/serve.log" && tls /v1/completions -d "$text_of_line" && [ "$(get choices.0.text)" = "$plain" ]
ok tls_answers_as_without
tls /v1/completions -N -d "{\"stream\":true,${text_of_line#?}" && [ "$(grep -c '^data: {' "$dir/answer.json")" -gt 9 ] && grep -q '^data: \[DONE\]' "$dir/answer.json"
ok tls_streams
head -c 300001 /dev/zero | tr '\0' a >"$dir/long" && { printf '{"prompt":"' && cat "$dir/long" && printf '"}'; } >"$dir/body" && tls /tokenize --data-binary "@$dir/body" -H 'Connection: close' && [ "$(get count)" = 300002 ]
ok tls_takes_a_long_body
tls /health --tls-max 1.2 && [ "$(get status)" = ok ] && ! tls /health --tls-max 1.1 && ! curl -sS --noproxy '*' "http://localhost:$port/health" >"$dir/out" 2>>"$dir/err" && tls /health && [ "$(get status)" = ok ]
ok tls_1_2_at_least
curl -sS --noproxy '*' "https://localhost:$port/health" >"$dir/out" 2>>"$dir/err"
[ $? -eq 60 ] && tls /v1/models -H "Origin: https://localhost:$port" && [ "$(get data.0.id)" = run ]
ok tls_has_origins_of_https
end
exit $failed
