#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun serve does not compute again what a prompt begins with and the cache has: the answers are those of a server that computes all, to the bit
# where products do not depend on the number of rows, with few slots and many, one after the other and side by side; what was not computed is counted.
. "$(dirname "$0")/lib.sh"
http=$BUILD/tests/run/http_tool
servers=
trap 'for p in $servers; do kill $p 2>/dev/null; done; rm -rf "$dir"' EXIT
listens_or_ended() { grep -q ' at http' "$dir/serve.log" || ! kill -0 "$server"; }
start() { # RUN OPTION…: sets port and server
    run=$1
    shift
    : >"$dir/serve.log" # not the line of the server before
    "$TTRUN" serve --checkpoint "$dir/$run" --port 0 --template chatml "$@" >"$dir/serve.log" 2>&1 &
    server=$!
    servers="$servers $server"
    until_true listens_or_ended
    port=$(sed -n 's|.* at http://[^ ]*:\([0-9]*\)/v1.*|\1|p' "$dir/serve.log")
    [ -n "$port" ]
}
end() { kill "$server" 2>/dev/null; wait "$server"; }
ask() { # METHOD PATH BODY: sets code; the body goes to answer.json
    "$http" "$port" "$@" >"$dir/answer" 2>>"$dir/err"
    code=$(head -n 1 "$dir/answer")
    tail -n +2 "$dir/answer" >"$dir/answer.json"
    [ "$code" = 200 ]
}
get() { "$json" "$dir/answer.json" "$1" 2>>"$dir/err"; }
cached() { get usage.prompt_tokens_details.cached_tokens; }
count() { ask GET /metrics && sed -n "s/^ttrun_serve_$1 //p" "$dir/answer.json"; }

shared='line 1 of a text that a small model can learn by heart, and then some more words of it, because'
bodies() { # a request a line: prompts that begin alike, go on with an answer, are a part of one before, have nothing in common
    for tail in ' one' ' one two' ' three' '' ' one two' ' four five six seven eight nine ten'; do
        echo "/v1/completions {\"prompt\":\"$shared$tail\",\"max_tokens\":9,\"temperature\":0,\"logprobs\":3}"
    done
    echo "/v1/completions {\"prompt\":\"$(echo "$shared" | cut -c 1-40)\",\"max_tokens\":40,\"temperature\":0,\"logprobs\":1}"
    echo "/v1/completions {\"prompt\":\"$shared two\",\"max_tokens\":6,\"temperature\":0.8,\"seed\":4,\"n\":3,\"logprobs\":0}"
    # one that goes on with all that a slot has, which a state that cannot go back needs
    echo "/v1/completions {\"prompt\":\"$shared\",\"max_tokens\":1,\"temperature\":0,\"logprobs\":1}"
    echo "/v1/completions {\"prompt\":\"$shared ten\",\"max_tokens\":7,\"temperature\":0,\"logprobs\":1}"
    echo '/v1/completions {"prompt":"zzz","max_tokens":5,"temperature":0,"logprobs":1}'
    echo "/v1/completions {\"prompt\":\"$shared one\",\"max_tokens\":2,\"temperature\":0,\"logprobs\":2,\"echo\":true}"
    # as lm-evaluation-harness scores the answers to a question
    for tail in ' seven' ' seven of them' ' eight' ' seven'; do
        echo "/v1/completions {\"prompt\":\"$shared$tail\",\"max_tokens\":1,\"temperature\":0,\"logprobs\":1,\"echo\":true}"
    done
    echo "/v1/completions {\"prompt\":\"$shared seven\",\"max_tokens\":4,\"temperature\":0,\"logprobs\":4,\"echo\":true}"
    echo "/v1/completions {\"prompt\":[\"$shared 8\",\"$shared 9\",\"$shared 8\"],\"max_tokens\":4,\"temperature\":0,\"logprobs\":1}"
    echo "/v1/completions {\"prompt\":\"$shared two\",\"max_tokens\":3,\"temperature\":0,\"echo\":true}"
    turns='{"role":"system","content":"line by line"},{"role":"user","content":"line 3"}'
    echo "/v1/chat/completions {\"messages\":[$turns],\"temperature\":0,\"max_tokens\":8,\"logprobs\":true}"
    echo "/v1/chat/completions {\"messages\":[$turns,{\"role\":\"assistant\",\"content\":\"of a text\"},{\"role\":\"user\",\"content\":\"line 4\"}],\"temperature\":0,\"max_tokens\":8,\"logprobs\":true}"
}
bodies >"$dir/bodies"
talk() { # FILE: all requests, one after the other; what the answers say
    : >"$1"
    while read -r path body; do
        ask POST "$path" "$body" || return 1
        sed 's/^{"id":"[^"]*"//; s/"created":[0-9]*//; s/,"prompt_tokens_details":{[^}]*}//' "$dir/answer.json" >>"$1"
    done <"$dir/bodies"
}
numbers() { grep -o -- '-[0-9][0-9.e-]*' "$1"; }
alike() { # FILE FILE: all words, and the numbers to rounding
    sed 's/-[0-9][0-9.e-]*/#/g' "$1" >"$dir/a" && sed 's/-[0-9][0-9.e-]*/#/g' "$2" >"$dir/b" && cmp -s "$dir/a" "$dir/b" && numbers "$1" >"$dir/a" && numbers "$2" >"$dir/b" &&
        paste "$dir/a" "$dir/b" | awk '{d = $1 - $2; if ((d < 0 ? -d : d) > 1e-3) exit 1}'
}
own="--backend.blas own --backend.f32_products fma --backend.threads 1" # products that give a row the same bits for any number of rows
train "$dir/run" $own --training.steps 60 --training.seq_len 64 --checkpoint.interval 1000 && [ "$rc" -eq 0 ]
ok there_is_a_model

start run --no-prefix-cache && talk "$dir/whole" && [ "$(count cached_tokens_total)" = 0 ] && [ "$(grep -c '"choices"' "$dir/whole")" -eq "$(wc -l <"$dir/bodies")" ]
ok a_server_that_computes_all
end
start run && ask POST /v1/completions "{\"prompt\":\"$shared\",\"max_tokens\":5,\"temperature\":0}" && [ "$(cached)" = 0 ] && n=$(get usage.prompt_tokens) &&
    text=$(get choices.0.text) && ask POST /v1/completions "{\"prompt\":\"$shared\",\"max_tokens\":5,\"temperature\":0}" && [ "$(get usage.prompt_tokens)" = "$n" ] && [ "$(cached)" = $((n - 1)) ] && [ "$(get choices.0.text)" = "$text" ]
ok the_same_prompt_is_computed_but_for_its_last_token
# the answer's tokens, too, but the last one, which was not computed on
ask POST /v1/completions "{\"prompt\":\"$shared$text and\",\"max_tokens\":5}" && [ "$(cached)" = $((n + 4)) ]
ok a_prompt_that_goes_on_with_the_answer
ask POST /v1/completions "{\"prompt\":\"${shared}x\",\"max_tokens\":5}" && [ "$(cached)" -ge $((n)) ] && ask POST /v1/completions '{"prompt":"Zzz","max_tokens":1}' && [ "$(cached)" = 1 ] # the token that begins all
ok a_prompt_that_begins_alike
ask POST /v1/completions "{\"prompt\":\"$shared\",\"max_tokens\":1,\"logprobs\":1,\"echo\":true}" && [ "$(cached)" = 0 ]
ok logprobs_that_nobody_asked_for_are_not_known
score() { ask POST /v1/completions "{\"prompt\":\"$1\",\"max_tokens\":1,\"logprobs\":$2,\"echo\":true}" && cached; }
[ "$(score "$shared" 1)" = $((n - 1)) ] && [ "$(score "${shared} answer" 1)" = $((n - 1)) ] && [ "$(score "${shared} another" 0)" = $((n + 2)) ] && [ "$(score "$shared" 2)" = 0 ]
ok logprobs_that_are_known_are_told_again
ask POST /v1/completions '{"prompt":"Some words","max_tokens":2,"n":4}' && [ "$(cached)" = 1 ] && [ "$(get usage.prompt_tokens)" = 11 ]
ok prompts_are_counted_once_with_n
before=$(count cached_tokens_total) all=$(count prompt_tokens_total) made=$(count generated_tokens_total)
ask POST /v1/completions "{\"prompt\":\"$shared\",\"max_tokens\":3,\"temperature\":0}" && [ "$(count cached_tokens_total)" = $((before + n - 1)) ] && [ "$(count prompt_tokens_total)" = $((all + n)) ] && [ "$(count generated_tokens_total)" = $((made + 3)) ] &&
    [ "$(count texts_running)" = 0 ] && [ "$(count texts_waiting)" = 0 ]
ok metrics
# what others have asked, with another salt, is not told
secret() { ask POST /v1/completions "{\"prompt\":\"the launch code is $1\",\"max_tokens\":1$2}" && [ "$code" = 200 ] && cached; }
end; start run
[ "$(secret 4711 '') $(secret 4711 '')" = '0 23' ] && [ "$(secret 4711 ',"cache_salt":"a"') $(secret 4711 ',"cache_salt":"a"') $(secret 4711 ',"cache_salt":"b"') $(secret 4711 '')" = '0 23 0 23' ]
ok salts_share_nothing
end; start run --salted-prefix-cache
[ "$(secret 4711 '') $(secret 4711 '') $(secret 4711 ',"n":3')" = '0 0 0' ] && [ "$(secret 4711 ',"cache_salt":"a"') $(secret 4711 ',"cache_salt":"a"')" = '0 23' ]
ok without_a_salt_a_request_is_alone
end

for slots in 1 2 16; do
    start run --batch $slots && talk "$dir/first" && talk "$dir/second" && cmp "$dir/whole" "$dir/first" && cmp "$dir/whole" "$dir/second" && [ "$(count cached_tokens_total)" -gt 500 ]
    ok "bitwise_with_${slots}_slots: $(count cached_tokens_total) of $(count prompt_tokens_total) tokens"
    end
done
start run --batch 3 # copies from slots at work
pids= k=0
while read -r path body; do
    k=$((k + 1))
    "$http" "$port" POST "$path" "$body" >"$dir/side$k" &
    pids="$pids $!"
done <"$dir/bodies"
# shellcheck disable=SC2086
wait $pids
for i in $(seq $k); do tail -n +2 "$dir/side$i"; done | sed 's/^{"id":"[^"]*"//; s/"created":[0-9]*//; s/,"prompt_tokens_details":{[^}]*}//' >"$dir/beside"
cmp "$dir/whole" "$dir/beside" && [ "$(count cached_tokens_total)" -gt 300 ]
ok "bitwise_side_by_side: $(count cached_tokens_total) of $(count prompt_tokens_total) tokens"
end

# What a text is kept as: windows, latent vectors and keys of heads, chunks, and states that cannot go back.
model() { # NAME HOW SPEC ARGS OPTION…
    name=$1 how=$2 spec=$3 args=$4
    shift 4
    sed "s/\"llama3\"/\"$spec\"/; s/\"flavor\": \"debugmodel\",//; s/\"args\": {[^}]*}/\"args\": {$args, \"vocab_size\": 263}/" "$dir/job.json" >"$dir/$name.json"
    job=$dir/$name.json
    train "$dir/$name" $own --training.steps 8 --checkpoint.interval 1000 && [ "$rc" -eq 0 ] && start "$name" --no-prefix-cache "$@" && talk "$dir/whole" && end
    start "$name" --batch 3 "$@" && talk "$dir/first" && talk "$dir/second" && $how "$dir/whole" "$dir/first" && $how "$dir/whole" "$dir/second" && [ "$(count cached_tokens_total)" -gt 100 ]
    ok "$name: $(count cached_tokens_total) of $(count prompt_tokens_total) tokens"
    end
}
rows='"dim": 40, "n_layers": 3, "n_heads": 4, "hidden_dim": 31'
model windows cmp gemma3 "$rows, \"n_kv_heads\": 2, \"head_dim\": 12, \"sliding_window\": 21, \"sliding_window_pattern\": 2"
mla="$rows, \"kv_lora_rank\": 20, \"qk_nope_head_dim\": 10, \"qk_rope_head_dim\": 6, \"v_head_dim\": 10, \"num_experts\": 8, \"num_experts_per_tok\": 3, \"n_group\": 4, \"topk_group\": 2, \"moe_intermediate_size\": 13, \"topk_method\": \"noaux_tc\", \"rope_scaling\": null"
model heads cmp deepseek_v3 "$mla" --cache heads
model latent alike deepseek_v3 "$mla" --cache latent
model chunks cmp llama4 "$rows, \"n_kv_heads\": 2, \"head_dim\": 12, \"num_experts\": 6, \"moe_intermediate_size\": 13, \"attention_chunk_size\": 21"
model states cmp qwen3_next "$rows, \"n_kv_heads\": 2, \"head_dim\": 16, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, \"linear_key_head_dim\": 10, \"linear_value_head_dim\": 7, \"num_experts\": 7, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 13"
exit $failed
