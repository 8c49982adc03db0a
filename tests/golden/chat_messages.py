# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/chat_messages.json: conversations as public data sets and OpenAI's clients have them, rendered by transformers, for
tests/chat/test_conversation.c, tests/plugins/test_chat_loader.c and tests/serve/test_requests.c: training and serving give the same texts. Needs
transformers 5.24: python tests/golden/chat_messages.py

transformers drops null keys (column MISSING: of a call without content what a template works with, where that fails), gives reasoning its names, and passes tools and documents as None. Before it, what vLLM does
(entrypoints/chat_utils.py): arguments that are JSON text become objects, unless the template prints them as they are (column TEXT), and a
content of parts becomes a text, unless the template goes over the parts (column LISTS); parts are joined without a character between.
Messages, tools and kwargs are JSON in texts, since readers of JSON differ in numbers."""
import json, os
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = "{% for m in messages %}{{ m.role }}:{% for c in m.tool_calls or [] %}"
# name: (template, LISTS, TEXT[, MISSING])
TEMPLATES = {
    "plain": ("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", False, False),
    "trimmed": ("{% for m in messages %}{% set content = m['content'] | trim %}{{ m.role }}:{{ content }};{% endfor %}", False, False),
    "keys": ("{% for m in messages %}{{ m.keys() | list }}{% if 'tool_calls' in m %}{{ m.tool_calls | length }}{% else %}{{ m.content }}{% endif %};{% endfor %}", False, False),
    "strings": ("{% for m in messages %}{% set c = m.content if m.content is string else '' %}{{ m.role }}:{{ c }};{% endfor %}", False, False),
    "parts": ("{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'text' %}<{{ p.text }}>{% endif %}{% endfor %}{% endif %};{% endfor %}", True, False),
    "macro": ("{% macro show(content) %}{% if content is string %}{{ content }}{% else %}{% for p in content %}({{ p['text'] }}){% endfor %}{% endif %}{% endmacro %}{% for m in messages %}{{ m.role }}:{{ show(m.content) }};{% endfor %}", True, False),
    "chosen": ("{% for m in messages %}{% set body = m['content'] %}{{ m.role }}:{% if body is string %}{{ body }}{% else %}{{ body | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('+') }}{% endif %};{% endfor %}", True, False),
    "first": ("{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %};{% endfor %}", True, False),
    "split": ("{% for m in messages %}{{ m.role }}:{% for line in m.content.split('\\n') %}{{ line }}|{% endfor %}{% endfor %}", False, False),
    "hermes": (CALLS + "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{{ m.content }};{% endfor %}", False, False),
    "llama": (CALLS + '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% endfor %};{% endfor %}', False, False),
    "qwen": (CALLS + "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}{% endfor %};{% endfor %}", False, False),
    "coder": (CALLS + "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}{% endfor %};{% endfor %}", False, False),
    "deepseek": (CALLS + "{{ c['type'] + '```json\\n' + c['function']['arguments'] + '\\n```' }}{% endfor %};{% endfor %}", False, True),
    "printed": (CALLS + "{{ c.function.name }}({{ c.function.arguments }}){% endfor %};{% endfor %}", False, True),
    "none": ("{% for m in messages %}{% if m['content'] is none %}{% for c in m['tool_calls'] %}{{ c['function']['name'] + '\\n' + c['function']['arguments'] }}{% endfor %}{% else %}{{ m.role + ':' + m['content'] }};{% endif %}{% endfor %}", False, True, None),
    "joined": ("{% for m in messages %}{{ m.role + ':' + m['content'] }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %};{% endfor %}", False, False, ""),
    "self": ("{% for m in messages %}{{ self.SYSTEM }}{{ m.content }};{% endfor %}", False, False),
    "thinking": ("{% for m in messages %}{{ m.role }}:{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.keys() | list }};{% endfor %}", False, False),
    "tools": ("{% if tools is none %}none{% else %}{{ tools | tojson }}{% endif %}{{ documents is none }}{{ extra }}{% for m in messages %}{{ m.content }};{% endfor %}", False, False),
    "flat": ("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.name }}{{ c.arguments | tojson }}{% endfor %}{% if m.function_call %}{{ m.function_call.arguments | tojson }}{% endif %};{% endfor %}", False, False),
}


def call(arguments, **more):
    return {"type": "function", "id": "abcdefghi", "function": {"name": "f", "arguments": arguments}, **more}


ARGUMENTS = '{"city": "Zürich", "n": 1.0, "big": 12345678901234567890, "null": null}'
USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
TALKS = {
    "nulls": [{**USER, "tool_calls": None, "name": None}, {**ANSWER, "tool_calls": None, "reasoning_content": None}],
    "no_content": [USER, {"role": "assistant", "content": None, "tool_calls": [call({"a": 1})]}],
    "text_alone": [USER, {"role": "assistant", "tool_calls": [call('{"a": 1}')]}, {"role": "tool", "content": "r"}],
    "no_calls": [USER, {**ANSWER, "tool_calls": []}],
    "text": [USER, {"role": "assistant", "content": "", "tool_calls": [call(ARGUMENTS), call("{}"), call("not JSON"), call("[1]")]}],
    "mapping": [USER, {"role": "assistant", "content": "", "tool_calls": [call(json.loads(ARGUMENTS))]}],
    "empty": [USER, {"role": "assistant", "content": "", "tool_calls": [call("")]}],
    "part": [{"role": "user", "content": [{"type": "text", "text": "hä"}]}, ANSWER],
    "more": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]},
             {"role": "assistant", "content": [{"type": "text", "text": "c"}]}],
    "reasoning_content": [USER, {**ANSWER, "reasoning_content": "2+2"}],
    "thought": [USER, {**ANSWER, "thinking": "2+2"}, USER, {**ANSWER, "reasoning": "3"}],
    "both": [USER, {**ANSWER, "thinking": "t", "reasoning_content": "r", "reasoning": "x"}],
    "flat": [USER, {"role": "assistant", "content": "", "tool_calls": [{"name": "g", "arguments": ARGUMENTS}]},
             USER, {"role": "assistant", "content": "", "function_call": {"name": "g", "arguments": ARGUMENTS}}],
    "lines": [USER, {"role": "assistant", "content": "a\nb"}],
}
CASES = [(t, k) for t in ("plain", "trimmed", "keys", "strings", "parts") for k in ("nulls", "no_calls", "part", "more")]
CASES += [(t, k) for t in ("macro", "chosen", "first") for k in ("part", "more", "nulls")]
CASES += [(t, k) for t in ("hermes", "llama", "qwen") for k in ("no_content", "text", "mapping", "empty", "nulls")]
CASES += [("coder", k) for k in ("no_content", "mapping", "empty")] + [(t, k) for t in ("deepseek", "printed") for k in ("text", "mapping", "nulls")]
CASES += [(t, k) for t in ("none", "joined") for k in ("no_content", "text_alone", "nulls")] + [("self", "nulls")]
CASES += [("thinking", k) for k in ("reasoning_content", "thought", "both", "nulls")] + [("flat", "flat"), ("split", "lines"), ("keys", "no_content"), ("tools", "lines")]
TOOLS = [[], [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "number", "default": 1.0, "maximum": 1e5, "least": -1.5e-7, "enum": [12345678901234567890, -98765432109876543210, 3, 0.1], "null": None}}}}]]


def as_vllm(messages, lists, text):
    out = json.loads(json.dumps(messages))
    for m in out:
        if isinstance(m.get("content"), list) and not lists:
            m["content"] = "".join(p["text"] for p in m["content"])
        if m.get("tool_calls") == []:
            del m["tool_calls"]
        for c in (m.get("tool_calls") or []) + ([m["function_call"]] if "function_call" in m else []):
            f = c.get("function", c)
            if text and isinstance(f["arguments"], dict):
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=False)
            if not text and isinstance(f["arguments"], str):
                try:
                    parsed = json.loads(f["arguments"] or "{}")
                except ValueError:
                    parsed = None
                if isinstance(parsed, dict):
                    f["arguments"] = parsed
    return out


def render(name, messages, tools=None, **kwargs):
    template, lists, text, *missing = TEMPLATES[name]
    talk = _normalize_chat_messages(as_vllm(messages, lists, text))
    talk = [{**m, **({"content": missing[0]} if missing and "tool_calls" in m and "content" not in m else {})} for m in talk]
    return render_jinja_template([talk], tools=tools, chat_template=template, **kwargs)[0][0]


def main():
    cases = []

    def add(name, messages, tools=None, **kwargs):
        cases.append({"template": TEMPLATES[name][0], "messages": json.dumps(messages), "tools": json.dumps(tools) if tools is not None else None,
                      "kwargs": json.dumps(kwargs) if kwargs else None, "text": render(name, messages, tools, **kwargs)})

    for name, talk in CASES:
        add(name, TALKS[talk])
    for tools in TOOLS:
        add("tools", TALKS["lines"], tools)
        add("tools", TALKS["lines"], tools, extra={"a": 1.0, "b": None})
    with open(os.path.join(HERE, "chat_messages.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
