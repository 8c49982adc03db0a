# SPDX-License-Identifier: Apache-2.0
"""A folder that goes out is the folder that came in, as transformers reads it.

For each form of tokenizer that the hub has: a small random model and its tokenizer in a folder, a run of two steps on
conversations, and hf/latest, `ckpt export --to hf` of the run and of an import of the folder. AutoTokenizer gives the source's ids and
the source's chat text for all of them; with a template, an end token or a tokenizer of the job, those of the job. Generation stops
where a turn ends, with the source's temperature; GGUF has the same template.

usage: folders_peer.py [build folder]"""
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

import sentencepiece
import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import checks
from checks import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
TEXT = [f"int f{i}(int x) {{ return x * {i} + {i * i}; }}  The words of line {i} are 'here', naïve." for i in range(200)]
TRY = ["int f7(int x)", " The  words\n\tof lines", "naïve café 😀", "a <|im_end|> b", ""]
TALK = [{"role": "user", "content": "What is f3?"}, {"role": "assistant", "content": "f3(x) = 3 x + 9"}, {"role": "user", "content": "And f4?"}]
OWN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
TOOLS = "{% for m in messages %}[{{ tools|length }}]{{ m.content }}{{ eos_token }}{% endfor %}"
OTHER = "{% for m in messages %}<t>{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"
CHATML = "<|im_start|>user\nWhat is f3?<|im_end|>\n<|im_start|>assistant\nf3(x) = 3 x + 9<|im_end|>\n<|im_start|>user\nAnd f4?<|im_end|>\n"
SPECIAL = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))


def bpe():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def fast(d):
    PreTrainedTokenizerFast(tokenizer_object=bpe(), bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                            chat_template={"default": OWN, "tool_use": TOOLS}).save_pretrained(d)


def named(d):
    fast(d)
    shutil.rmtree(f"{d}/additional_chat_templates")
    os.remove(f"{d}/chat_template.jinja")
    c = json.load(open(f"{d}/tokenizer_config.json"))
    write(f"{d}/tokenizer_config.json", {**c, "chat_template": [{"name": "default", "template": OWN}, {"name": "tool_use", "template": TOOLS}],
                                         "model_max_length": 1000000000000000019884624838656})


def pair(d):
    m = json.loads(bpe().to_str())["model"]
    vocab = {k: v - len(SPECIAL) for k, v in m["vocab"].items() if k not in SPECIAL}
    n = len(vocab)
    write(f"{d}/vocab.json", vocab)
    write(f"{d}/merges.txt", "#version: 0.2\n" + "\n".join(" ".join(x) for x in m["merges"]) + "\n")
    write(f"{d}/added_tokens.json", {t: n + i for i, t in enumerate(SPECIAL)})
    write(f"{d}/special_tokens_map.json", {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
                                           "additional_special_tokens": SPECIAL[3:]})
    write(f"{d}/tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "chat_template": OWN, "add_prefix_space": False})


def pieces(cls):
    def make(d):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=out, vocab_size=340, model_type="bpe", byte_fallback=True, character_coverage=1.0,
            unk_id=0, bos_id=1, eos_id=2, pad_id=-1, normalization_rule_name="identity", remove_extra_whitespaces=False,
            user_defined_symbols=SPECIAL[3:], minloglevel=2)
        open(f"{d}/tokenizer.model", "wb").write(out.getvalue())
        write(f"{d}/tokenizer_config.json", {"tokenizer_class": cls, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                                             "additional_special_tokens": SPECIAL[3:], "legacy": False})
        write(f"{d}/chat_template.jinja", OWN)
    return make


FORMS = [("tokenizer.json and files of templates", fast), ("tokenizer.json and a list of templates", named),
         ("vocab.json and merges.txt", pair), ("tokenizer.model, Llama's", pieces("LlamaTokenizer"))]


def ttrun(*args):
    r = subprocess.run([f"{BUILD}/ttrun", *args, "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True, cwd="/")
    if r.returncode:
        print(r.stderr, file=sys.stderr)
    return r.returncode == 0


def model(d, tok):
    torch.manual_seed(3)
    ids = dict(bos_token_id=tok.bos_token_id, eos_token_id=tok.eos_token_id, pad_token_id=None)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                                 num_key_value_heads=1, max_position_embeddings=256, **ids)).save_pretrained(d)
    GenerationConfig(bos_token_id=tok.bos_token_id, eos_token_id=[tok.eos_token_id], do_sample=True, temperature=0.6, top_p=0.95).save_pretrained(d)


def same_texts(what, a, b, templates=True):
    same = all(a(t).input_ids == b(t).input_ids and a.decode(a(t).input_ids) == b.decode(b(t).input_ids) for t in TRY)
    check(same and a.all_special_ids == b.all_special_ids and a.eos_token_id == b.eos_token_id and len(a) == len(b), f"{what}: ids")
    if templates:
        kwargs = [{}, {"add_generation_prompt": True}, {"tools": [{"type": "function", "function": {"name": "f"}}]}]
        check(all(a.apply_chat_template(TALK, tokenize=False, **k) == b.apply_chat_template(TALK, tokenize=False, **k) for k in kwargs),
              f"{what}: chat texts")


def job(where, name, **more):
    write(f"{where}/talk.jsonl", "\n".join(json.dumps({"messages": TALK[:2]}) for _ in range(16)) + "\n")
    write(f"{where}/{name}.json", {"model": {"hf": "hf"}, "dump_folder": name, "dataloader": {"name": "chat", "path": "talk.jsonl"},
                                   "training": {"steps": 2, "seq_len": 64, "local_batch_size": 2}, "lr_scheduler": {"warmup_steps": 0},
                                   "checkpoint": {"last_save_in_hf": True}, **more})
    return ttrun(f"{where}/{name}.json", "-q")


def form(where, name, make):
    hf = f"{where}/hf"
    os.makedirs(hf)
    make(hf)
    source = AutoTokenizer.from_pretrained(hf)
    model(hf, source)
    generation = json.load(open(f"{hf}/generation_config.json"))
    im_end = source.convert_tokens_to_ids("<|im_end|>")

    def stops(d, *more):
        g = json.load(open(f"{d}/generation_config.json"))
        ends = g["eos_token_id"] if isinstance(g["eos_token_id"], list) else [g["eos_token_id"]]
        check(ends == [source.eos_token_id, *more] and {**g, "eos_token_id": 0} == {**generation, "eos_token_id": 0}, f"{d[len(where) + 1:]} of {name}: what stops it: {g}")

    # as it came
    check(job(where, "plain") and ttrun("ckpt", "import", "--from", "hf", hf, f"{where}/in") and
          ttrun("ckpt", "export", "--to", "hf", f"{where}/in", f"{where}/again"), f"{name}: trains, imports, exports")
    for d in ("plain/hf/latest", "again"):
        same_texts(f"{d} of {name}", source, AutoTokenizer.from_pretrained(f"{where}/{d}"))
        check(open(f"{where}/{d}/generation_config.json").read() == open(f"{hf}/generation_config.json").read(), f"{d} of {name}: generation_config.json is the source's")
    # templates of the job
    write(f"{where}/other.jinja", OTHER)
    for template, text in (("chatml", CHATML), ("other.jinja", None)):
        run = f"own_{template}"
        check(job(where, run, dataloader={"name": "chat", "path": "talk.jsonl", "template": template}), f"{name}: trains with {template}")
        os.rename(f"{where}/{run}", f"{where}/{run}.moved")
        check(ttrun("ckpt", "export", "--to", "hf", f"{where}/{run}.moved", f"{where}/{run}.out"), f"{name}: exports the moved run")
        for d in (f"{run}.moved/hf/latest", f"{run}.out"):
            t = AutoTokenizer.from_pretrained(f"{where}/{d}")
            want = text or source.apply_chat_template(TALK, chat_template=OTHER, tokenize=False)
            check(t.apply_chat_template(TALK, tokenize=False) == want, f"{d} of {name}: the job's chat text")
            same_texts(f"{d} of {name}", source, t, False)
            stops(f"{where}/{d}", im_end)
        if make is fast:
            check(ttrun("ckpt", "export", "--to", "gguf", f"{where}/{run}.moved", f"{where}/{run}.gguf"), f"{name}: GGUF")
            fields = GGUFReader(f"{where}/{run}.gguf").fields
            check(fields["tokenizer.chat_template"].contents() == open(f"{where}/{run}.out/chat_template.jinja").read() and
                  fields["tokenizer.ggml.eot_token_id"].contents() == im_end, f"{run}.gguf of {name}: the template, and what ends a turn")
    # an end token of the job
    check(job(where, "end", tokenizer={"eos_token": "<|im_end|>"}), f"{name}: trains with its own end token")
    t = AutoTokenizer.from_pretrained(f"{where}/end/hf/latest")
    check(t.eos_token == "<|im_end|>" and t.eos_token_id == im_end and t.bos_token == source.bos_token, f"{name}: the job's end token is the export's")
    stops(f"{where}/end/hf/latest", im_end)


with tempfile.TemporaryDirectory() as top:
    for i, (name, make) in enumerate(FORMS):
        form(f"{top}/{i}", name, make)
sys.exit(checks.failed > 0)
