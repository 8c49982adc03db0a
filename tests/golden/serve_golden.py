# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/serve.json: tiny Hugging Face folders, and what transformers and tokenizers say of texts that `ttrun serve`, `generate`,
`chat` and `eval` are asked for: ids, texts, log-probabilities. tests/run/test_text_tokens.sh asks. Run from the root (a minute):

    python tests/golden/serve_golden.py

Weights are a hash of tensor and element (weights() here, golden_tool.c), so that the file holds none. The head has more rows than the tokenizer
has ids. Seeds are the first whose greedy text ends by itself after some tokens, decided by more than NEAREST at each of them."""
import json
import os
import tempfile

import tokenizers
import torch
import transformers

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "serve.json")
NEAREST, MORE_ROWS, NEW, TOP = 1e-3, 5, 12, 3
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
WORDS = ["▁water", "▁or", "▁wine", "▁in", "▁the", "▁sea", "▁of", "▁a", "▁hot", "▁cold", "er", "in", "▁rain", "▁ice"]
TEMPLATE = "{{ bos_token if begins else '' }}{% for m in messages %}{{ m.content }} {% endfor %}"


def bpe(words, first, **more):
    """A vocabulary in which each word is merged from the left."""
    vocab, merges = {t: i for i, t in enumerate(first)}, []
    for c in sorted(set("".join(words))):
        vocab.setdefault(c, len(vocab))
    for w in words:
        for k in range(2, len(w) + 1):
            if w[:k] not in vocab:
                vocab[w[:k]] = len(vocab)
                merges.append([w[:k - 1], w[k - 1]])
    return {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges, **more}


def template(bos):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [1], "tokens": [bos]}}}


def tokenizer(model, special, **parts):
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": model["vocab"][t], "content": t, **SPECIAL} for t in special],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, **parts, "model": model}


def byte_level_letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def byte_level():
    words = [w.replace("▁", "Ġ") for w in WORDS]
    model = bpe(words, ["<|endoftext|>"])
    for c in byte_level_letters():
        model["vocab"].setdefault(c, len(model["vocab"]))
    return model


THREE = ["<unk>", "<s>", "</s>"]
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
CASES = {
    # Llama 2's manner: the decoder drops the blank that the normalizer put before the text
    "strip": {
        "tokenizer": tokenizer(bpe(WORDS, THREE, unk_token="<unk>", fuse_unk=True), THREE, post_processor=template("<s>"), normalizer={
            "type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
        "config": {**NAMES, "add_bos_token": True}, "bos": True, "rope": {"rope_type": "default", "rope_theta": 10000.0}, "positions": 96, "context": 96},
    # bos is named and a text does not begin with it
    "metaspace": {
        "tokenizer": tokenizer(bpe(WORDS, THREE, unk_token="<unk>", fuse_unk=True), THREE, pre_tokenizer=META, decoder=META),
        "config": {**NAMES, "add_bos_token": False}, "bos": False, "positions": 64, "context": 256,
        "rope": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}},
    "byte_level": {
        "tokenizer": tokenizer(byte_level(), ["<|endoftext|>"], pre_tokenizer=BYTES, decoder=BYTES, post_processor=BYTES),
        "config": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, "bos": False, "positions": 96, "context": 96,
        "quiet": 45, "rope": {"rope_type": "default", "rope_theta": 10000.0}},
}


def values(k, seed, shape, scale, offset):
    i = torch.arange(int(torch.Size(shape).numel()), dtype=torch.int64)
    h = (i + 1) * 2654435761 + (k + 1) * 40503 + seed * 97561
    for _ in range(2):
        h = ((h ^ (h >> 15)) * 73244475) & 0xffffffff
    u = (h >> 8).to(torch.float64) / (1 << 24)
    return (offset + (u - 0.5) * scale).to(torch.float32).reshape(shape)


def open_model(case, n_ids, seed):
    config = transformers.LlamaConfig(
        vocab_size=n_ids + MORE_ROWS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=False, max_position_embeddings=case["positions"], rope_parameters=case["rope"],
        eos_token_id=case["eos"], bos_token_id=None, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).eval()
    tensors = []
    with torch.no_grad():
        for k, (name, p) in enumerate(sorted(model.named_parameters())):
            scale, offset = (0.5, 1.0) if p.dim() < 2 else (4.0, 0.0) if "embed" in name else (2.0, 0.0)
            loud = case.get("quiet", 0) if "lm_head" in name else 0  # rows behind these are hardly ever chosen
            x = values(k, seed, p.shape, scale, offset)
            if loud:
                x[loud:] /= 64
            p.copy_(x)
            tensors.append({"name": name, "shape": list(p.shape), "scale": scale, "offset": offset, "loud": loud})
    return model, tensors


@torch.no_grad()
def logprobs(model, ids):
    """[i] is the distribution of the token after ids[:i + 1], over all rows of the head."""
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


@torch.no_grad()
def greedy(model, ids, eos, n_ids):
    """The new ids with the one that ends the text; None if it does not end soon, or a choice is close or is none of the tokenizer's."""
    ids, new = list(ids), []
    while len(new) < NEW:
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        if best.values[0] - best.values[1] < NEAREST or best.indices[0] >= n_ids:
            return None
        ids.append(int(best.indices[0]))
        new.append(ids[-1])
        if new[-1] == eos:
            return new
    return None


class Text:
    """What tokens are called, and where they stand."""

    def __init__(self, tok):
        self.tok = tok

    def decode(self, ids):
        return self.tok.decode(ids, skip_special_tokens=True)

    def piece(self, before, i):
        text = self.decode(before + [i])[len(self.decode(before)):]
        return text or f"<token {i}>"

    def scored(self, lp, ids, begin, prompt, n_top):
        """Completions' logprobs of ids[begin:]; lp None at the first token of all."""
        out = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        start = len(self.decode(ids[:prompt])) if begin else 0
        for k in range(begin, len(ids)):
            before = ids[:k]
            out["tokens"].append(self.piece(before, ids[k]))
            out["text_offset"].append(len(self.decode(before)) - start)
            if not k:
                out["token_logprobs"].append(None)
                out["top_logprobs"].append(None)
                continue
            top = {}
            for i in [*lp[k - 1].topk(n_top).indices.tolist(), ids[k]]:
                top.setdefault(self.piece(before, i), float(lp[k - 1][i]))
            out["token_logprobs"].append(float(lp[k - 1][ids[k]]))
            out["top_logprobs"].append(top)
        return out

    def chat(self, lp, ids, begin, n_top):
        def one(k, i):
            name = self.piece(ids[:k], i)
            return {"token": name, "logprob": float(lp[k - 1][i]), "bytes": list(name.encode())}
        return [{**one(k, ids[k]), "top_logprobs": [one(k, i) for i in lp[k - 1].topk(n_top).indices.tolist()]} for k in range(begin, len(ids))]


def find(name, case, tok):
    """Of all pairs of words, two prompts and a message whose texts end by themselves: (seed, model, tensors, [(words, ids, new ids)])."""
    n_ids, words = tok.get_vocab_size(), [w[1:] for w in WORDS if w[0] == "▁"]
    for seed in range(1, 1000):
        model, tensors = open_model(case, n_ids, seed)
        found = []
        for said in [f"{a} {b}" for a in words for b in words]:
            chat = len(found) == 2
            ids = tok.encode(said + " " * chat, add_special_tokens=not chat).ids
            new = greedy(model, ids, case["eos"], n_ids)
            more = tok.decode(ids + (new or []))[len(tok.decode(ids)):]
            if new and len(new) > 2 and more.isprintable() and more.isascii() and (found or more.startswith(" ")):
                found.append((said, ids, new))
                print(name, seed, repr(said), repr(more))
            if len(found) == 3:
                return seed, model, tensors, found
    raise SystemExit(f"{name}: no seed")


def make(name, case):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/tokenizer.json", "w") as f:
            json.dump(case["tokenizer"], f)
        tok = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        with open(f"{folder}/tokenizer_config.json", "w") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **case["config"]}, f)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    case["eos"] = tok.token_to_id(case["config"]["eos_token"])
    text = Text(tok)
    # The template writes no special token, so the text of a conversation is that of its message.
    seed, model, tensors, found = find(name, case, tok)
    (*prompts, said), (*ids, chat_ids), news = zip(*found)
    assert [theirs(p)["input_ids"] for p in prompts] == list(ids) and all((x[0] == 1) == case["bos"] for x in ids)
    requests = []

    def ask(path, body, want):
        requests.append({"path": path, "body": body, "want": want})

    def complete(i, max_tokens, echo, n_top, as_ids=False):
        new = news[i][:max_tokens]
        whole, n = ids[i] + new, len(ids[i])
        lp = logprobs(model, whole)
        begin = 0 if echo else n
        words = text.decode(whole) if echo else text.decode(whole)[len(text.decode(ids[i])):]
        ask("/v1/completions", {"prompt": ids[i] if as_ids else prompts[i], "max_tokens": max_tokens, "temperature": 0, "logprobs": n_top, "echo": echo},
            {"choices": [{"text": words, "finish_reason": "stop" if new and new[-1] == case["eos"] else "length",
                          "logprobs": text.scored(lp, whole, begin, n, n_top)}],
             "usage": {"prompt_tokens": n, "completion_tokens": len(new), "total_tokens": n + len(new)}})

    for i in range(len(prompts)):
        complete(i, NEW, False, TOP)
        complete(i, NEW, True, TOP)
        complete(i, len(news[i]) - 1, False, 1)
        complete(i, len(news[i]), True, 1, True)
        complete(i, 1, True, 1, True)  # as lm-evaluation-harness asks
        complete(i, 0, True, 1, True)
        # … and where the token after the text is the one that ends it
        ended = ids[i] + news[i][:-1]
        lp = logprobs(model, [*ended, case["eos"]])
        ask("/v1/completions", {"prompt": ended, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True},
            {"choices": [{"text": text.decode(ended), "finish_reason": "stop", "logprobs": text.scored(lp, [*ended, case["eos"]], 0, len(ended), 1)}],
             "usage": {"completion_tokens": 1}})
        ask("/tokenize", {"prompt": prompts[i]}, {"tokens": ids[i], "count": len(ids[i])})
    whole, n = chat_ids + news[-1], len(chat_ids)
    answer = text.decode(whole)[len(text.decode(chat_ids)):]
    ask("/v1/chat/completions", {"messages": [{"role": "user", "content": said}], "max_tokens": NEW, "temperature": 0, "logprobs": True, "top_logprobs": TOP},
        {"choices": [{"message": {"content": answer}, "finish_reason": "stop", "logprobs": {"content": text.chat(logprobs(model, whole), whole, n, TOP)}}],
         "usage": {"prompt_tokens": n, "completion_tokens": len(news[-1])}})
    letters = {t: i for t, i in tok.get_vocab().items()}
    blank = letters.get("▁", letters.get("Ġ"))
    for some in ([blank, blank, *ids[1][case["bos"]:]], [case["eos"], blank, ids[0][-1]], ids[1], [case["eos"]], ids[1][-1:] + [case["eos"]] + ids[0][-1:]):
        ask("/detokenize", {"tokens": some}, {"prompt": text.decode(some)})
    generate = [{"prompt": prompts[i], "text": text.decode(ids[i] + news[i])[len(text.decode(ids[i])):], "ids": news[i][:-1], "n": len(ids[i])} for i in range(len(prompts))]
    document = [*ids[1], *([case["eos"]])]
    lp = logprobs(model, document)
    loss = -float(sum(lp[k - 1][document[k]] for k in range(1, len(document)))) / (len(document) - 1)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **case["config"], "chat_template": TEMPLATE}
    files = {"tokenizer.json": case["tokenizer"], "tokenizer_config.json": config, "config.json": {
        k: v for k, v in {**model.config.to_dict(), "architectures": ["LlamaForCausalLM"], "dtype": "float32"}.items()
        if k in ("architectures", "attention_bias", "eos_token_id", "head_dim", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
                 "mlp_bias", "model_type", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_parameters",
                 "tie_word_embeddings", "vocab_size", "dtype")}}
    return {"name": name, "seed": seed, "context": case["context"], "files": files, "tensors": tensors, "requests": requests,
            "generate": generate, "chat": {"said": said, "answer": answer}, "eval": {"text": prompts[1], "seq_len": len(document) - 1, "loss": loss}}


def rounded(v):
    if isinstance(v, dict):
        return {k: rounded(x) for k, x in v.items()}
    if isinstance(v, list):
        return [rounded(x) for x in v]
    return round(v, 6) if isinstance(v, float) else v


def main():
    torch.set_num_threads(1)
    cases = [rounded(make(name, case)) for name, case in CASES.items()]
    made_by = f"tests/golden/serve_golden.py, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, PyTorch {torch.__version__}, float32"
    with open(PATH, "w", encoding="utf-8") as f:
        f.write(f'{{"made_by":"{made_by}","cases":[\n' + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]}\n")


main()
