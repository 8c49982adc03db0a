# SPDX-License-Identifier: Apache-2.0
"""Builds tests/peers/ckpt_tool.c with the parts of the core it needs, into a temporary folder, and runs it."""
import glob
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build():
    given = os.environ.get("CKPT_TOOL")
    if given:
        return given
    out = os.path.join(tempfile.mkdtemp(prefix="ckpt_tool."), "ckpt_tool")
    sources = [s for d in ("base", "mesh", "config", "checkpoint") for s in glob.glob(f"{ROOT}/core/{d}/*.c")]
    subprocess.run(["gcc", "-std=c11", "-O1", "-g", f"-I{ROOT}/include", f"-I{ROOT}/core", "-o", out,
                    f"{ROOT}/tests/peers/ckpt_tool.c", *sources, "-lm", "-lpthread"], check=True)
    return out


def run(tool, *args):
    p = subprocess.run([tool, *map(str, args)], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr
