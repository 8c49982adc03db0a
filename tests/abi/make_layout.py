#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the layout of every public struct as tests/abi/v<major>_<minor>.def: run again when a struct changes (test_layout.c).

    python3 tests/abi/make_layout.py > tests/abi/v0_1.def
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
structs = []
for header in sorted(glob.glob(os.path.join(root, "include/ttrun/*.h"))):
    text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.S)
    for match in re.finditer(r"typedef struct (tt_\w+) \{(.*?)\n\} \1;", text, flags=re.S):
        fields = []
        for line in filter(None, (d.strip() for d in match.group(2).split(";"))):
            pointer = re.search(r"\(\*(\w+)\)\s*\(", line)
            if pointer:
                fields.append(pointer.group(1))
                continue
            for part in re.sub(r"\[[^\]]*\]", "", line).split(","):
                fields.append(re.search(r"(\w+)$", part.strip()).group(1))
        structs.append((match.group(1), fields))

with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/layout.c", "w") as c:
        c.write("#include <stdio.h>\n#include <ttrun/ttrun.h>\nint main(void)\n{\n")
        for name, fields in structs:
            c.write('printf("SIZE(%s, %%zu)\\n", sizeof(%s));\n' % (name, name))
            for f in fields:
                c.write('printf("AT(%s, %s, %%zu)\\n", offsetof(%s, %s));\n' % (name, f, name, f))
        c.write("return 0;\n}\n")
    subprocess.check_call(["cc", "-I" + root + "/include", folder + "/layout.c", "-o", folder + "/layout"])
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_layout.py; see test_layout.c. 64-bit. */")
    sys.stdout.flush()
    subprocess.check_call([folder + "/layout"])
