#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small files of tokens as Megatron-LM (indexed_dataset.py) and modalities (create_packed_data.py) lay them out, written
from their documented layouts, as lines "NAME HEX". Lists of documents are pickled by Python itself.

    python3 tests/golden/token_files.py > tests/golden/token_files.txt
"""
import pickle
import struct

SEQUENCES = [[5, 6, 7], [8], [9, 10], [300], [11, 12, 13, 14]]  # documents: 0-1, 2, 3-4
DOCUMENTS = [0, 2, 3, 5]
CODES = {"B": 1, "i": 4, "q": 5, "H": 8}


def megatron(name, letter, sequences, documents, modes=False):
    size = struct.calcsize("<" + letter)
    tokens = b"".join(struct.pack("<%d%s" % (len(s), letter), *s) for s in sequences)
    offsets, at = [], 0
    for s in sequences:
        offsets.append(at)
        at += len(s) * size
    n = len(sequences)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[letter], n, len(documents))
    index += struct.pack("<%di" % n, *map(len, sequences)) + struct.pack("<%dq" % n, *offsets)
    index += struct.pack("<%dq" % len(documents), *documents)
    if modes:
        index += bytes(n)
    print(name + ".bin", tokens.hex())
    print(name + ".idx", index.hex())


def pbin(name, size, documents):
    data, pairs = b"", []
    for d in documents:
        raw = b"".join(t.to_bytes(size, "little") for t in d)
        pairs.append((len(data), len(raw)))
        data += raw
    print(name + ".pbin", (struct.pack("<QI", len(data), size) + data + pickle.dumps(pairs, protocol=4)).hex())


megatron("u16", "H", SEQUENCES, DOCUMENTS)
megatron("i32", "i", SEQUENCES, DOCUMENTS, modes=True)
megatron("i64", "q", SEQUENCES, DOCUMENTS)
megatron("u8", "B", [[1, 2], [], [3]], [0, 1, 2, 3])  # an empty sequence is a document of its own
pbin("p2", 2, [[5, 6, 7, 8], [9, 10], [300, 11, 12, 13, 14]])
pbin("p4", 4, [[70000 + i for i in range(200)], [1, 2, 3], [4]])  # offsets beyond 255
pbin("p1", 1, [[7]] * 1100)  # more than one batch of appends
