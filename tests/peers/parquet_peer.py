#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parquet files that pyarrow, and fastparquet where it is installed, write: all rows of all encodings, codecs, page versions and nestings are
what ttrun reads (tests/run/parquet_tool). parquet_peer.py BUILD_FOLDER"""
import decimal
import itertools
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checks import check
import checks

tool = os.path.join(sys.argv[1], "tests/run/parquet_tool")
folder = tempfile.mkdtemp(prefix="ttrun-parquet-")
path = os.path.join(folder, "a.parquet")
rng = random.Random(7)


def plain(v, kind):
    """A value as ttrun prints it."""
    if v is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: plain(v[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        pairs = v.items() if isinstance(v, dict) else v
        return {k if isinstance(k, str) else json.dumps(plain(k, kind.key_type)): plain(x, kind.item_type) for k, x in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [plain(x, kind.value_type) for x in v]
    if pa.types.is_dictionary(kind):
        return plain(v, kind.value_type)
    if pa.types.is_floating(kind):
        v = float(v)
        return v if math.isfinite(v) else None
    if isinstance(v, decimal.Decimal):
        return float(v)
    if isinstance(v, bytes):
        return v.decode()
    return v


def word():
    return "".join(rng.choice("aé\n\"\\\t\x01世🙂bcd ") for _ in range(rng.choice([0, 1, 3, 40])))


def make(kind, nulls=True):
    if nulls and rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {f.name: make(f.type, f.nullable) for f in kind}
    if pa.types.is_map(kind):
        keys = {json.dumps(k): k for k in (make(kind.key_type, False) for _ in range(rng.choice([0, 1, 3])))}
        return [(k, make(kind.item_type, kind.item_field.nullable)) for k in keys.values()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [make(kind.value_type, kind.value_field.nullable) for _ in range(rng.choice([0, 0, 1, 2, 9]))]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return word()
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_float16(kind):
        return np.float16(rng.choice([0.0, -0.0, 1.5, 6e-8, 65504.0, -3.25]))
    if pa.types.is_floating(kind):
        v = rng.choice([0.0, 1.5, -1e-7, 3.4e38, 1e-310, math.inf, math.nan, rng.random()])
        return struct.unpack("f", struct.pack("f", v))[0] if kind == pa.float32() and abs(v) < 3.5e38 else v
    if pa.types.is_fixed_size_binary(kind):
        return bytes(rng.choice(b"abcxyz") for _ in range(kind.byte_width))
    if pa.types.is_decimal(kind):
        return decimal.Decimal(rng.randrange(-999999, 999999)).scaleb(-kind.scale)
    bits = kind.bit_width
    low, high = (0, 2**bits - 1) if pa.types.is_unsigned_integer(kind) else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)
    return rng.choice([low, high, 0, 1, rng.randrange(low, high), rng.randrange(-(min(-low, 50)), min(high, 50))])


def read(*columns):
    r = subprocess.run([tool, path, *columns], capture_output=True, check=False)
    if r.returncode:
        return r.stderr.decode()
    return [json.loads(line) for line in r.stdout.decode().split("\n")[:-1]]


def compare(table, what, **options):
    pq.write_table(table, path, **options)
    want = [{f.name: plain(row[f.name], f.type) for f in table.schema} for row in table.to_pylist(maps_as_pydicts=None)]
    have = read()
    if have != want:
        print("    ", have if isinstance(have, str) else next(((a, b) for a, b in zip(have, want) if a != b), (len(have), len(want))))
    return have == want


message = pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string()), pa.field("n", pa.int32(), nullable=False)])
kinds = {
    "string": pa.string(), "large_string": pa.large_string(), "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(), "float": pa.float32(),
    "double": pa.float64(), "half": pa.float16(), "fixed": pa.binary(5), "list": pa.list_(pa.string()), "messages": pa.list_(message),
    "struct": message, "lists": pa.list_(pa.list_(pa.list_(pa.int64()))), "map": pa.map_(pa.string(), pa.int32()),
    "map_of_lists": pa.map_(pa.int64(), pa.list_(message)), "deep": pa.struct([("a", pa.struct([("b", pa.list_(pa.struct([("c", pa.map_(pa.string(), pa.list_(pa.bool_())))])))]))]),
    "required": None,
}
kinds.pop("required")


def table_of(names, n, nullable=True):
    fields = [pa.field(k, kinds[k], nullable=nullable) for k in names]
    return pa.table([pa.array([make(f.type, nullable) for _ in range(n)], type=f.type) for f in fields], schema=pa.schema(fields))


for n, (version, codec, dictionary, group, page) in enumerate(itertools.product(
        ["1.0", "2.0"], ["none", "snappy", "gzip", "zstd", "lz4"], [True, False], [7, 1000], [100, 1 << 20])):
    good = compare(table_of(kinds, 200, nullable=n % 3 > 0), "", data_page_version=version, compression=codec, use_dictionary=dictionary,
                   row_group_size=group, data_page_size=page, write_page_checksum=n % 2 == 0, write_statistics=n % 5 > 0)
    check(good, f"200 rows of {len(kinds)} columns: pages {version} {codec} dictionary {dictionary}, row groups of {group}, pages of {page} bytes")
for encoding, names in {
    "PLAIN": ["string", "bool", "int32", "int64", "float", "double", "fixed", "messages"],
    "RLE": ["bool"],
    "DELTA_BINARY_PACKED": ["int8", "int16", "int32", "int64", "uint32", "uint64", "lists"],
    "DELTA_LENGTH_BYTE_ARRAY": ["string", "list", "large_string"],
    "DELTA_BYTE_ARRAY": ["string", "list", "fixed"],
    "BYTE_STREAM_SPLIT": ["float", "double", "int32", "int64", "fixed", "half"],
}.items():
    for n, version in itertools.product([0, 1, 2, 33, 129, 5000], ["1.0", "2.0"]):
        t = table_of(names, n)
        where = {}
        for leaf in [pq.ParquetSchema and c for c in names]:
            k = kinds[leaf]
            if pa.types.is_list(k) and not pa.types.is_struct(k.value_type):
                while pa.types.is_list(k):
                    leaf, k = leaf + ".list.element", k.value_type
                where[leaf] = encoding
            elif leaf == "messages":
                where[leaf + ".list.element.role"] = where[leaf + ".list.element.content"] = encoding
            else:
                where[leaf] = encoding
        check(compare(t, "", use_dictionary=False, column_encoding=where, data_page_version=version, data_page_size=999, compression="zstd"), f"{encoding}, {n} rows, pages {version}")
sorted_words = sorted(word() + str(i) for i in range(4000))
check(compare(pa.table({"s": sorted_words}), "", use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"}, data_page_size=2000), "DELTA_BYTE_ARRAY of sorted words")
check(compare(pa.table({"d": pa.array([make(pa.decimal128(9, 3)) for _ in range(300)], type=pa.decimal128(9, 3))}), "", store_decimal_as_integer=True), "DECIMAL in integers")
check(compare(pa.table({"c": pa.array(["x", "y", None, "x"] * 50).dictionary_encode()}), ""), "a column of categories")
check(compare(pa.table({"n": pa.array([None] * 9, type=pa.null()), "s": ["a"] * 9}), ""), "a column of nulls")
check(compare(pa.table({"s": pa.array([], type=pa.string())}), ""), "no rows")
ids = [uuid.UUID(int=rng.getrandbits(128)) for _ in range(20)]
pq.write_table(pa.table({"u": pa.array([u.bytes for u in ids], type=pa.uuid())}), path)
check(read() == [{"u": str(u)} for u in ids], "UUIDs")
pq.write_table(table_of(["string", "messages", "int32"], 50), path)
whole = read()
check(read("messages", "nowhere") == [{"messages": r["messages"]} for r in whole], "some of the columns")
for codec in ["brotli"]:
    pq.write_table(pa.table({"s": ["a"] * 9}), path, compression=codec)
    check("BROTLI, which is not read" in read(), "BROTLI is refused")
pq.write_table(pa.table({"t": pa.array([1], type=pa.timestamp("ns"))}), path, use_deprecated_int96_timestamps=True)
check("INT96, which is not read" in read(), "INT96 is refused")
big = pa.table({"s": [word() * 50 for _ in range(30000)]})
check(compare(big, "", row_group_size=4000), "30,000 rows")
try:
    import fastparquet
    import pandas as pd
    frame = pd.DataFrame({"s": [word() for _ in range(500)], "i": range(500), "f": [rng.random() for _ in range(500)]})
    for codec in ["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"]:
        fastparquet.write(path, frame, compression=codec, row_group_offsets=[0, 100, 350])
        check(read() == frame.to_dict("records"), f"fastparquet, {codec}")
except ImportError:
    print("# fastparquet is not installed: its files are not compared")
sys.exit(checks.failed != 0)
