# SPDX-License-Identifier: Apache-2.0
"""Builds tests/peers/ckpt_tool.c with the core that `make` has built, into a temporary folder, and runs it."""
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build():
    given = os.environ.get("CKPT_TOOL")
    if given:
        return given
    out = os.path.join(tempfile.mkdtemp(prefix="ckpt_tool."), "ckpt_tool")
    core = f"{ROOT}/build/release/libttrun_core.a"
    if not os.path.exists(core):
        raise SystemExit(f"{core}: no such file; run make first")
    libs = ("jansson", "ltdl", "zstd", "z", "pcre2-8", "utf8proc", "m", "dl", "pthread")
    subprocess.run(["gcc", "-std=c11", "-O1", "-g", *(f"-I{ROOT}/{d}" for d in ("include", "core", "lib", "tools", ".")), "-o", out,
                    f"{ROOT}/tests/peers/ckpt_tool.c", core, *(f"-l{lib}" for lib in libs)], check=True)
    return out


def run(tool, *args):
    p = subprocess.run([tool, *map(str, args)], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr
