# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts between ttrun and torchtitan's checkpoints (torch.distributed.checkpoint with torchtitan's names), optimizer too.

  ours → titan   ckpt export --to torchtitan; torch reads it; by the rules of torchtitan's state_dict_adapter.py it becomes a Hugging Face
                 folder, and transformers' logits with it are those with our own export, and ours within 1e-5. AdamW takes the states.
  titan → ours   dcp.save of the model's tensors, get_optimizer_state_dict and the counts; ckpt import gives the step back to the bit, and the
                 run goes on with the losses of the unbroken one; so it does with the names of torchtitan's releases
  torchtitan     with a checkout of it: its own model takes our checkpoint, no tensor missing or left over, and its logits are ours

  python3 tests/peers/titan_peer.py [BUILD [CHECKOUT]]     (torch 2.15, transformers 5; after make tests)"""
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
import transformers
from transformers import AutoModelForCausalLM
import checks
from checks import check
from dcp_folder import module, of_model, read

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
transformers.logging.set_verbosity_error()
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
BASE = {"dim": 18, "n_layers": 3, "n_heads": 6, "vocab_size": 263, "num_experts": 5, "num_experts_per_tok": 2}
MLA = {"hidden_dim": 27, "moe_intermediate_size": 11, "kv_lora_rank": 7, "qk_nope_head_dim": 5, "qk_rope_head_dim": 6, "v_head_dim": 3,
       "n_shared_experts": 3}
JOBS = {  # name: spec, arguments, multi-token prediction
    "V3: bias, dense layer, mtp": ("deepseek_v3", {**BASE, **MLA, "q_lora_rank": 9, "bias_update_rate": 0.03, "norm_topk_prob": True,
                                                   "num_nextn_predict_layers": 2}, True),
    "V2: whole queries, no bias": ("deepseek_v3", {**BASE, **MLA, "qk_nope_head_dim": 4, "kv_lora_rank": 8, "first_k_dense_replace": 2, "topk_method": "greedy"}, False),
    "dense layers": ("qwen3_moe", {**BASE, "n_kv_heads": 2, "head_dim": 4, "hidden_dim": 35, "moe_intermediate_size": 11,
                                   "mlp_only_layers": [1]}, False),
    "transposed experts": ("gpt_oss", {**BASE, "n_kv_heads": 2, "head_dim": 4, "hidden_dim": 11, "sliding_window": 9}, False),
}

# torchtitan's names, from its adapters; {} is the number of the block. The last column: the last two dims are swapped.
RULES = [
    (r"tok_embeddings\.weight", "model.embed_tokens.weight", 0), (r"norm\.weight", "model.norm.weight", 0), (r"lm_head\.weight", "lm_head.weight", 0),
    (r"attention_norm\.weight", "{}input_layernorm.weight", 0), (r"ffn_norm\.weight", "{}post_attention_layernorm.weight", 0),
    (r"attention\.qkv_linear\.w([qkv])\.(\w+)", r"{}self_attn.\1_proj.\2", 0), (r"attention\.wo\.(\w+)", r"{}self_attn.o_proj.\1", 0),
    (r"attention\.sinks", "{}self_attn.sinks", 0), (r"attention\.k_norm\.weight", "{}self_attn.k_norm.weight", 0),
    (r"attention\.wq\.weight", "{}self_attn.q_proj.weight", 0), (r"attention\.wq_([ab])\.weight", r"{}self_attn.q_\1_proj.weight", 0),
    (r"attention\.wkv_a\.weight", "{}self_attn.kv_a_proj_with_mqa.weight", 0), (r"attention\.wkv_b\.weight", "{}self_attn.kv_b_proj.weight", 0),
    (r"attention\.kv_norm\.weight", "{}self_attn.kv_a_layernorm.weight", 0),
    (r"feed_forward\.w1\.weight", "{}mlp.gate_proj.weight", 0), (r"feed_forward\.w2\.weight", "{}mlp.down_proj.weight", 0),
    (r"feed_forward\.w3\.weight", "{}mlp.up_proj.weight", 0),
    (r"moe\.routed_experts\.inner_experts\.w1_EFD", "{}mlp.experts.gate_proj.weight", 0),
    (r"moe\.routed_experts\.inner_experts\.w2_EDF", "{}mlp.experts.down_proj.weight", 0),
    (r"moe\.routed_experts\.inner_experts\.w3_EFD", "{}mlp.experts.up_proj.weight", 0),
    (r"moe\.routed_experts\.inner_experts\.mlp1_weight_EGD", "{}mlp.experts.gate_up_proj", 1),
    (r"moe\.routed_experts\.inner_experts\.mlp2_weight_EDF", "{}mlp.experts.down_proj", 1),
    (r"moe\.routed_experts\.inner_experts\.mlp1_bias_EG", "{}mlp.experts.gate_up_proj_bias", 0),
    (r"moe\.routed_experts\.inner_experts\.mlp2_bias_ED", "{}mlp.experts.down_proj_bias", 0),
    (r"moe\.shared_experts\.w1\.weight", "{}mlp.shared_experts.gate_proj.weight", 0),
    (r"moe\.shared_experts\.w2\.weight", "{}mlp.shared_experts.down_proj.weight", 0),
    (r"moe\.shared_experts\.w3\.weight", "{}mlp.shared_experts.up_proj.weight", 0),
    (r"(enorm|hnorm|eh_proj)\.weight", r"{}\1.weight", 0), (r"mtp_norm\.weight", "{}shared_head.norm.weight", 0),
]
RELEASE = [("qkv_linear.", ""), ("lm_head.", "output."), ("routed_experts.inner_experts.", "experts."), ("expert_bias_E", "expert_bias")]


def ours(fqn, spec, n_layers):
    """Our name of torchtitan's, and whether the last two dims are swapped; None: only torchtitan has it."""
    m = re.match(r"(mtp_)?layers\.(\d+)\.(.*)", fqn)
    rest = m[3] if m else fqn
    block = f"model.layers.{int(m[2]) + (n_layers if m[1] else 0)}." if m else ""
    router = "mlp.router" if spec == "gpt_oss" else "mlp.gate"
    rules = RULES + [(r"moe\.router\.gate\.(\w+)", "{}" + router + r".\1", 0), (r"moe\.expert_bias_E", "{}mlp.gate.e_score_correction_bias", 0),
                     (r"attention\.q_norm\.weight", "{}self_attn." + ("q_a_layernorm" if spec == "deepseek_v3" else "q_norm") + ".weight", 0)]
    for pattern, to, swapped in rules:
        if ("{}" in to) == bool(m) and re.fullmatch(pattern, rest):
            return re.sub(pattern, to, rest).replace("{}", block), swapped
    raise SystemExit(f"no rule for {fqn}")


def ttrun(*args):
    p = subprocess.run([f"{BUILD}/ttrun", *map(str, args), "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True)
    if p.returncode:
        print(p.stderr[-3000:])
    return p.returncode == 0, p.stderr


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def losses(run):
    with open(f"{run}/metrics.jsonl") as f:
        return {m["step"]: m["loss"] for m in map(json.loads, f) if "loss" in m}


def job(tmp, spec, model, mtp, **more):
    text = f"{tmp}/text.txt"
    with open(text, "w") as f:
        f.write("".join(f"{i} squared is {i * i}, its cube {i ** 3}.\n" for i in range(4000)))
    j = {"spec": spec, "model": model, "tokenizer": {"name": "byte"}, "dataloader": {"name": "text", "path": [text]},
         "optimizer": {"lr": 1e-2}, "lr_scheduler": {"warmup_steps": 3}, "metrics": {"log_freq": 1}, "checkpoint": {"enable": True, "interval": 4},
         "training": {"steps": 8, "seq_len": 32, "local_batch_size": 2, "global_batch_size": 4}, **({"loss": {"mtp_weight": 0.3}} if mtp else {}), **more}
    with open(f"{tmp}/job.json", "w") as f:
        json.dump(j, f)
    return f"{tmp}/job.json"


def our_logits(tmp, spec, model, step, ids):
    path = job(tmp, spec, model, False, checkpoint={"initial_load_path": step, "initial_load_model_only": True},
               training={"local_batch_size": 1, "seq_len": len(ids), "steps": 1})
    ids.numpy().astype(np.int32).tofile(f"{tmp}/ids")
    p = subprocess.run([f"{BUILD}/tests/peers/logits_tool", f"{BUILD}/plugins", path, f"{tmp}/ids", f"{tmp}/logits"], capture_output=True, text=True)
    if p.returncode:
        raise SystemExit(p.stderr[-2000:])
    return np.fromfile(f"{tmp}/logits", np.float32).reshape(len(ids), -1)


def hf_tensors(sd, spec, n_layers, n_experts):
    """torchtitan's state dict as Hugging Face's: experts apart, and no bias where the model has none."""
    out = {}
    for fqn, value in sd.items():
        name, swapped = ours(fqn, spec, n_layers)
        if spec != "deepseek_v3" and name.endswith("e_score_correction_bias"):
            check(not value.any(), f"  {fqn} is zero")
        elif spec != "gpt_oss" and ".mlp.experts." in name:
            for e in range(n_experts):
                out[name.replace(".experts.", f".experts.{e}.")] = value[e].clone()
        else:
            out[name] = (value.transpose(-1, -2) if swapped else value).contiguous()
    return out


def logits_of(folder, ids):
    m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        return m(ids[None, :]).logits[0].float().numpy()


def to_titan(tmp, spec, args, step):
    """Returns the state dict of the export."""
    check(ttrun("ckpt", "export", "--to", "torchtitan", step, f"{tmp}/titan")[0], "export --to torchtitan")
    check(ttrun("ckpt", "export", "--to", "hf", "--type", "f32", step, f"{tmp}/hf")[0], "export --to hf")
    sd, native = read(f"{tmp}/titan"), read(step, HuggingFaceStorageReader)
    wrong = []
    for fqn, value in of_model(sd).items():
        name, swapped = ours(fqn, spec, args["n_layers"])
        pairs = [(fqn, name)] + [(f"optimizer.state.{fqn}.{s}", f"optimizer.state.{name}.{s}") for s in ("exp_avg", "exp_avg_sq")]
        for there, here in pairs:
            if here in native and not same(sd[there].transpose(-1, -2) if swapped else sd[there], native[here]):
                wrong.append(there)
        if name not in native and value.any():
            wrong.append(fqn)
    check(not wrong, f"  weights and states are the step's {wrong[:3]}")
    ids = torch.randint(0, 256, (32,), generator=torch.Generator().manual_seed(3))
    shutil.copytree(f"{tmp}/hf", f"{tmp}/theirs", ignore=shutil.ignore_patterns("*.safetensors*"))
    save_file(hf_tensors(of_model(sd), spec, args["n_layers"], args["num_experts"]), f"{tmp}/theirs/model.safetensors", {"format": "pt"})
    a, b, c = logits_of(f"{tmp}/theirs", ids), logits_of(f"{tmp}/hf", ids), our_logits(tmp, spec, {"args": args}, step, ids)
    check(np.array_equal(a, b) and np.abs(a - c).max() <= 1e-5, f"  transformers' logits are ours within {np.abs(a - c).max():.1e} of {np.abs(a).max():.1f}")
    return sd


def from_titan(tmp, spec, job_file, step, sd, release):
    """Saves as torchtitan does: the model's state dict beside those of optimizer, scheduler and training."""
    name = "release" if release else "today"
    for old, new in RELEASE if release else []:
        sd = {k.replace(old, new): v for k, v in sd.items()}
    if release:
        sd = {re.sub(r"(w[123]|mlp[12]_(weight|bias))_E\w+", r"\1", k): v for k, v in sd.items()}
    model = module(of_model(sd), torch.clone, lambda name: name.startswith("expert_bias"))
    opt = torch.optim.AdamW(model.parameters(), lr=1.0)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    osd = get_optimizer_state_dict(model, opt, options=FLAT)
    missing = [k for k in osd if f"optimizer.{k}" not in sd and torch.is_tensor(osd[k])]
    check(not missing, f"  AdamW finds all of its states {missing[:3]}")
    osd = {k: sd[f"optimizer.{k}"] if torch.is_tensor(v) else v for k, v in osd.items()}
    set_optimizer_state_dict(model, opt, osd, options=FLAT)
    model.load_state_dict(of_model(sd), strict=True)
    out = {**model.state_dict(), "optimizer": get_optimizer_state_dict(model, opt, options=FLAT), "lr_scheduler": {"last_epoch": 4},
           "dataloader": {"dp_rank_0": b"\x80\x04never run"},
           "train_state": {"step": torch.tensor(4, dtype=torch.int32), "ntokens_seen": sd["train_state.ntokens_seen"]}}
    dcp.save(out, checkpoint_id=f"{tmp}/{name}", no_dist=True)
    ok, err = ttrun("ckpt", "import", "--from", "torchtitan", f"{tmp}/{name}", f"{tmp}/in-{name}/checkpoint", job_file)
    check(ok and "ignored" not in err and " W " not in err, f"  import of the names of {'releases' if release else 'today'}")
    check(ttrun("ckpt", "diff", f"{tmp}/in-{name}/checkpoint/step-4", step)[0], "  gives the step back")
    ok = ttrun(job_file, "--dump_folder", f"{tmp}/in-{name}")[0]
    got, want = losses(f"{tmp}/in-{name}"), losses(f"{tmp}/run")
    check(ok and [got[s] for s in (5, 6, 7, 8)] == [want[s] for s in (5, 6, 7, 8)], "  the run goes on with the unbroken one's losses")


def biased(tmp, job_file, sd):
    """A bias that the model has no place for is told."""
    sd = {k: v + 0.5 if k.endswith("expert_bias_E") else v for k, v in sd.items()}
    dcp.save(sd, checkpoint_id=f"{tmp}/biased", no_dist=True)
    ok, err = ttrun("ckpt", "import", "--from", "torchtitan", f"{tmp}/biased", f"{tmp}/in-biased/checkpoint", job_file)
    check(ok and err.count("expert_bias_E' is not zero, and the model has no such tensor") > 0, "  a bias of torchtitan's that is not zero is told")


def checkout(folder):
    """torchtitan itself: its debug models of two layers with our checkpoint."""
    sys.path.insert(0, folder)
    torch.Tensor.bfloat16 = lambda t: t  # it rounds what goes into the experts' products; here all is compared in float32
    yarn = {"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.7, "original_max_position_embeddings": 4096}
    models = {"deepseek_v3": ("deepseek_v3", "debugmodel", {"scoring_func": "softmax", "norm_topk_prob": False, "rope_scaling": yarn}),
              "qwen3_moe": ("qwen3", "debugmodel_moe", {}),
              "gpt_oss": ("gpt_oss", "debugmodel", {"n_heads": 64, "n_kv_heads": 8, "head_dim": 64, "hidden_dim": 2880}), "llama3": ("llama3", "debugmodel", {})}
    for spec, (name, flavor, args) in models.items():
        with tempfile.TemporaryDirectory() as tmp:
            mine = "debugmodel_moe" if spec == "qwen3_moe" else "debugmodel"
            model = {"flavor": mine, "args": {"n_layers": 2, **args}}
            check(ttrun(job(tmp, spec, model, False), "--training.steps", 4, "--dump_folder", f"{tmp}/run")[0], f"torchtitan's {spec}: a run of ours")
            step = f"{tmp}/run/checkpoint/step-4"
            check(ttrun("ckpt", "export", "--to", "torchtitan", step, f"{tmp}/titan")[0], "  export")
            config = importlib.import_module(f"torchtitan.models.{name}").model_registry(flavor, attn_backend="flex").model
            config.layers = config.layers[:2]
            theirs = config.build().eval()
            there = {k: torch.full_like(v, torch.nan) for k, v in theirs.state_dict().items()}
            got = of_model(read(f"{tmp}/titan"))
            same_shapes = {k: v.shape for k, v in there.items()} == {k: v.shape for k, v in got.items()}
            check(same_shapes, f"  names and shapes are those of its state_dict, {len(there)}")
            if not same_shapes:
                continue
            dcp.load(there, checkpoint_id=f"{tmp}/titan", no_dist=True)
            theirs.load_state_dict(there, strict=True)
            if spec == "gpt_oss":
                continue  # its attention has no kernel for the CPU
            for m in theirs.modules():
                if spec == "deepseek_v3" and hasattr(m, "eps"):
                    m.eps = 1e-6  # as in transformers; torchtitan has 1e-5
            ids, pos = torch.randint(0, 256, (32,), generator=torch.Generator().manual_seed(3)), torch.arange(32)
            with torch.no_grad():
                y = theirs(ids, positions=pos, attention_masks=theirs.get_attention_masks(positions=pos)).float().numpy()
            far = np.abs(y - our_logits(tmp, spec, model, step, ids)).max()
            check(far <= 1e-4, f"  its logits are ours within {far:.1e} of {np.abs(y).max():.1f}")


if __name__ == "__main__":
    for what, (spec, args, mtp) in JOBS.items():
        with tempfile.TemporaryDirectory() as tmp:
            job_file = job(tmp, spec, {"args": args}, mtp)
            check(ttrun(job_file, "--dump_folder", f"{tmp}/run")[0], f"{spec}, {what}: a run of 8 steps")
            step = f"{tmp}/run/checkpoint/step-4"
            sd = to_titan(tmp, spec, args, step)
            job(tmp, spec, {"args": args}, mtp)
            for release in (False, True):
                from_titan(tmp, spec, job_file, step, sd, release)
            if spec == "qwen3_moe":
                biased(tmp, job_file, sd)
    if len(sys.argv) > 2:
        checkout(sys.argv[2])
    print(f"torch {torch.__version__}: {checks.failed} wrong")
    sys.exit(1 if checks.failed else 0)
