# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/hub_folders.json: small folders in the forms that the hub has, and what transformers, tokenizers, tiktoken
and sentencepiece make of some texts. tests/plugins/test_hf_hub.c opens the folders.
  TTRUN_VENV/bin/python tests/golden/hub_folders.py        needs transformers, tokenizers, tiktoken, sentencepiece, protobuf"""
import base64
import io
import json
import os
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
import tokenizers
import transformers
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
from tiktoken_peer import KIMI, LLAMA3  # noqa: E402

CORPUS = ["hello world, the world's words and THE WORDS are here", "they're 1234 tokens in the tokenizer's vocabulary", "HelloWorld HTTPServer",
          "你好，世界。世界你好", "Grüße über naïve café", "    indented\n        more\n\n\nlines\r\n"] * 20
TEXTS = ["", "hello world", " hello  world ", "the World's WORDS aren't they'LL I'ſ", "HTTPServer's getHTTPResponse 12345 1,234.5 ①②", "a\n\n  b\r\n\tc \n",
         "你好World世界々〇⺀!ok", "naïve cafe\u0301 Åu\u030a ﬁ", "x <|endoftext|> y", "a<|x|>b <|x|> c<|y|>", "path/to/file.py?!/\n/", "\u3000 \u00a0x", "😀👍🏽 ok",
         "<|im_start|>user\nhi<|im_end|>\n", "don'T 世'界's 3's", "A\u0301b\u0300C ǅ ʰx", "tokens\u2028more"]
QWEN = LLAMA3.replace("{1,3}", "")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
LETTERS = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
BYTE = {chr(b): b for b in LETTERS} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in LETTERS)}
NAME = "<|endoftext|>"
folders = {}


def learn():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=340, initial_alphabet=ALPHABET, show_progress=False))
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def text_of(v):
    return v if isinstance(v, (str, bytes)) else json.dumps(v)


def put(name, files, encode, special=False, texts=TEXTS, **info):
    folders[name] = {"files": {k: text_of(v) if not isinstance(v, bytes) else {"base64": base64.b64encode(v).decode()} for k, v in files.items()},
                     "special": special, "ids": [encode(t) for t in texts], **({} if texts is TEXTS else {"texts": texts}), **info}


def pair(name, files, cls, special=False):
    """A folder that transformers opens."""
    with tempfile.TemporaryDirectory() as d:
        for k, v in files.items():
            open(os.path.join(d, k), "w").write(text_of(v))
        t = getattr(transformers, cls).from_pretrained(d)
    assert t.backend_tokenizer is not None
    ids = {k: -1 if v is None else v for k, v in (("bos", t.bos_token_id), ("eos", t.eos_token_id), ("pad", t.pad_token_id))}
    put(name, files, lambda x: t.encode(x, add_special_tokens=False, split_special_tokens=not special), special, n_ids=len(t), **ids)


def json_file(name, data, texts=TEXTS, **info):
    t = Tokenizer.from_str(json.dumps(data))
    t.encode_special_tokens = True
    put(name, {"tokenizer.json": data}, lambda x: t.encode(x, add_special_tokens=False).ids, texts=texts, **info)


def bpe(vocab, merges, pre=None, added=(), **more):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pre is None}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} for c, i in added],
            "pre_tokenizer": level if pre is None else {"type": "Sequence", "pretokenizers": [*pre, level]}, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "vocab": vocab, "merges": [" ".join(m) for m in merges], **more}}


def split(expression):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def pairs(vocab, merges):
    files = {"vocab.json": vocab | {NAME: len(vocab)}, "merges.txt": "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in merges)}
    one = lambda content, special, **more: {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special, **more}
    n = len(vocab) + 1
    pair("gpt2 alone", files, "GPT2Tokenizer")
    pair("gpt2 alone, special tokens read", files, "GPT2Tokenizer", special=True)
    pair("gpt2 prefix", files | {"tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "added_tokens_decoder": {
        str(n - 1): one(NAME, True), str(n): one("<|x|>", False, lstrip=True), str(n + 1): one("<|y|>", True)}}}, "GPT2Tokenizer")
    pair("gpt2 old files", files | {"config.json": {"model_type": "gpt2"}, "added_tokens.json": {"<|x|>": n, "<|y|>": n + 1},
                                    "special_tokens_map.json": {"bos_token": "<|y|>", "eos_token": NAME, "unk_token": NAME, "pad_token": "<|x|>"}}, "GPT2Tokenizer")
    pair("codegen", files | {"tokenizer_config.json": {"tokenizer_class": "CodeGenTokenizer", "add_prefix_space": False}}, "CodeGenTokenizer")
    qwen = {str(n - 1): one(NAME, True), str(n): one("<|im_start|>", True), str(n + 1): one("<|im_end|>", True)}
    for special in (False, True):
        pair("qwen2" + (", special tokens read" if special else ""), files | {"tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": NAME, "unk_token": None, "add_prefix_space": False,
            "added_tokens_decoder": qwen}}, "Qwen2Tokenizer", special)


def tiktokens(vocab):
    # ranks in the order of the merges, the bytes first, as tiktoken's trainer gives them
    ranks = {bytes(BYTE[c] for c in token): i for token, i in vocab.items()}
    n = len(ranks)
    file = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in sorted(ranks.items(), key=lambda p: p[1]))

    def encoding(expression, special):
        return tiktoken.Encoding("golden", pat_str=expression, mergeable_ranks=ranks, special_tokens=special)
    decoder = {n: "[BOS]", n + 1: "[EOS]", n + 2: "<|im_end|>", n + 7: "<|im_start|>"}
    names = {decoder.get(i, f"<|reserved_token_{i}|>"): i for i in range(n, n + 256)}
    kimi = {"tokenizer_class": "TikTokenTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}, "bos_token": "[BOS]",
            "eos_token": "<|im_end|>", "added_tokens_decoder": {str(i): {"content": c, "special": True} for i, c in decoder.items()}}
    e = encoding(KIMI, names)
    for special in (False, True):
        put("kimi" + (", special tokens read" if special else ""), {"tiktoken.model": file, "tokenizer_config.json": kimi, "tokenization_kimi.py": 'r"""' + KIMI + '"""'},
            lambda x: e.encode(x, allowed_special="all" if special else set(), disallowed_special=()), special, n_ids=n + 256, bos=n, eos=n + 2, pad=-1)
    names = [NAME, "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
    e = encoding(QWEN, {c: n + i for i, c in enumerate(names)})
    for special in (False, True):
        put("qwen1" + (", special tokens read" if special else ""), {"qwen.tiktoken": file, "tokenizer_config.json": {"tokenizer_class": "QWenTokenizer"}},
            lambda x: e.encode(unicodedata.normalize("NFC", x), allowed_special="all" if special else set(), disallowed_special=()), special, n_ids=n + 208, bos=-1, eos=n, pad=-1)
    e = encoding(LLAMA3, {NAME: n, "<|x|>": n + 1})
    put("glm4", {"tokenizer.model": file, "tokenizer_config.json": {"tokenizer_class": "ChatGLM4Tokenizer", "eos_token": NAME, "pad_token": NAME, "added_tokens_decoder": {
        str(n): {"content": NAME, "special": True}, str(n + 1): {"content": "<|x|>", "special": False}}}},
        lambda x: e.encode(x, allowed_special={"<|x|>"}, disallowed_special=()), n_ids=n + 2, bos=-1, eos=n, pad=n)


def jsons(vocab, merges):
    gone = "\u00c0\u00c1"
    json_file("no bytes c0 and c1", bpe({c: i for i, c in enumerate(c for c in vocab if c not in gone)}, merges))
    # without the bytes "e" and ","; "h" and "l" may then be neighbours
    some = {c: i for i, c in enumerate(c for c in vocab if "e" not in c and "," not in c)} | {"hl": 900, "<unk>": 901, "lW": 902}
    kept = [m for m in merges if "e" not in m[0] + m[1] and "," not in m[0] + m[1]] + [("h", "l"), ("l", "W")]
    less = [t for t in TEXTS] + ["eee", "heh,e,elle", "e", "a e b", "l,,eW" * 40]
    for name, more in (("left out", {}), ("unk", {"unk_token": "<unk>"}), ("one unk", {"unk_token": "<unk>", "fuse_unk": True})):
        json_file("bytes without a token: " + name, bpe(some, kept, **more), less)
    nul = vocab | {"\0": len(vocab), "a\0b": len(vocab) + 1}
    json_file("U+0000 in keys", bpe(nul, merges), TEXTS + ["\0", "a\0b"])
    json_file("U+0000 in an added token", bpe(nul, merges, added=[("a\0b", len(vocab) + 1), ("\0", len(vocab)), ("x\0", len(vocab) + 2)]), TEXTS + ["\0", "a\0b x\0"])
    real = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
            "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
    json_file("deepseek with real CR and LF", bpe(vocab, merges, pre=[split("\\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(real)]), known=True)
    json_file("qwen2 with real CR and LF", bpe(vocab, merges, pre=[split(QWEN.replace(r"\r", "\r").replace(r"\n", "\n"))]), known=True)
    plain = bpe(vocab, merges)
    del plain["model"]["type"]
    json_file("BPE without a type", plain)
    bert = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                                                                    "vocab": {"[UNK]": 0, "hello": 1, "##s": 2, "world": 3, "the": 4, "words": 5, "'": 6, "s": 7, "a": 8, "##ren": 9, "ok": 10}}}
    json_file("WordPiece without a type", bert)
    pieces = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["▁hello", -4.5], ["▁the", -3.5], ["▁w", -3.75], ["ord", -4.25], ["s", -3.0], ["o", -3.25], ["l", -3.5],
              ["e", -3.0], ["h", -3.5], ["w", -4.0], ["r", -4.0], ["d", -4.0], ["\0", -5.0], ["a\0", -5.5]]
    t5 = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "normalizer": None,
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}]},
          "decoder": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}, "model": {"unk_id": 2, "vocab": pieces}}
    json_file("Unigram without a type, U+0000 in pieces", t5, TEXTS + ["a\0 h\0"])


def varint(k):
    out = b""
    while k > 127:
        out, k = out + bytes([k & 127 | 128]), k >> 7
    return out + bytes([k])


def sentence_pieces():
    m = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=m, vocab_size=130, model_type="bpe", byte_fallback=False, minloglevel=9,
                                             hard_vocab_limit=False, character_coverage=1.0, normalization_rule_name="identity")
    whole = pb.ModelProto.FromString(m.getvalue())
    parts = {name: getattr(whole, name).SerializeToString() for name in ("normalizer_spec", "trainer_spec")}
    pieces = b"".join(b"\x0a" + varint(len(p.SerializeToString())) + p.SerializeToString() for p in whole.pieces)
    t = sentencepiece.SentencePieceProcessor(model_proto=m.getvalue())
    other = b"\xfa\x7f\x03abc" + b"\xf0\x7f\x85\x01" + b"\xf5\x7f1234" + b"\xf1\x7f12345678"  # fields 2030 and 2031 of each kind
    spec = lambda number, name: bytes([number << 3 | 2]) + varint(len(parts[name])) + parts[name]
    for name, data in (("normalizer first", spec(3, "normalizer_spec") + pieces + spec(2, "trainer_spec")),
                       ("trainer first, fields that nobody knows", spec(2, "trainer_spec") + other + pieces + other + spec(3, "normalizer_spec") + other)):
        assert sentencepiece.SentencePieceProcessor(model_proto=data).encode("hello") == t.encode("hello")
        put("sentencepiece: " + name, {"tokenizer.model": data}, t.encode)


def main():
    vocab, merges = learn()
    pairs(vocab, merges)
    tiktokens(vocab)
    jsons(vocab, merges)
    sentence_pieces()
    shared = {}
    for f in folders.values():  # the same file in many folders is there once
        for name, text in f["files"].items():
            key = next((k for k, v in shared.items() if v == text), None)
            if key is None:
                key = f"{len(shared)} {name}"
                shared[key] = text
            f["files"][name] = key
    out = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__,
           "sentencepiece": sentencepiece.__version__, "texts": TEXTS, "files": shared, "folders": folders}
    with open(os.path.join(HERE, "hub_folders.json"), "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
