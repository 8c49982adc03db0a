# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/chat.json: templates and conversations rendered by jinja2 as transformers sets it up, for tests/chat/test_jinja.c.
The templates are ours, in the manner of those that models ship. Needs jinja2: python tests/golden/chat_golden.py"""
import json, os, random
import jinja2, jinja2.ext, jinja2.sandbox
from jinja2.ext import Extension

HERE = os.path.dirname(os.path.abspath(__file__))


class Generation(Extension):
    """{% generation %}: the text within is the assistant's. Its bytes are put between two marks, which are taken out afterwards."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return "\ue000" + caller() + "\ue001"


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def render(template, messages, prompt=False, bos="<s>", eos="</s>", variables=None):
    """{"text", "learned": byte ranges} or {"error": True}. Without tools and documents these are None, as in transformers."""
    given = {"tools": None, "documents": None, "bos_token": bos, "eos_token": eos, **(variables or {})}
    try:
        marked = environment().from_string(template).render(messages=messages, add_generation_prompt=prompt, **given)
    except Exception as e:
        return {"error": type(e).__name__}
    text, learned, at = b"", [], 0
    for part in marked.replace("\ue000", "\0\ue000").replace("\ue001", "\0\ue001").split("\0"):
        if part[:1] == "\ue000":
            learned.append([len(text), 0])
        elif part[:1] == "\ue001":
            learned[-1][1] = len(text)
        text += part.lstrip("\ue000\ue001").encode()
    return {"text": text.decode(), "learned": [x for x in learned if x[0] < x[1]]}


GEN = ("{% generation %}", "{% endgeneration %}")
# name: (template with @ and ^ where generation begins and ends, special tokens)
STYLES = {
    "headers": """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('unknown role ' ~ message.role) }}{% endif %}
    {{- '<|start|>' + message['role'] + '<|end|>\\n\\n' }}
    {%- if message.role == 'assistant' %}@{{- message['content'] | trim + '<|eot|>' }}^{% else %}{{- message['content'] | trim + '<|eot|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
""",
    "chatml": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n'}}{% if message.role == 'assistant' %}@{{ message['content'] + '<|im_end|>' }}^{{ '\\n' }}{% else %}{{ message['content'] + '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "instruct": """{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message.role == "user") != (loop.index0 % 2 == 0) %}{{- raise_exception("roles must alternate") }}{%- endif %}
    {%- if message.role == "user" %}
        {%- if system is defined and loop.last %}{{- "[INST] " + system + "\\n\\n" + message.content + "[/INST]" }}{%- else %}{{- "[INST] " + message.content + "[/INST]" }}{%- endif %}
    {%- elif message.role == "assistant" %}
        @{{- " " + message.content | trim + eos_token }}^
    {%- endif %}
{%- endfor %}""",
    "thinking": """{%- set ns = namespace(last=messages | length - 1, found=false) %}
{%- for m in messages[::-1] %}
    {%- set i = messages | length - 1 - loop.index0 %}
    {%- if not ns.found and m.role == "user" %}{%- set ns.found = true %}{%- set ns.last = i %}{%- endif %}
{%- endfor %}
{%- macro turn(role, text) -%}<|im_start|>{{ role }}{{ "\\n" }}{{ text }}<|im_end|>{{ "\\n" }}{%- endmacro %}
{%- if tools %}
    {{- "<|im_start|>system\\n# Tools\\n" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content if message.content is string else '' %}
        {%- set reasoning = message.reasoning_content if message.reasoning_content is defined and message.reasoning_content is not none else '' %}
        {%- if not reasoning and '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' }}@
        {%- if loop.index0 > ns.last %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- set call = call.function if call.function else call %}
                {{- '\\n<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
                {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>' }}^{{- '\\n' }}
    {%- else %}
        {{- turn(message.role, message.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
}
PLAIN = {k: v.replace("@", "").replace("^", "") for k, v in STYLES.items()}
MARKED = {k: v.replace("@", GEN[0]).replace("^", GEN[1]) for k, v in STYLES.items()}

EXPRESSIONS = r"""
{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1.5 + 1 }} {{ 1e3 }} {{ 10 / 5 }} {{ 0.1 + 0.2 }}
{{ 'a' ~ 1 ~ none ~ true ~ 2.0 }} {{ 'a' + 'b' * 3 }} {{ 1 ~ 2 * 3 }}
{{ [1, 'x', [2, "it's"], {'k': none}] }} {{ (1,) }} {{ (1, 2) }} {{ {} }} {{ {'a': 1, 2: 'b'} }}
{{ 1 < 2 <= 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ not 1 in [2, 3] }} {{ 'b' in 'abc' }} {{ 'k' in {'k': 1} }} {{ 3 not in (1, 2) }}
{{ 'yes' if 0 else 'no' }} {{ 'only' if false }} {{ none or 'x' }} {{ [] and 1 }} {{ 0 or '' or 'last' }}
{{ messages[0].content[1:3] }} {{ messages[-1]['role'] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[::2] }} {{ [1,2,3][1:] }} {{ [1,2,3][:-1] }} {{ 'äöü'[1] }} {{ 'äöü' | length }}
{{ '  x y ' | trim }}|{{ 'xxayy'.strip('xy') }}|{{ ' a'.lstrip() }}|{{ 'a '.rstrip() }}|{{ '\u00a0a\u3000'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ 'x\ny\n'.splitlines() }}
{{ 'Hello World'.upper() }} {{ 'HELLO' | lower }} {{ 'hello world' | title }} {{ 'hELLO' | capitalize }} {{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('x', 'lo')) }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 'hello'.find('l') }} {{ 'hello'.count('l') }} {{ 'a-b'.removeprefix('a') if false else 'n' }}
{{ [1, 2, 3] | join(', ') }} {{ messages | map(attribute='role') | join('/') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | first }} {{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort }} {{ [1, 2] | reverse | list }} {{ [1, 1, 2] | unique | list }}
{{ x | default('d') }} {{ '' | default('d', true) }} {{ x is defined }} {{ messages is iterable }} {{ {} is mapping }} {{ 'a' is string }} {{ none is none }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 3 is not even }}
{{ {'a': [1, {'b': "ü\"\n"}], 'c': true, 'd': none, 'e': 1.5} | tojson }}
{{ {'a': [1, 2], 'b': {}} | tojson(indent=2) }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }}{% if not loop.last %};{% endif %}{% endfor %}
{% for i in range(5) if i % 2 == 0 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %}{% for i in [] %}{{ i }}{% else %}empty{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{{ loop.previtem }}{% endfor %}
{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% set inner = i %}{% endfor %}{{ ns.n }}{{ inner is defined }}
{% set t %}block {{ 1 }}{% endset %}{{ t | upper }}{% macro m(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m('q', 'r') }}
{% for i in [1, 2] %}{% set j = i * 2 %}{% macro m(a, b=a) %}{{ i }}{{ j }}{{ a }}{{ b }};{% endmacro %}{{ m(8) }}{% endfor %}{% macro m(a) %}{% macro n() %}{{ a }}{% endmacro %}{{ n() }}{% endmacro %}{{ m(4) }}
{% macro inner() %}[{{ a }}{{ i }}{{ late }}]{% endmacro %}{% macro outer(a) %}{{ inner() }}{{ a }}{% endmacro %}{% set late = 1 %}{% for i in [2] %}{{ outer(3) }}{{ inner() }}{% endfor %}
{% filter upper | trim %} shout {% endfilter %}{% raw %}{{ raw }}{% endraw %}{# comment #}|
{{ '%s' | length }} {{ 3.7 | int }} {{ '12' | int + 1 }} {{ 'x' | int(5) }} {{ -3 | abs }} {{ 2.5 | round }} {{ 3 | string + '!' }} {{ [1,2,3] | sum }} {{ [1,5,3] | max }} {{ 'a\nb' | indent(2) }} {{ '<&>' | e }}
{{ ' ' | int(5) }} {{ '' | int(5) }} {{ '4 2' | int(7) }} {{ 'x' | int('none') }} {{ '0x1A' | int }} {{ 'nan(1)' | float(1.5) }} {{ ' ' | float(2.5) }} {{ 'x' | float(default=2) }} {{ none | float(1.5) }} {{ 'x' | float }} {{ '1e3' | float }} {{ true | float }} {{ '2.5x' | float }}
{{ '42 ' | int }} {{ ' -7 \n' | int }} {{ '4.9\t' | int }} {{ '1.5 ' | float }}
{{ messages[0]['content'] | length > 3 and messages[0].role is in ['user', 'system'] }} {{ dict(a=1).get('a') }} {{ dict(a=1).get('b', 'none') }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'a': 1} | items | list }}
{{- '  trimmed left' -}}   
   {%- if true -%}   both   {%- endif -%}
end
  {% if true %}
  kept indentation
  {% endif %}
{{ [{"a": 1, "b": [1, 2]}] | tojson(separators=(',', ':')) }} {{ {"b": "ü\u2028😀", "a": [{"z": 1, "y": 2}]} | tojson(ensure_ascii=True) }} {{ {"b": "ü", "a": [{"z": 1, "y": 2}]} | tojson(sort_keys=true) }}
{{ {"b": "ü", "a": [{"z": 1, "y": 2}], "c": {}} | tojson(indent=4, separators=(',', ':')) }} {{ {"b": "ü", "a": []} | tojson(true, 2) }} {{ [1, [2]] | tojson(indent='--') }} {{ [1, [2]] | tojson(indent=0) }} {{ messages | tojson(indent=none) }} {{ 1.0 | tojson }}
{{ '<{}|{}>'.format('a', 1) }} {{ '{1}{0}{x}'.format(1, 2, x=3) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{{}}'.format('a', 'b', 'c', 42, 3.14159) }} {{ '{0[a]}{1.role}{2[0]}'.format({'a': 1}, messages[0], [7]) }} {{ '{!r} {:,} {:+} {:x} {:%} {:ü^4}'.format('x', 1234567, 2, 255, 0.5, 'é') }}
{{ '%s and %d, %5.2f%%' | format('a', 3, 2.5) }} {{ '%(a)s %(b)r' | format(a=1, b='x') }} {{ '%s' % 'x' }} {{ '%s %-4s|' % ('x', 1) }} {{ '%.3s' | format('äbcdef') }} {{ '%05d %+d %x' % (42, 7, 255) }}
{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{% set m = [f] %}{{ m[0](*['x', 'y']) }}{{ f(**{'a': 1, 'b': 2}) }}{{ f(1, *[2]) }}{{ f(*[1], b=3) }}{{ dict(a=1, **{'b': 2}) }}{{ range(*[1, 3]) | list }}
{% macro f(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call f(1) %}in{{ messages[0].role }}{% endcall %}{% macro g(a) %}<{{ caller(a, 2) }}>{% endmacro %}{% call(x, y=3) g(1) %}{{ x }}{{ y }}{% endcall %}
{{ none | selectattr('type', 'equalto', 'x') | list | length }} {{ none | map('upper') | list }}{{ none | rejectattr('a') | list }}{{ none | select | list }}{{ 0 | reject | list }} {{ '<a>' | safe }}{{ 3 | safe }}{{ none | safe }}
{% set (a, b) = [1, 2] %}{{ a }}{{ b }}{% set (a, (b, c)) = [1, [2, 3]] %}{{ a }}{{ b }}{{ c }}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for (a, b) in [[4, 5]] %}{{ a }}{{ b }}{% endfor %}
{{ messages.0.role }} {{ [[1, 2], [3, 4]].1.0 }} {{ [1, 2].0 }} {{ tools is none }}{{ documents is none }}{{ tools is defined }} {{ 'aXXbXX'.find('XX') }}{{ 'aXXbXX'.rfind('XX') }}{{ 'äXX'.find('XX') }}{{ 'a'.find('') }}{{ 'aaaa'.count('aa') }}
{{ 'abcdef'[none:none:none] }}|{{ 'abcdef'[none:3] }}|{{ [1,2,3][1:none:-1] }}|{{ 'abcdef'[-9:99] }}|{{ 'abcdef'[9:-9:-2] }}|{{ 'abcdef'[4:1] }}|{{ [1,2,3][-2:-1] }}|{{ 'abc'[true:] }}
{{ 'abcdef'[1::9223372036854775807] }}|{{ 'abcdef'[4::-9223372036854775807] }}|{{ range(-2, -9223372036854775807, -9223372036854775807) | list }}|{{ range(9223372036854775806, 9223372036854775807, 3) | list | length }}
{% if messages | length > 5 %}a{% elif false %}b{% elif messages %}c{% else %}d{% endif %}{% if false %}a{% elif false %}b{% else %}d{% endif %}{% if false %}a{% elif none %}b{% endif %}|
{{ undefined_thing }}{{ messages[99] }}{{ {'a': 1}.b }}|{{ 'q' 'r' }}|{{ "a\tb\\n\x41\u00e9" }}
"""
BAD = ["{{ x.y }}", "{% if %}", "{{ 1 + }}", "{% for a in b %}", "{{ 'a' + 1 }}", "{{ raise_exception('no') }}", "{% nonsense %}", "{{ 1 / 0 }}", "{{ 'a' | nofilter }}", "{{ 1 is nothing }}",
       "{{ [1,2 }}", "{{ 'unfinished }}", "{% set x.y = 1 %}", "{{ range(1000000) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 'a' * 100000000000 }}", "{# never ends", "{{ none() }}"]
BAD += ["{{ none | list }}", "{{ '{} {}'.format(1) }}", "{{ '{' | format }}{{ '{'.format(1) }}", "{{ '{:d}'.format('x') }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % ('x',) }}", "{{ '%s' % (1, 2) }}",
        "{% set (a, b) = [1] %}", "{% call 3 %}{% endcall %}", "{{ dict(*[1], **3) }}", "{{ range(1, **{'a': 1}, 2) }}", "{{ [1] | tojson(separators=',') }}",
        "{{ messages[::0] }}", "{{ messages['b':] }}", "{{ messages[0].role[:1.0] }}", "{{ messages[::'2'] }}", "{{ messages[nothing:] }}", "{{ nothing[1:] }}", "{{ messages[0][1:] }}"]
# what has no order, and each division by zero, of integers and of floats
BAD += ["{{ %s %s %s }}" % (a, how, b) for how in ("is lt", "is ge", "<", ">=") for a, b in (("1", "'a'"), ("'a'", "1"), ("none", "1"), ("[1]", "{}"))]
BAD += ["{{ %s %s %s }}" % (a, op, b) for op in ("/", "//", "%") for a in ("3", "1.5") for b in ("0", "0.0", "false")]

WORDS = ["yes", "no", "Ünïcode", "42", "the cat", "😀", "tabs\tand", "line\nbreak", " leading", "trailing ", "{{ braces }}", "<|eot|>", "[INST]", "a  b", "don't", "\"quoted\""]


def conversation(rng, style):
    n = rng.randrange(1, 4)
    out = []
    if rng.random() < 0.4:
        out.append({"role": "system", "content": sentence(rng)})
    for _ in range(n):
        out.append({"role": "user", "content": sentence(rng)})
        a = {"role": "assistant", "content": sentence(rng)}
        if style == "thinking" and rng.random() < 0.5:
            if rng.random() < 0.5:
                a["reasoning_content"] = sentence(rng)
            else:
                a["content"] = "<think>\n" + sentence(rng) + "\n</think>\n\n" + a["content"]
        if style == "thinking" and rng.random() < 0.3:
            a["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": {"x": rng.randrange(9), "s": sentence(rng)}}}]
        out.append(a)
    return out


def sentence(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 6)))


def main():
    rng = random.Random(7)
    cases = []

    def add(template, messages, **more):
        c = {"template": template, "messages": messages, **more}
        want = render(template, messages, more.get("prompt", False), more.get("bos", "<s>"), more.get("eos", "</s>"), more.get("variables"))
        cases.append({**c, "bos": "<s>", "eos": "</s>", "want": want})

    simple = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello"}]
    for line in EXPRESSIONS.strip("\n").split("\n"):
        if line.count("{% if") == line.count("{% endif"):
            add(line, simple)
    add(EXPRESSIONS, simple)
    for t in BAD:
        add(t, simple)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": "int", "ü": None}}}]
    for style in STYLES:
        for k in range(8):
            m = conversation(rng, style)
            add(MARKED[style], m, **({"variables": {"tools": tools}} if style == "thinking" and k % 2 else {}))
        add(PLAIN[style], conversation(rng, style)[:-1], prompt=True)
    with open(os.path.join(HERE, "chat.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "cases,", sum("error" in c["want"] for c in cases), "errors")


if __name__ == "__main__":
    main()
