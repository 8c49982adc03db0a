#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A text's tokens are those that transformers has, whoever writes it: tests/golden/serve.json, by serve_golden.py. What begins a text, what ends it and
# what its tokens are called and score, in serve (whole and as a stream, with the prompt or without), generate, chat and eval; how long a text may be.
. "$(dirname "$0")/lib.sh"
golden=$SRC/tests/golden/serve.json tool=$BUILD/tests/run/golden_tool http=$BUILD/tests/run/http_tool
server=
trap 'kill $server 2>/dev/null; rm -rf "$dir"' EXIT
listens_or_ended() { grep -q ' at http' "$dir/log" || ! kill -0 "$server"; }
of() { "$json" "$golden" "cases.$i.$1"; }
ask() { # METHOD PATH [BODY]: sets code; the body goes to answer.json
    "$http" "$port" "$@" >"$dir/answer"
    code=$(head -n 1 "$dir/answer")
    tail -n +2 "$dir/answer" >"$dir/answer.json"
}
get() { "$json" "$dir/answer.json" "$1"; }
for i in 0 1 2; do
    name=$(of name) model=$dir/$(of name)
    "$tool" "$golden" $i write "$model"
    : >"$dir/log"
    "$TTRUN" serve "$model" --plugin-dir "$PLUGINS" --port 0 >"$dir/log" 2>&1 &
    server=$!
    until_true listens_or_ended
    port=$(sed -n 's|.* at http://[^ ]*:\([0-9]*\)/v1.*|\1|p' "$dir/log")
    [ -n "$port" ] && "$tool" "$golden" $i ask "$port"
    ok "${name}_serve"
    # how long a text may be: config.json says it, with RoPE scaling
    context=$(of context) ids=7
    while [ ${#ids} -lt $((2 * context - 3)) ]; do ids="$ids,7"; done
    ask GET /v1/models && [ "$(get data.0.max_model_len)" = "$context" ] &&
        ask POST /v1/completions "{\"prompt\":[$ids],\"max_tokens\":1}" && [ "$code" = 200 ] && [ "$(get usage.prompt_tokens)" = $((context - 1)) ] &&
        ask POST /v1/completions "{\"prompt\":[$ids,7],\"max_tokens\":0,\"echo\":true}" && [ "$code" = 200 ]
    ok "${name}_context"
    ask POST /v1/completions "{\"prompt\":[$ids],\"max_tokens\":2}" && [ "$code" = 400 ] && grep -q "the prompt has $((context - 1)) tokens and max_tokens is 2, but the context holds $context: shorten" "$dir/answer.json" &&
        ask POST /v1/completions "{\"prompt\":[$ids,7]}" && [ "$code" = 400 ] && grep -q "as many as the context holds: shorten it" "$dir/answer.json" &&
        ask POST /v1/completions "{\"prompt\":[$ids]}" && [ "$code" = 200 ] && [ "$(get usage.completion_tokens)" = 1 ]
    ok "${name}_beyond_the_context"
    kill $server && wait $server
    for k in 0 1; do
        prompt=$(of generate.$k.prompt) text=$(of generate.$k.text)
        ttrun generate "$model" --prompt "$prompt" --max-tokens 12 --temperature 0 >"$dir/out" 2>"$dir/err"
        [ "$(cat "$dir/out")" = "$prompt$text" ] && ttrun generate "$model" --prompt "$prompt" --max-tokens 12 --temperature 0 --json >"$dir/answer.json" 2>"$dir/err" &&
            [ "$(get text)" = "$text" ] && [ "$(get ids)" = "$(of generate.$k.ids)" ] && [ "$(get prompt_tokens)" = "$(of generate.$k.n)" ] && [ "$(get finish)" = stop ]
        ok "${name}_generate_$k"
    done
    [ "$(of chat.said | ttrun chat "$model" --temperature 0 --max-tokens 12 2>"$dir/err")" = "$(of chat.answer)" ]
    ok "${name}_chat"
    of eval.text | tr -d '\n' >"$dir/document.txt"
    ttrun eval "$model" --data "$dir/document.txt" --seq_len "$(of eval.seq_len)" --json >"$dir/answer.json" 2>"$dir/err" && near "$(get loss)" "$(of eval.loss)" 2e-4
    ok "${name}_eval"
done
exit $failed
