# SPDX-License-Identifier: Apache-2.0
"""Conversations beside transformers: ids of apply_chat_template, and masks of its {% generation %}, for the four styles of templates of
tests/golden/chat_golden.py and 1,000 random conversations; ttrun's templates have no {% generation %}. With --templates FOLDER also the text of
every *.jinja there (such as those of TRL's wheel) beside jinja2.
python tests/peers/chat_peer.py --ttrun build/release/ttrun"""
import argparse, glob, json, os, random, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import chat_golden as golden

SPECIAL = {"headers": ["<s>", "</s>", "<|start|>", "<|end|>", "<|eot|>"], "chatml": ["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
           "instruct": ["<s>", "</s>", "[INST]", "[/INST]"], "thinking": ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]}


def tokenizer(folder, style):
    """A byte-level BPE trained on the corpus' words, with the style's special tokens and template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = [golden.sentence(rng) for _ in range(400)] + ["user assistant system tool think arguments name function"] * 50
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL[style],
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    hf = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>")
    hf.chat_template = golden.PLAIN[style]
    hf.save_pretrained(folder)
    return hf


def ours(ttrun, folder, conversations):
    """[(ids, labels)] of each conversation, by ttrun data show"""
    with open(os.path.join(folder, "d.jsonl"), "w") as f:
        for c in conversations:
            f.write(json.dumps({"messages": c}, ensure_ascii=False) + "\n")
    job = {"spec": "llama3", "model": {"flavor": "debugmodel"}, "tokenizer": {"name": "hf", "path": folder},
           "dataloader": {"name": "chat", "path": [os.path.join(folder, "d.jsonl")], "shuffle": False},
           "training": {"seq_len": 2048, "local_batch_size": 1, "steps": 1}}
    with open(os.path.join(folder, "job.json"), "w") as f:
        json.dump(job, f)
    p = subprocess.run([ttrun, "data", "show", os.path.join(folder, "job.json"), "--n", str(len(conversations)), "--json", "--quiet"],
                       capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr)
    text = p.stdout.strip()
    shown = json.loads(text)["samples"]
    return [(s["ids"], s["labels"]) for s in shown]


def style_peer(ttrun, style, n):
    rng = random.Random(style)
    with tempfile.TemporaryDirectory() as folder:
        hf = tokenizer(folder, style)
        special = set(SPECIAL[style])
        # transformers matches special tokens in what somebody wrote; we do not: leave such texts out here
        conversations = []
        while len(conversations) < n:
            c = golden.conversation(rng, style)
            if not any(s in json.dumps(c, ensure_ascii=False) for s in special) and not any("[INST]" in m["content"] for m in c):
                conversations.append(c)
        wrong = 0
        for c, (ids, labels) in zip(conversations, ours(ttrun, folder, conversations)):
            want = hf.apply_chat_template(c, chat_template=golden.MARKED[style], return_dict=True, return_assistant_tokens_mask=True)
            w, mask = want["input_ids"], want["assistant_masks"]
            k = len(w) - 1
            ok = ids[:k] == w[:-1] and labels[:k] == [t if m else -100 for t, m in zip(w[1:], mask[1:])] and all(x == -100 for x in labels[k:])
            wrong += not ok
            if not ok and wrong < 3:
                print(c, w, ids[:k + 1], [t if m else -100 for t, m in zip(w[1:], mask[1:])], labels[:k])
    print(f"{style}: {n} conversations, {wrong} differ")
    return wrong


def templates_peer(tool, folder):
    import datetime
    rng, cases = random.Random(3), []
    tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]}
    now = {"strftime_now": lambda f: datetime.datetime.fromtimestamp(1750000000).strftime(f)}
    files = sorted(glob.glob(os.path.join(folder, "**", "*.jinja"), recursive=True))
    for f in files:
        for k in range(6):
            m = golden.conversation(rng, "thinking" if k % 2 else "plain")
            m = [x for x in m if k != 5 or x["role"] != "system"][: -1 if k == 4 else None]
            c = {"template": open(f).read(), "messages": m, "bos": "<s>", "eos": "</s>", "prompt": k == 4, **({"variables": tools} if k == 3 else {})}
            cases.append((f, c, golden.render(c["template"], m, k == 4, variables={**c.get("variables", {}), **now})))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([c for _, c, _ in cases], f)
        f.flush()
        out = json.loads(subprocess.run([tool, f.name], capture_output=True, text=True, check=True).stdout)
    wrong = [(f, w, o) for (f, _, w), o in zip(cases, out) if ("error" in w) != ("error" in o) or w.get("text") != o.get("text")]
    for f, w, o in wrong[:5]:
        print(os.path.basename(f), str(w)[-200:], str(o)[-200:])
    print(f"{len(files)} templates, {len(cases)} renderings, {len(wrong)} differ")
    return len(wrong)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default="build/release/ttrun")
    ap.add_argument("--n", type=int, default=250)
    ap.add_argument("--templates")
    o = ap.parse_args()
    wrong = sum(style_peer(o.ttrun, s, o.n) for s in golden.STYLES)
    if o.templates:
        wrong += templates_peer(os.path.join(os.path.dirname(o.ttrun), "tests", "chat", "render_tool"), o.templates)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
