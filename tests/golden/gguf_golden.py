# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/gguf.json: blocks of Q8_0 as the gguf package quantizes them, and a whole small file of its writer.
Values are the bits of float32; bytes are hex. Run from the root:

    python tests/golden/gguf_golden.py"""
import json
import os
import tempfile
from importlib.metadata import version

import gguf
import numpy as np
from gguf.quants import quantize

Q8 = gguf.GGMLQuantizationType.Q8_0


def blocks():
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.standard_normal((6, 32)), 1e-3 * rng.standard_normal((2, 32)), 1e4 * rng.standard_normal((2, 32)),
                        np.zeros((1, 32)), np.full((1, 32), -1e-30),
                        # halves: 127 fixes d at 1, so these lie on k + 1/2
                        np.concatenate([[127.0], np.arange(31) - 15.5])[None],
                        np.concatenate([[-254.0], (np.arange(31) - 15) * 1.0])[None],
                        np.full((1, 32), 6e4 * 127)]).astype(np.float32)
    return x


def bits(x):
    return np.ascontiguousarray(x).view(np.uint32).ravel().tolist()


def whole_file(tensors):
    with tempfile.TemporaryDirectory() as d:
        w = gguf.GGUFWriter(f"{d}/x", "x")
        w.add_uint32("a.u32", 4000000000)
        w.add_float32("a.f32", 0.1)
        w.add_bool("a.bool", True)
        w.add_string("a.string", "é\n\"q\"")
        w.add_array("a.strings", ["a", "bc", "", "Ġd"])
        w.add_array("a.i32s", [1, -2, 3])
        for name, x, kind in tensors:
            w.add_tensor(name, quantize(x, kind), raw_dtype=kind)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        return open(f"{d}/x", "rb").read()


def main():
    x = blocks()
    rng = np.random.default_rng(8)
    T = gguf.GGMLQuantizationType
    tensors = [("one", rng.standard_normal(3).astype(np.float32), T.F32), ("two", rng.standard_normal((2, 5)).astype(np.float32), T.F16),
               ("three", rng.standard_normal((1, 7)).astype(np.float32), T.BF16),
               ("blk.0.four", rng.standard_normal((2, 3, 64)).astype(np.float32), T.Q8_0)]
    out = {"made_by": f"tests/golden/gguf_golden.py, gguf {version('gguf')}",
           "q8_0": {"bits": bits(x), "bytes": quantize(x, Q8).tobytes().hex()},
           "file": {"tensors": [{"name": n, "shape": list(t.shape), "type": int(k), "bits": bits(t)} for n, t, k in tensors],
                    "bytes": whole_file(tensors).hex()}}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf.json")
    with open(path, "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


main()
