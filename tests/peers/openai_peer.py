# SPDX-License-Identifier: Apache-2.0
"""OpenAI's own client against `ttrun serve`: completions, chats, models, streams, errors; and what changes the choice of tokens
beside transformers' generate on the same folder.

usage: openai_peer.py [build folder]"""
import os
import sys
import tempfile

import openai
import torch
import transformers
import checks
import served
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
PROMPT = "A checkpoint is"
TOOLS = [{"type": "function", "function": {"name": "look", "description": "look something up", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}}]


def fails(kind, call):
    try:
        call()
    except kind as e:
        return bool(e.message)
    except openai.OpenAIError as e:
        print(type(e), e)
    return False


def numbers(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def completions(ours):
    def complete(**more):
        return ours.completions.create(**{"model": "ours", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **more})

    whole = complete()
    choice = whole.choices[0]
    check(whole.object == "text_completion" and whole.model == "ours" and choice.finish_reason in ("length", "stop"), "a completion")
    check(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens and whole.usage.completion_tokens <= 24, "usage")
    parts = list(complete(stream=True, stream_options={"include_usage": True}))
    check("".join(c.choices[0].text for c in parts if c.choices) == choice.text and numbers(parts[-1].usage) == numbers(whole.usage), "a stream has the same text and usage")
    two = complete(temperature=0.9, n=2, seed=7)
    check([c.index for c in two.choices] == [0, 1] and two.choices[0].text == complete(temperature=0.9, seed=7).choices[0].text, "n texts; a seed gives a text again")
    many = complete(prompt=[PROMPT, "The loss", [5, 6, 7]])
    check(len(many.choices) == 3 and many.choices[0].text == choice.text, "prompts as texts and ids")
    scored = complete(echo=True, logprobs=2, max_tokens=4).choices[0]
    check(scored.text.startswith(PROMPT) and len(scored.logprobs.tokens) == len(scored.logprobs.token_logprobs) == len(scored.logprobs.top_logprobs)
          and scored.logprobs.token_logprobs[0] is None and scored.logprobs.text_offset[0] == 0, "logprobs of prompt and text")
    word = choice.text[6:9]
    stopped = complete(stop=[word]).choices[0]
    check(stopped.text == choice.text[:choice.text.index(word)] and stopped.finish_reason == "stop", "a text that ends it")


def chats(ours):
    def chat(**more):
        return ours.chat.completions.create(**{"model": "ours", "messages": [{"role": "user", "content": "What is a rank?"}], "max_completion_tokens": 24, "temperature": 0, **more})

    whole = chat(logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    check(whole.object == "chat.completion" and choice.message.role == "assistant", "a chat")
    check(len(choice.logprobs.content) == whole.usage.completion_tokens and len(choice.logprobs.content[0].top_logprobs) == 2, "its logprobs")
    parts = list(chat(stream=True))
    check("".join(c.choices[0].delta.content or "" for c in parts) == choice.message.content and parts[-1].choices[0].finish_reason == choice.finish_reason, "a stream of it")
    with ours.chat.completions.stream(model="ours", messages=[{"role": "user", "content": "a"}], max_tokens=4) as s:
        check(any(e.type == "content.delta" for e in s), "the client's stream helper")
    text = chat(response_format={"type": "json_object"}, max_completion_tokens=200).choices[0].message.content
    check(text.lstrip().startswith("{"), "a JSON object")
    check(chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is a rank?"}]}]).choices[0].message.content == choice.message.content, "parts of a content")
    check(fails(openai.BadRequestError, lambda: chat(tools=TOOLS)), "tools that the template does not use are refused")


def errors(ours, url):
    def complete(**more):
        return ours.completions.create(**{"model": "ours", "prompt": PROMPT, "max_tokens": 4, **more})

    check([m.id for m in ours.models.list()] == ["ours"] and ours.models.retrieve("ours").object == "model", "models")
    check(fails(openai.NotFoundError, lambda: ours.models.retrieve("gpt-4")) and fails(openai.NotFoundError, lambda: complete(model="gpt-4")), "another model is not found")
    for key, value in {"temperature": -1, "n": 0, "frequency_penalty": 3, "logit_bias": {"a": 1}, "max_tokens": 100000, "suffix": "b"}.items():
        check(fails(openai.BadRequestError, lambda: complete(**{key: value})), f"{key} {value} is a bad request")
    check(fails(openai.BadRequestError, lambda: complete(extra_body={"guided_json": {}, "typical_p": 0.3})), "keys that are not known are bad requests")
    check(fails(openai.AuthenticationError, lambda: openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0).models.list()), "a wrong key")


def choices(ours, model, tokenizer):
    """Greedy texts under what changes logits."""
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    bias = {tokenizer(" rank", add_special_tokens=False).input_ids[0]: 4.0, tokenizer("the", add_special_tokens=False).input_ids[0]: -3.0}
    rows = [({}, {}), ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}), ({"repetition_penalty": 0.8}, {"repetition_penalty": 0.8}),
            ({"logit_bias": {str(k): v for k, v in bias.items()}}, {"sequence_bias": {(k,): v for k, v in bias.items()}}),
            ({"min_tokens": 24}, {"min_new_tokens": 24})]
    for ours_has, theirs_has in rows:
        with torch.no_grad():
            want = model.generate(ids, max_new_tokens=24, do_sample=False, **theirs_has)[0, ids.shape[1]:]
        text = ours.completions.create(model="ours", prompt=ids[0].tolist(), max_tokens=24, temperature=0, extra_body=ours_has).choices[0].text
        check(text == tokenizer.decode(want, skip_special_tokens=True), f"{ours_has or 'nothing'}: the greedy text is transformers'")


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        served.trained(BUILD, folder)
        os.environ["TTRUN_API_KEY"] = "a key"
        p, url = served.serve(BUILD, folder)
        try:
            ours = openai.OpenAI(base_url=f"{url}/v1", api_key="a key", max_retries=0)
            completions(ours)
            chats(ours)
            errors(ours, url)
            hf = f"{folder}/run/hf/latest"
            choices(ours, transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32), transformers.AutoTokenizer.from_pretrained(hf))
        finally:
            p.terminate()
            check(p.wait(10) == 0, "the server ends at a signal")
    sys.exit(checks.failed)


main()
