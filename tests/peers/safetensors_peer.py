# SPDX-License-Identifier: Apache-2.0
"""Our safetensors writer against Hugging Face's: the same bytes for 20 random dicts.

  safetensors_peer.py            live: safetensors writes, ckpt_tool reads and rewrites, bytes compared
  safetensors_peer.py --golden   tests/golden/safetensors_writer.json from the same dicts, for test_safetensors_write.c
Byte i of the k-th tensor (in the dict's order) is (7*i + 13*k + 1) mod 256, so the golden file holds no data, only the
file's size and FNV-1a hash."""
import json
import os
import random
import sys
import tempfile

import safetensors
import safetensors.torch
import torch

import peer_tool

DTYPES = {"BOOL": ("bool", 1), "U8": ("uint8", 1), "I8": ("int8", 1), "F8_E5M2": ("float8_e5m2", 1),
          "F8_E4M3": ("float8_e4m3fn", 1), "I16": ("int16", 2), "U16": ("uint16", 2), "F16": ("float16", 2),
          "BF16": ("bfloat16", 2), "I32": ("int32", 4), "U32": ("uint32", 4), "F32": ("float32", 4),
          "C64": ("complex64", 8), "F64": ("float64", 8), "I64": ("int64", 8), "U64": ("uint64", 8)}
NAMES = ["weight", "model.layers.%d.mlp.up_proj.weight", "é%d", "with \"quotes\" %d", "back\\slash%d", "tab\t%d", "nl\n%d",
         "\u0001\b\f\r%d", "\x7f%d", "/slash%d", "日本%d", "😀%d", "a%d", "A%d", "z.%d", ""]
METADATA = [None, {"format": "pt"}, {"note": "é \"q\" \n\u0002 /"}, {"": ""}]


def cases():
    rng = random.Random(7)
    for c in range(20):
        tensors = {}
        for k in range(rng.choice([0, 1, 2, 5, 12, 30]) if c else 0):
            name = rng.choice(NAMES)
            name = name % rng.randrange(40) if "%d" in name else name
            shape = [rng.choice([0, 1, 2, 3, 7, 16]) for _ in range(rng.randrange(5))]
            tensors.setdefault(name, (rng.choice(list(DTYPES)), shape))
        yield tensors, METADATA[c % len(METADATA)]


def serialize(tensors, metadata):
    given = {}
    for k, (name, (dtype, shape)) in enumerate(tensors.items()):
        n = DTYPES[dtype][1]
        for s in shape:
            n *= s
        data = bytearray((7 * i + 13 * k + 1) % 256 for i in range(n))
        torch_dtype = getattr(torch, DTYPES[dtype][0])
        given[name] = torch.frombuffer(data, dtype=torch_dtype).reshape(shape) if n else torch.empty(shape, dtype=torch_dtype)
    return safetensors.torch.save(given, metadata=metadata)


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 % (1 << 64)
    return h


def golden():
    out = []
    for tensors, metadata in cases():
        data = serialize(tensors, metadata)
        out.append({"tensors": [{"name": n, "dtype": d, "shape": s} for n, (d, s) in tensors.items()],
                    "metadata": metadata, "bytes": len(data), "fnv1a": f"{fnv(data):016x}"})
    path = os.path.join(peer_tool.ROOT, "tests/golden/safetensors_writer.json")
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")


def live():
    tool, bad = peer_tool.build(), 0
    with tempfile.TemporaryDirectory() as tmp:
        for c, (tensors, metadata) in enumerate(cases()):
            data = serialize(tensors, metadata)
            with open(f"{tmp}/in", "wb") as f:
                f.write(data)
            rc, text = peer_tool.run(tool, "rewrite", f"{tmp}/in", f"{tmp}/out")
            same = rc == 0 and open(f"{tmp}/out", "rb").read() == data
            bad += not same
            print(f"{'same' if same else 'DIFFERENT'}  {len(tensors)} tensors, {len(data)} bytes {text}".rstrip())
    print(f"safetensors {safetensors.__version__}: {c + 1 - bad} of {c + 1} byte-identical")
    return bad


sys.exit(golden() if "--golden" in sys.argv else live())
