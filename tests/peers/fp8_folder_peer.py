# SPDX-License-Identifier: Apache-2.0
"""ckpt export --to hf --type fp8 of models that trained with the converter blockwise: codes and scales are those of torch's definition of
e4m3 with a scale per 128 x 128 elements, to the bit; transformers opens the folder (FineGrainedFP8Config) and computes the losses that
ttrun does.

  python3 tests/peers/fp8_folder_peer.py     (torch, transformers, safetensors; after make)"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, pad
import checks
from checks import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = 128
MODELS = {
    "llama3 of whole blocks": {"dim": 256, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 384, "vocab_size": 300},
    "llama3": {"dim": 200, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 333, "vocab_size": 300},
    "qwen3_moe": {"dim": 136, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 40, "num_experts": 3, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 130, "vocab_size": 300},
}
def ttrun(*args):
    p = subprocess.run([f"{ROOT}/ttrun", *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"ttrun {args[0]}: {p.stderr}")
    return p.stdout


def spread(scale, shape):
    return scale.repeat_interleave(BLOCK, 0)[:shape[0]].repeat_interleave(BLOCK, 1)[:, :shape[1]]


def quantized(w):
    rows, cols = w.shape
    whole = pad(w, (0, -cols % BLOCK, 0, -rows % BLOCK))
    amax = whole.view(whole.shape[0] // BLOCK, BLOCK, whole.shape[1] // BLOCK, BLOCK).abs().amax((1, 3)).clamp(min=1e-12)
    times = torch.full_like(amax, 448.0) / amax
    return (w * spread(times, w.shape)).clamp(-448, 448).to(torch.float8_e4m3fn), torch.ones_like(times) / times


def main():
    transformers.utils.logging.disable_progress_bar()
    for name, args in MODELS.items():
        spec = name.split()[0]
        with tempfile.TemporaryDirectory() as d:
            job = {"spec": spec, "model": {"args": args}, "tokenizer": {"name": "byte"}, "dataloader": {"path": [os.path.join(ROOT, "README.md")]},
                   "converters": [{"name": "blockwise"}], "training": {"steps": 3, "seq_len": 64, "local_batch_size": 2},
                   "optimizer": {"lr": 0.01}, "dump_folder": f"{d}/run"}
            with open(f"{d}/job.json", "w") as f:
                json.dump(job, f)
            ttrun("-q", f"{d}/job.json")
            for kind in "fp8", "f32":
                ttrun("ckpt", "export", "--to", "hf", "--type", kind, f"{d}/run", f"{d}/{kind}")
            ours, plain = load_file(f"{d}/fp8/model.safetensors"), load_file(f"{d}/f32/model.safetensors")
            low = sorted(k for k, v in ours.items() if v.dtype == torch.float8_e4m3fn)
            wrong = [k for k in low for codes, scale in [quantized(plain[k])]
                     if not (torch.equal(codes.view(torch.uint8), ours[k].view(torch.uint8)) and torch.equal(scale, ours[k + "_scale_inv"]))]
            check(low and not wrong, f"{name}: {len(low)} matrices in float8, as torch's {wrong[:2]}")
            rest = [k for k in plain if k not in low]
            check(all(torch.equal(ours[k], plain[k].bfloat16()) for k in rest) and len(ours) == len(rest) + 2 * len(low), f"{name}: {len(rest)} others in bf16")
            if all(n % BLOCK == 0 for k in low for n in ours[k].shape):  # what FineGrainedFP8Config can dequantize
                folder, how = f"{d}/fp8", {"quantization_config": transformers.FineGrainedFP8Config(dequantize=True)}
            else:
                folder, how = f"{d}/f32", {}
                save_file({k: ours[k].float() * spread(ours[k + "_scale_inv"], ours[k].shape) if k in low else ours[k].float() for k in plain},
                          f"{d}/f32/model.safetensors", {"format": "pt"})
            m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager", **how).eval()
            with open(f"{d}/text", "w") as f:
                f.write("int main(void) { return 0; } " * 9)
            ids = torch.tensor([256, *open(f"{d}/text", "rb").read(), 257])
            got = float(json.loads(ttrun("eval", "--checkpoint", f"{d}/fp8", "--data", f"{d}/text", "--seq_len", 64, "--json", "--tokenizer.name", "byte"))["loss"])
            whole = [ids[i:i + 65] for i in range(0, len(ids) - 1, 64)]
            with torch.no_grad():
                losses = torch.cat([cross_entropy(m(x[None, :-1]).logits[0], x[1:], reduction="none") for x in whole])
            check(abs(losses.mean().item() - got) < 2e-5, f"{name}: transformers' loss {losses.mean().item():.6f}, ours {got:.6f}")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
