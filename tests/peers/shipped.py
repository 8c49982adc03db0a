# SPDX-License-Identifier: Apache-2.0
"""Every chat template and every tokenizer in a folder of unpacked packages beside transformers: the *.jinja and the templates that stand as strings in
*.py, each with conversations of ten kinds, beside transformers' own rendering; the vocabularies of *.gguf that transformers reads, tokenizer.json and
tokenizer.model, each with the texts of peer_texts.py, beside transformers' tokenizers. Prints a table of counts and what differs.
No part of make test-peers, which cannot fetch sources: unpack the source distributions of transformers, llama-cpp-python, vllm and mlx-lm below
FOLDER, then: python tests/peers/shipped.py FOLDER --ttrun build/release/ttrun"""
import argparse, ast, collections, datetime, glob, json, os, subprocess, sys, tempfile
import peer_texts

NOW = 1750000000  # the moment that render_tool gives a template
CALL = {"type": "function", "id": "call00001", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "its name"}, "days": {"type": "integer"}}, "required": ["city"]}}}]
USER, ANSWER = {"role": "user", "content": "What is 2 < 3?\nSay it."}, {"role": "assistant", "content": " True, \"yes\" – it is.\n"}
SYSTEM = {"role": "system", "content": "You are terse."}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"sky\": \"grey\"}"}
KINDS = {  # kind → (messages, tools, generation prompt)
    "one question": ([USER], None, True),
    "system": ([SYSTEM, USER], None, True),
    "a turn": ([USER, ANSWER], None, False),
    "turns": ([SYSTEM, USER, ANSWER, USER, ANSWER, USER], None, True),
    "tools offered": ([SYSTEM, USER], TOOLS, True),
    "tool called": ([USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT, ANSWER], TOOLS, False),
    "tool called, content null": ([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT], TOOLS, True),
    "reasoning": ([USER, {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}, USER], None, True),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]}, ANSWER], None, False),
    "no thinking": ([USER, ANSWER, USER], None, True),
}
TEXTS = ["", " ", "Hello world", "  two  spaces ", "a\n\n\nb\r\n\tc", "3 33 333 3333 33333 3.14", "I'll they're WE'VE don't", "äöü ß É é", "日本語と中文 한국어",
         "🚀 👩‍👩‍👧 🇩🇪", "!!!???...---", "<s></s><unk>", "नमस्ते สวัสดี שלום مرحبا", "\u200b\u00a0\ufeff x", "x" * 300, "  \n  \n", "if (a<b) { return c->d; }\n"]


def strings(path):
    """The templates that stand as strings in a Python file, joined where the parser joins them."""
    try:
        tree = ast.parse(open(path, encoding="utf-8").read())
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            and "{%" in n.value and "%}" in n.value and "message" in n.value]


def templates(folder):
    """text → the first place that has it"""
    found = {}
    for f in sorted(glob.glob(os.path.join(folder, "**", "*.jinja"), recursive=True)):
        found.setdefault(open(f, encoding="utf-8").read(), os.path.relpath(f, folder))
    for f in sorted(glob.glob(os.path.join(folder, "**", "*.py"), recursive=True)):
        for text in strings(f):
            found.setdefault(text, os.path.relpath(f, folder))
    return found


def theirs(text, messages, tools, prompt, variables, normal=True):
    """As apply_chat_template renders it; normal False: with its null keys."""
    from transformers.utils import chat_template_utils as utils
    try:
        compiled = utils._compile_jinja_template(text)
        compiled.environment.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
        talk = utils._normalize_chat_messages(messages) if normal else messages
        out, _ = utils.render_jinja_template([talk], tools=tools, chat_template=text, add_generation_prompt=prompt,
                                             bos_token="<s>", eos_token="</s>", **variables)
        return {"text": out[0]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def as_meant(messages):
    """Forms of the messages, one of which a template works with where transformers lets it print a list, or fail: with parts joined; with an empty
    content or none beside calls; with arguments as text."""
    def meant(m, content, text):
        m = json.loads(json.dumps(m))
        if isinstance(m.get("content"), list):
            m["content"] = "".join(p["text"] for p in m["content"])
        if m.get("content") is None:
            m["content"] = content
        for c in m.get("tool_calls", []):
            if text:
                c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
        return m
    for content in ("", None):
        for text in (False, True):
            yield [meant(m, content, text) for m in messages]


def compare_templates(tool, folder):
    """What differs is explained where transformers renders the same from what was meant."""
    found, cases = templates(folder), []
    for text, place in found.items():
        for kind, (messages, tools, prompt) in KINDS.items():
            variables = {"enable_thinking": False} if kind == "no thinking" else {}
            want = theirs(text, messages, tools, prompt, variables)
            cases.append((place, kind, want, {"template": text, "messages": messages, "bos": "<s>", "eos": "</s>", "prompt": prompt,
                                              "variables": {**variables, **({"tools": tools} if tools else {})}}))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([c for *_, c in cases], f)
        f.flush()
        got = json.loads(subprocess.run([tool, f.name], capture_output=True, text=True, check=True).stdout)
    counts, places = collections.Counter(), collections.defaultdict(list)
    for (place, kind, want, case), have in zip(cases, got):
        outcome = ("the same text" if want.get("text") == have.get("text") else "other text") if "text" in want and "text" in have else \
            "both refuse" if "error" in want and "error" in have else "ttrun alone refuses" if "text" in want else "ttrun alone renders"
        if outcome in ("other text", "ttrun alone renders"):
            messages, tools, prompt = KINDS[kind]
            if any(theirs(case["template"], m, tools, prompt, {}, normal=False).get("text") == have["text"] for m in as_meant(messages)):
                outcome = "the same text as of parts joined" if kind == "parts" else "the same text as of calls in the form that the template takes"
        counts[outcome] += 1
        if not outcome.startswith("the same text") and outcome != "both refuse":
            places[place].append((outcome, kind, want, have))
    print(f"{len(found)} templates, {len(cases)} renderings: " + ", ".join(f"{v} {k}" for k, v in counts.most_common()))
    for place, all_of in places.items():
        for outcome, kind, want, have in all_of:
            print(f"  {place}: {kind}: {outcome}\n    theirs {str(want)[-160:]!r}\n    ours   {str(have)[-160:]!r}")
    return sum(map(len, places.values()))


def ours(ttrun, folder, texts):
    """The ids of each text, or why there are none"""
    out = []
    for text in texts:
        p = subprocess.run([ttrun, "tokenize", "--tokenizer", folder], input=text.encode(), capture_output=True)
        if p.returncode:
            return p.stderr.decode().strip()
        out.append([int(t) for t in p.stdout.split()])
    return out


def tokenizers(folder, scratch):
    """(place, folder that ttrun reads, the tokenizer or why there is none); of a GGUF as transformers writes it."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    for f in sorted(glob.glob(os.path.join(folder, "**", "*.gguf"), recursive=True)):
        out = os.path.join(scratch, os.path.basename(f))
        try:
            t = AutoTokenizer.from_pretrained(os.path.dirname(f), gguf_file=os.path.basename(f))
            t.save_pretrained(out)
            yield os.path.relpath(f, folder), out, Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
        except Exception as e:
            yield os.path.relpath(f, folder), None, f"transformers: {type(e).__name__}: {e}"
    for f in sorted(glob.glob(os.path.join(folder, "**", "tokenizer.json"), recursive=True)):
        yield os.path.relpath(f, folder), os.path.dirname(f), Tokenizer.from_file(f)


def compare_tokenizers(ttrun, folder):
    texts, counts, wrong = TEXTS + [t[:3000] for t in peer_texts.corpus(0.3)], collections.Counter(), 0
    with tempfile.TemporaryDirectory() as scratch:
        for place, ours_in, t in tokenizers(folder, scratch):
            if ours_in is None:
                counts["transformers does not read it"] += 1
                print(f"  {place}: {t[:200]}")
                continue
            t.encode_special_tokens = True
            got = ours(ttrun, ours_in, texts)
            if isinstance(got, str):
                counts["ttrun refuses"] += 1
                print(f"  {place}: ttrun: {got[:300]}")
                wrong += 1
                continue
            differ = [(x, g, w) for x, g, w in zip(texts, got, (t.encode(x, add_special_tokens=False).ids for x in texts)) if g != w]
            counts["other ids" if differ else "the same ids"] += 1
            wrong += bool(differ)
            for x, g, w in differ[:2]:
                print(f"  {place}: {x!r}: theirs {w[:30]} ours {g[:30]}")
    print(f"{sum(counts.values())} tokenizers, {len(texts)} texts each: " + ", ".join(f"{v} {k}" for k, v in counts.most_common()))
    return wrong


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--ttrun", default="build/release/ttrun")
    o = ap.parse_args()
    tool = os.path.join(os.path.dirname(o.ttrun), "tests", "chat", "render_tool")
    wrong = compare_templates(tool, o.folder)
    sys.exit(wrong + compare_tokenizers(o.ttrun, o.folder) > 0)


if __name__ == "__main__":
    main()
