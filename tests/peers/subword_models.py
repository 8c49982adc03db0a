# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every kind that people fine-tune with, trained here: tokenizer.json by the package tokenizers,
tokenizer.model by sentencepiece. subword_peer.py and tests/golden/subword.py use them."""
import base64
import io
import json

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BYTES = [f"<0x{b:02X}>" for b in range(256)]


def sentence_piece(texts, kind, vocab_size, **more):
    """The bytes of a tokenizer.model."""
    out = io.BytesIO()
    lines = (l for t in texts for l in t.split("\n") if l.strip() and len(l) < 4000)
    spm.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=out, model_type=kind, vocab_size=vocab_size,
                                   hard_vocab_limit=False, minloglevel=2, num_threads=2, input_sentence_size=20000,
                                   shuffle_input_sentence=False, **more)
    return out.getvalue()


def sentence_pieces(texts, size, **rules):
    """rules: what normalizes those models that normalize."""
    llama = dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                 allow_whitespace_only_pieces=True)
    gemma = dict(llama, add_dummy_prefix=False, user_defined_symbols=["<start_of_turn>", "\n\n", "▁▁", "<unused0>", "ing"],
                 control_symbols=["<pad>", "<mask>"])
    return {
        "sp llama bpe": sentence_piece(texts, "bpe", size, **llama),
        "sp gemma bpe": sentence_piece(texts, "bpe", size, **gemma),
        "sp plain bpe": sentence_piece(texts, "bpe", size, **rules, character_coverage=0.98, user_defined_symbols=["[A]", "[AB]"]),
        "sp t5 unigram": sentence_piece(texts, "unigram", size, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.98, **rules),
        "sp user unigram": sentence_piece(texts, "unigram", size, user_defined_symbols=["<x>", "tion", "▁the"], control_symbols=["<c>"],
                                          **(rules or dict(normalization_rule_name="nmt_nfkc_cf")), treat_whitespace_as_suffix=True),
        "sp bytes unigram": sentence_piece(texts, "unigram", size, byte_fallback=True, normalization_rule_name="identity",
                                           remove_extra_whitespaces=False),
    }


def proto(model):
    m = pb.ModelProto()
    m.ParseFromString(model)
    return m


def bpe_of(model):
    """vocab and merges as transformers' converter makes them of a tokenizer.model."""
    pieces = [p.piece for p in proto(model).pieces]
    ids = {p: i for i, p in enumerate(pieces)}
    scores = {p.piece: p.score for p in proto(model).pieces}
    merges = []
    for p in pieces:
        merges += [(p[:k], p[k:], scores[p]) for k in range(1, len(p)) if p[:k] in ids and p[k:] in ids]
    merges.sort(key=lambda m: (-m[2], ids[m[0]], ids[m[1]]))
    return ids, [m[:2] for m in merges]


def added(*tokens):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [dict(base, id=i, content=c, **more) for i, c, more in tokens]


META = "▁"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": META}
FUSE = [{"type": "Replace", "pattern": {"String": META}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme, "split": split}


def tokenizer(model, normalizer, pre, decoder, tokens=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": model}


def bpe(ids, merges, **more):
    return dict({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": ids,
                 "merges": [list(m) for m in merges]}, **more)


def unigram(pieces, unk, **more):
    return dict({"type": "Unigram", "unk_id": unk, "vocab": [list(p) for p in pieces], "byte_fallback": False}, **more)


def word_piece(texts, size, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, show_progress=False, limit_alphabet=400,
                                                           special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.decoder = decoders.WordPiece()
    return json.loads(t.to_str())


def chars_bpe(texts, size):
    t = Tokenizer(models.BPE(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=200, special_tokens=["[UNK]"]))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], [tuple(x) for x in m["merges"]]


def tokenizer_jsons(texts, size, sp):
    """name: a tokenizer.json's object."""
    ids, merges = bpe_of(sp["sp llama bpe"])
    gemma_ids, gemma_merges = bpe_of(sp["sp gemma bpe"])
    t5, cf = proto(sp["sp t5 unigram"]), proto(sp["sp user unigram"])
    charsmap = base64.b64encode(t5.normalizer_spec.precompiled_charsmap).decode()
    folded = base64.b64encode(cf.normalizer_spec.precompiled_charsmap).decode()
    t5_pieces = [(p.piece, p.score) for p in t5.pieces]
    bytes_pieces = [(p.piece, p.score) for p in proto(sp["sp bytes unigram"]).pieces]
    special = added((1, "<s>", {}), (2, "</s>", {}), (0, "<unk>", {}))
    more = special + added((len(ids), "<|user|>", dict(special=False, rstrip=True)), (len(ids) + 1, "Zq x", dict(special=False, normalized=True)),
                           (len(ids) + 2, "zword", dict(special=False, single_word=True)), (len(ids) + 3, "<l>", dict(special=False, lstrip=True)))
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    bert, cased = word_piece(texts, size, True), word_piece(texts, size, False)
    own_ids, own_merges = chars_bpe(texts, size)
    plain = dict(unk_token="[UNK]", byte_fallback=False)
    own = bpe(own_ids, own_merges, **dict(plain, fuse_unk=False))
    fused = bpe(own_ids, own_merges, **plain)
    none = bpe(own_ids, own_merges, **dict(plain, unk_token=None))

    def steps(*parts):
        return sequence("pretokenizers", *parts)

    def split(behavior, pattern):
        return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}

    precompiled = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    multi = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": META}
    llama2 = sequence("normalizers", {"type": "Prepend", "prepend": META}, REPLACE)
    names = {
        "llama2": tokenizer(bpe(ids, merges), llama2, None, sequence("decoders", *FUSE, STRIP), special),
        "llama2 added": tokenizer(bpe(ids, merges), llama2, None, sequence("decoders", *FUSE, STRIP), more),
        "mistral": tokenizer(bpe(ids, merges), None, metaspace("first", False), sequence("decoders", *FUSE, STRIP), more),
        "phi3 ignore": tokenizer(bpe(ids, merges, ignore_merges=True), llama2, None, sequence("decoders", *FUSE, STRIP), more),
        "gemma": tokenizer(bpe(gemma_ids, gemma_merges), REPLACE, cut, sequence("decoders", *FUSE), added((0, "<unk>", {}), (1, "<s>", {}))),
        "metaspace": tokenizer(bpe(ids, merges), None, metaspace("always"), metaspace("always"), special),
        "unk": tokenizer(own, None, {"type": "Whitespace"}, None),
        "fuse": tokenizer(fused, {"type": "NFKC"}, {"type": "WhitespaceSplit"}, None),
        "no unk": tokenizer(none, {"type": "NFD"}, steps({"type": "CharDelimiterSplit", "delimiter": "e"}, {"type": "Digits", "individual_digits": False}), None),
        "no words": tokenizer(fused, {"type": "Lowercase"}, None, None),
        "punctuation": tokenizer(own, sequence("normalizers", {"type": "Nmt"}, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKD"}, {"type": "StripAccents"}),
                                 steps({"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", "individual_digits": True}), None),
        "with next": tokenizer(own, None, split("MergedWithNext", r"[aeiou\s]"), None),
        "with previous": tokenizer(own, None, split("MergedWithPrevious", r"[aeiou\s]"), None),
        "punctuation next": tokenizer(own, None, {"type": "Punctuation", "behavior": "MergedWithNext"}, None),
        "t5": tokenizer(unigram(t5_pieces, 2), sequence("normalizers", precompiled, multi), metaspace(), metaspace(),
                        added((0, "<pad>", {}), (1, "</s>", {}))),
        "albert": tokenizer(unigram(t5_pieces, 2), sequence("normalizers", {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
                            {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, precompiled), steps({"type": "WhitespaceSplit"}, metaspace()), metaspace()),
        "xlm": tokenizer(unigram(t5_pieces, 2), sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": folded}), metaspace("never"), metaspace("never")),
        "unigram bytes": tokenizer(unigram(bytes_pieces, 0, byte_fallback=True), REPLACE, None, sequence("decoders", *FUSE)),
        "bert": bert, "bert cased": cased,
        "bert short": dict(bert, model=dict(bert["model"], max_input_chars_per_word=7), normalizer=dict(bert["normalizer"], strip_accents=False)),
    }
    return names


def reference(data):
    t = Tokenizer.from_str(json.dumps(data))
    t.encode_special_tokens = True
    return t


__all__ = ["Regex"]
