# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/sft/: what transformers makes of conversations, for tests/run/test_sft.sh. Run from the root after `make`:

    python tests/golden/sft_golden.py [--ttrun ./ttrun]        needs torch, transformers, tokenizers

  tokenizer/tokenizer.json   a byte-level BPE that has the special tokens of all four templates
  tokenizer/STYLE.jinja      a template with {% generation %} blocks, beside the tokenizer_config.json that names its <s> and </s>
  STYLE.jsonl                conversations: random ones, and those of edges()
  STYLE.txt                  of each conversation at LENGTH, its end cut: its loss with the initial weights, the first and the last place of
                             each run of learned labels, its ids
  STYLE.left.txt             of each conversation of more than SHORT + 1 tokens that keeps a label there, its beginning cut: the same, without loss
  losses.txt                 of each style the mean over all learned tokens with the initial weights, then the losses of STEPS steps of AdamW

headers is in the manner of Llama-3's template, thinking of Qwen3's, instruct of Mistral's; the texts are those of chat_golden.py.
Initial weights are ttrun's own, which it writes as a folder of Hugging Face; the model is transformers' Llama in float64."""
import argparse, json, os, random, shutil, subprocess, sys, tempfile

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import chat_golden as golden

OUT = os.path.join(HERE, "sft")
SPECIAL = ["<s>", "</s>", "<|start|>", "<|end|>", "<|eot|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]
LENGTH, SHORT, BATCH, STEPS, VOCAB = 96, 48, 4, 8, 400
LAYOUT = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": VOCAB}


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = [golden.sentence(rng) for _ in range(300)] + ["user assistant system tool think arguments name function"] * 50
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIAL, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    path = os.path.join(OUT, "tokenizer")
    os.makedirs(path)
    with open(os.path.join(path, "tokenizer.json"), "w") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")
    with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
        f.write('{"bos_token":"<s>","eos_token":"</s>"}\n')
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>")


def edges(style):
    """one word; an empty answer; nothing but line breaks; letters of several bytes; an answer that fills a sample; a question that does;
    two answers in a row and an assistant who begins, where the template allows it"""
    def talk(*turns):
        return [{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(turns)]

    out = [talk("a", "b"), talk("a", ""), talk("a", "\n\n"), talk("\u0301e", "e\u0301 \u4e2d\u6587 \U0001f469\u200d\U0001f4bb"),
           talk("a", "the cat " * 60), talk("42 " * 70, "no"), talk("a", "b", "c", "d " * 80, "e", "f"),
           [{"role": "system", "content": ""}] + talk("a", "b"), talk(" a ", "  b  ")]
    if style != "instruct":
        out += [talk("a", "b")[1:], talk("a", "b") + [{"role": "assistant", "content": "c"}]]
    return out


def conversations(style):
    """transformers finds special tokens in what somebody wrote; ttrun does not: such texts are left out."""
    rng, out = random.Random("sft " + style), []
    while len(out) < 16:
        c = golden.conversation(rng, style)
        if not any(s in json.dumps(c, ensure_ascii=False) for s in SPECIAL):
            out.append(c)
    return out + edges(style)


def runs(mask):
    at = [i for i, m in enumerate(mask) if m]
    first = [i for i in at if i - 1 not in at]
    return ",".join(f"{i}-{next(j for j in at if j >= i and j + 1 not in at)}" for i in first)


def encode(hf, style, c):
    w = hf.apply_chat_template(c, chat_template=golden.MARKED[style], return_dict=True, return_assistant_tokens_mask=True)
    return w["input_ids"], w["assistant_masks"]


def cut(ids, mask, n, left):
    """n places: ids, and whether the label of each is learned"""
    ids, mask = (ids[-n - 1:], mask[-n - 1:]) if left else (ids[:n + 1], mask[:n + 1])
    return ids[:-1], mask[1:], ids[1:]


def weights(ttrun, folder):
    with open(os.path.join(OUT, "job.json")) as f:
        job = json.load(f)
    job["tokenizer"]["path"] = os.path.join(OUT, "tokenizer")
    job["dataloader"].update(path=[os.path.join(OUT, "chatml.jsonl")], template=os.path.join(OUT, "tokenizer", "chatml.jinja"))
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(job, f)
    for args in ([path, "--dump_folder", folder + "/seed", "--checkpoint.enable", "true", "--checkpoint.create_seed_checkpoint", "true"],
                 ["ckpt", "export", folder + "/seed", folder + "/hf", "--to", "hf"]):
        subprocess.run([ttrun, *args, "--quiet"], check=True, timeout=300)
    return lambda: LlamaForCausalLM.from_pretrained(folder + "/hf", dtype=torch.float64)


def nll(model, places):
    """the sum over the learned labels of a list of conversations, each by itself, and how many there are"""
    total, n = 0, 0
    for ids, mask, labels in places:
        logits = model(input_ids=torch.tensor([ids])).logits[0]
        target = torch.tensor([t if m else -100 for t, m in zip(labels, mask)])
        total = total + torch.nn.functional.cross_entropy(logits, target, ignore_index=-100, reduction="sum")
        n += sum(mask)
    return total, n


def train(model, places):
    o = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    out = []
    for step in range(STEPS):
        total, n = nll(model, [places[(step * BATCH + i) % len(places)] for i in range(BATCH)])
        loss = total / n
        o.zero_grad()
        loss.backward()
        o.step()
        out.append(loss.item())
    return out


def write(name, lines):
    with open(os.path.join(OUT, name), "w") as f:
        f.writelines(x + "\n" for x in lines)


def style_files(hf, fresh, style, losses):
    encoded = [encode(hf, style, c) for c in conversations(style)]
    whole = [p for p in (cut(i, m, LENGTH, False) for i, m in encoded) if any(p[1])]
    left = [p for p in (cut(i, m, SHORT, True) for i, m in encoded if len(i) > SHORT + 1) if any(p[1])]
    model = fresh()
    with torch.no_grad():
        each = [nll(model, [p]) for p in whole]
    write(f"{style}.txt", [f"{t.item() / n:.9f} {runs(p[1])} {' '.join(map(str, p[0]))}" for (t, n), p in zip(each, whole)])
    write(f"{style}.left.txt", [f"{runs(p[1])} {' '.join(map(str, p[0]))}" for p in left])
    mean = sum(t.item() for t, _ in each) / sum(n for _, n in each)
    losses.append(f"{style} {mean:.9f} " + " ".join(f"{x:.9f}" for x in train(model, whole)))
    print(style, len(encoded), "conversations,", len(whole), "with a label,", len(left), "cut at the left,",
          sum(len(i) > LENGTH + 1 for i, _ in encoded), "cut at the right")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ttrun", default="./ttrun")
    ttrun = os.path.abspath(p.parse_args().ttrun)
    shutil.rmtree(OUT, ignore_errors=True)
    hf = tokenizer()
    job = {"spec": "llama3", "model": {"flavor": "debugmodel", "args": LAYOUT}, "tokenizer": {"name": "hf", "path": "tokenizer"},
           "dataloader": {"name": "chat", "shuffle": False},
           "optimizer": {"lr": 2e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
           "lr_scheduler": {"name": "constant", "warmup_steps": 0},
           "training": {"local_batch_size": BATCH, "seq_len": LENGTH, "steps": STEPS, "max_norm": 0, "seed": 7},
           "metrics": {"log_freq": 1, "enable_tensorboard": False}, "checkpoint": {"enable": False}}
    with open(os.path.join(OUT, "job.json"), "w") as f:
        json.dump(job, f, indent=1)
        f.write("\n")
    for style in golden.STYLES:
        write(f"{style}.jsonl", [json.dumps({"messages": c}) for c in conversations(style)])
        with open(os.path.join(OUT, "tokenizer", f"{style}.jinja"), "w") as f:
            f.write(golden.MARKED[style])
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        fresh = weights(ttrun, folder)
        for style in golden.STYLES:
            style_files(hf, fresh, style, losses)
    write("losses.txt", losses)


if __name__ == "__main__":
    main()
