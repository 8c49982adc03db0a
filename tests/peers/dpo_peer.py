# SPDX-License-Identifier: Apache-2.0
"""DPO beside TRL's DPOTrainer: the same weights, the same pairs, ten steps of AdamW in f32: losses and rewards of each loss_type, and that
ttrun's ids and masks of a pair are TRL's. Also SFT beside transformers: 50 steps' losses, and packed conversations beside the same ones alone.
python tests/peers/dpo_peer.py --ttrun build/release/ttrun"""
import argparse, glob, json, os, random, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import chat_peer
import checks
from checks import check

LAYOUT = {"dim": 48, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 96, "norm_eps": 1e-5, "rope_theta": 10000.0}
LR, STEPS, BATCH = 1e-3, 10, 4
# Nothing behind the token that ends a turn: TRL would learn that too, of the last turn.
TEMPLATE = ("{% for m in messages %}{% if not loop.first %}\n{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}")
def run(ttrun, *args):
    p = subprocess.run([ttrun, *map(str, args), "--quiet"], capture_output=True, text=True, timeout=600)
    if p.returncode:
        sys.exit(f"{args}: {p.stderr}")
    return p.stdout


def sentence(rng):
    return " ".join(rng.choice("the cat sat on a mat and saw two dogs run far away over green hills".split()) for _ in range(rng.randint(1, 9)))


def pairs(rng, n):
    """prompt as messages, sometimes of several turns; sometimes the answers have the whole conversation"""
    out = []
    for i in range(n):
        prompt = [{"role": "user", "content": sentence(rng)}]
        if i % 3 == 0:
            prompt += [{"role": "assistant", "content": sentence(rng)}, {"role": "user", "content": sentence(rng)}]
        answers = [[{"role": "assistant", "content": sentence(rng) + " " + word}] for word in ("yes", "no")]
        out.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]} if i % 2 else
                   {"chosen": prompt + answers[0], "rejected": prompt + answers[1]})
    return out


def job(folder, vocab, name, seq_len, steps, loader, **more):
    j = {"spec": "llama3", "model": {"flavor": "debugmodel", "args": dict(LAYOUT, vocab_size=vocab)},
         "tokenizer": {"name": "hf", "path": os.path.join(folder, "tokenizer")},
         "dataloader": {"name": "chat", "path": [os.path.join(folder, "d.jsonl")], "shuffle": False, **loader},
         "optimizer": {"lr": LR, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
         "lr_scheduler": {"name": "constant", "warmup_steps": 0},
         "training": {"local_batch_size": BATCH, "seq_len": seq_len, "steps": steps, "max_norm": 0},
         "metrics": {"log_freq": 1, "enable_tensorboard": False}, "checkpoint": {"enable": False}, **more}
    path = os.path.join(folder, name + ".json")
    with open(path, "w") as f:
        json.dump(j, f)
    return path


def lines(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


def weights(ttrun, folder, path):
    """The initial weights as a Hugging Face folder."""
    run(ttrun, path, "--dump_folder", os.path.join(folder, "seed"), "--checkpoint.enable", "true", "--checkpoint.create_seed_checkpoint", "true")
    run(ttrun, "ckpt", "export", os.path.join(folder, "seed"), os.path.join(folder, "hf"), "--to", "hf")


def dpo(ttrun, folder, hf, loss_type, more, packed=False):
    """packed: each step has all pairs, for ttrun in samples of several"""
    import torch
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer
    with open(os.path.join(folder, "d.jsonl")) as f:
        data = [json.loads(line) for line in f]
    loader = {"pairs": True, "packing": "best_fit" if packed else "none"}
    path = job(folder, len(hf), "dpo", 256, STEPS, loader, loss={"name": "dpo", "loss_type": loss_type, **more})
    out = os.path.join(folder, f"out-{loss_type}-{packed}")
    samples = json.loads(run(ttrun, "data", "build", path, "--json"))["samples"]
    batch, pairs_of_batch = (samples, len(data)) if packed else (BATCH, BATCH)
    run(ttrun, path, "--dump_folder", out, "--checkpoint.enable", "true", "--checkpoint.initial_load_path", os.path.join(folder, "hf"),
        "--training.local_batch_size", batch)

    class InOrder(DPOTrainer):
        losses = [] # the log has four digits

        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, *args, **kwargs):
            out = super().compute_loss(*args, **kwargs)
            self.losses.append((out[0] if isinstance(out, tuple) else out).item())
            return out

    model = LlamaForCausalLM.from_pretrained(os.path.join(folder, "hf"), dtype=torch.float32)
    config = DPOConfig(output_dir=os.path.join(folder, "trl"), loss_type=loss_type, learning_rate=LR, lr_scheduler_type="constant", warmup_steps=0,
                       per_device_train_batch_size=pairs_of_batch, max_steps=STEPS, logging_steps=1, max_grad_norm=0.0, weight_decay=0.0, adam_beta1=0.9,
                       adam_beta2=0.999, adam_epsilon=1e-8, bf16=False, fp16=False, use_cpu=True, report_to="none", save_strategy="no",
                       gradient_checkpointing=False, disable_tqdm=True, max_length=None, optim="adamw_torch",
                       train_sampling_strategy="sequential", **more)
    same = [{"prompt": d.get("prompt") or d["chosen"][:-1], "chosen": d["chosen"][-1:], "rejected": d["rejected"][-1:]} for d in data]
    trainer = InOrder(model, args=config, train_dataset=Dataset.from_list(same), processing_class=hf)
    trainer.train()
    theirs, mine = [s for s in trainer.state.log_history if "loss" in s], lines(out)
    far = max(abs(a["loss"] - b) for a, b in zip(mine, InOrder.losses))
    if far > 1e-4:
        print(*((a["loss"], b) for a, b in zip(mine, InOrder.losses)), theirs[:2], mine[:2], sep="\n")
    keys = {"chosen": "rewards/chosen", "rejected": "rewards/rejected", "accuracy": "rewards/accuracies", "margin": "rewards/margins"}
    rewards = max(abs(a["rewards"][k] - float(b[t])) for a, b in zip(mine, theirs) for k, t in keys.items())
    check(len(mine) == len(theirs) == len(InOrder.losses) == STEPS and far <= 1e-4 and rewards <= 2e-4 and (samples < len(data)) == packed,
          f"dpo {loss_type} beside TRL, {len(data)} pairs in {samples} samples: losses of {STEPS} steps within {far:.1e}, rewards within {rewards:.1e}")


def conversations(rng, n):
    out = []
    for i in range(n):
        turns = []
        for _ in range(rng.randint(1, 3)):
            turns += [{"role": "user", "content": sentence(rng)}, {"role": "assistant", "content": sentence(rng)}]
        out.append({"messages": turns})
    return out


def sft(ttrun, folder, hf):
    """50 steps of a plain PyTorch loop on transformers' Llama, over ttrun's samples, each conversation alone."""
    import torch
    from transformers import LlamaForCausalLM
    seq, steps = 128, 50
    path = job(folder, len(hf), "sft", seq, steps, {})
    out = os.path.join(folder, "out-sft")
    run(ttrun, path, "--dump_folder", out, "--checkpoint.enable", "true", "--checkpoint.initial_load_path", os.path.join(folder, "hf"))
    shown = json.loads(run(ttrun, "data", "show", path, "--n", steps * BATCH, "--json"))["samples"]
    torch.manual_seed(0)
    model = LlamaForCausalLM.from_pretrained(os.path.join(folder, "hf"), dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    far = 0
    for step, line in enumerate(lines(out)):
        batch = shown[step * BATCH:(step + 1) * BATCH]
        ids, labels = (torch.tensor([s[k] for s in batch]) for k in ("ids", "labels"))
        logits = model(input_ids=ids).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        far = max(far, abs(loss.item() - line["loss"]))
    check(far <= 1e-4, f"sft beside transformers: losses of {steps} steps within {far:.1e}")
    # one step over all conversations: packed or alone, the mean over learned tokens is the same
    one, places = {}, {}
    for packing in ("none", "best_fit"):
        n = places[packing] = json.loads(run(ttrun, "data", "build", path, "--json", "--dataloader.packing", packing))["samples"]
        d = os.path.join(folder, "out-" + packing)
        run(ttrun, path, "--dump_folder", d, "--dataloader.packing", packing, "--training.steps", 1, "--training.local_batch_size", n)
        one[packing] = lines(d)[0]
    far = max(abs(one["none"][k] - one["best_fit"][k]) for k in ("loss", "grad_norm"))
    check(far <= 1e-5 and places["best_fit"] < places["none"],
          f"{places['none']} conversations packed into {places['best_fit']} samples, and alone: loss and norm of all within {far:.1e}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ttrun", default="./ttrun")
    p.add_argument("--only", help="sft, or a loss_type")
    a = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    ttrun = os.path.abspath(a.ttrun)
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        hf = chat_peer.tokenizer(os.path.join(folder, "tokenizer"), "chatml")
        hf.pad_token, hf.chat_template = "</s>", TEMPLATE
        hf.save_pretrained(os.path.join(folder, "tokenizer"))
        data = os.path.join(folder, "d.jsonl")
        with open(data, "w") as f:
            f.writelines(json.dumps(x) + "\n" for x in conversations(rng, 50 * BATCH))
        weights(ttrun, folder, job(folder, len(hf), "seed", 128, 1, {}))
        if a.only in (None, "sft"):
            sft(ttrun, folder, hf)
        with open(data, "w") as f:
            f.writelines(json.dumps(x) + "\n" for x in pairs(rng, STEPS * BATCH))
        for loss_type, more in (("sigmoid", {}), ("sigmoid_norm", {"beta": 0.5}), ("hinge", {"beta": 0.3}), ("ipo", {}),
                                ("robust", {"label_smoothing": 0.1})):
            if a.only in (None, loss_type):
                dpo(ttrun, folder, hf, loss_type, more)
                dpo(ttrun, folder, hf, loss_type, more, packed=True)
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
