#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the rows that ttrun reads from Parquet files with those of pyarrow.

  pyarrow      each encoding x codec x page version, with nulls, empty values and several row groups; random nested types; files that
               are damaged or hostile are refused by a line
  fastparquet, polars and duckdb write, too, where they are installed

usage: parquet_peer.py      needs pyarrow; ends 1 on a difference
"""
import datetime
import decimal
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import uuid

import numpy
import pyarrow
import pyarrow.parquet

from checks import check
import checks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODECS = ("none", "snappy", "gzip", "zstd", "lz4")


def build(folder):
    out, core = os.path.join(folder, "parquet_tool"), f"{ROOT}/build/release/libttrun_core.a"
    libs = ("jansson", "ltdl", "zstd", "z", "pcre2-8", "utf8proc", "m", "dl", "pthread")
    subprocess.run(["gcc", "-std=c11", "-O1", "-g", f"-I{ROOT}/include", "-o", out, f"{ROOT}/tests/run/parquet_tool.c", core,
                    *(f"-l{lib}" for lib in libs)], check=True)
    return out


def read(tool, path, *columns):
    """The rows, or the error's line."""
    p = subprocess.run([tool, path, *columns], capture_output=True)
    if p.returncode == 1:
        return p.stderr.decode().rstrip("\n")
    if p.returncode:
        return f"status {p.returncode}"
    return [json.loads(line) for line in p.stdout.decode().split("\n")[:-1]]


def as_json(x, kind):
    """A value of pyarrow's to_pylist as include/ttrun/parquet.h says that it is printed."""
    t = pyarrow.types
    if x is None:
        return None
    if t.is_struct(kind):
        return {f.name: as_json(x[f.name], f.type) for f in kind}
    if t.is_map(kind):
        return {k if isinstance(k, str) else json.dumps(as_json(k, kind.key_type)): as_json(v, kind.item_type) for k, v in x}
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return [as_json(v, kind.value_type) for v in x]
    if t.is_dictionary(kind):
        return as_json(x, kind.value_type)
    if t.is_floating(kind):
        return float(x) if math.isfinite(x) else None
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return x.decode()
    if t.is_decimal(kind):
        return float(x) if kind.scale else int(x)
    return x


def same(a, b):
    """Equal, and booleans, integers and floats are not taken for each other (0.0 is -0.0's equal, and 1.0 may be printed as 1)."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    return a == b


def compare(tool, path, table, what, quiet=True):
    want = [{f.name: as_json(row[f.name], f.type) for f in table.schema} for row in table.to_pylist()]
    got = read(tool, path)
    ok = isinstance(got, list) and same(got, want)
    if not ok:
        if isinstance(got, list):
            bad = next((i for i, (g, w) in enumerate(zip(got, want)) if not same(g, w)), min(len(got), len(want)))
            got = f"{len(got)} of {len(want)} rows; row {bad}: {str(got[bad:bad + 1])[:300]} instead of {str(want[bad:bad + 1])[:300]}"
        check(False, f"{what}: {got}")
    elif not quiet:
        check(True, f"{what}: {len(want)} rows")
    return ok


# ---- columns of each physical type ----

WORDS = ["", "a", "text", "ä", "漢字", "quote \" and \\", "line\nbreak\ttab", "\x00\x01\x1f", "😀", "prefix", "prefixed", "prefixes"]


def text(r):
    kind = r.randrange(5)
    if kind == 0:
        return r.choice(WORDS)
    if kind == 1:
        return "shared prefix of some length " + str(r.randrange(50))
    return "".join(r.choice("abc é\"\\\n漢") for _ in range(r.choice((1, 3, 9, 60, 300))))


def integer(r, bits, signed=True):
    kind = r.randrange(4)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if kind == 0:
        return r.choice((low, high, 0))
    return r.randint(low, high) if kind == 1 else r.randint(max(low, -50), 50)


def floating(r):
    return r.choice((0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf, math.nan)) if r.randrange(4) == 0 else r.gauss(0, 1)


def draw(r, kind):
    t = pyarrow.types
    if t.is_boolean(kind):
        return r.random() < 0.5
    if t.is_integer(kind):
        return integer(r, kind.bit_width, t.is_signed_integer(kind))
    if t.is_float16(kind):
        return numpy.float16(r.choice((0.0, -1.5, 65504.0, 6e-8, math.inf, math.nan, r.gauss(0, 1))))
    if t.is_float32(kind):
        return float(numpy.float32(r.choice((0.1, 3e38, 1e-45, math.nan, r.gauss(0, 1)))))
    if t.is_float64(kind):
        return floating(r)
    if t.is_string(kind) or t.is_large_string(kind):
        return text(r)
    if t.is_binary(kind):
        return text(r).encode()
    if t.is_fixed_size_binary(kind):
        return "".join(r.choice("abcdef") for _ in range(kind.byte_width)).encode()
    if t.is_decimal(kind):
        return decimal.Decimal(r.randint(-10 ** kind.precision + 1, 10 ** kind.precision - 1)).scaleb(-kind.scale)
    if t.is_dictionary(kind):
        return draw(r, kind.value_type)
    raise AssertionError(kind)


def values(r, kind, n, nulls):
    """n values: at random, sorted, one value alone, runs."""
    shape = r.randrange(4)
    if shape == 1:
        one = draw(r, kind)
        out = [one] * n
    elif shape == 2:
        out = [v for v in (draw(r, kind) for _ in range(n // 7 + 1)) for _ in range(7)][:n]
    elif shape == 3:
        few = [draw(r, kind) for _ in range(5)]
        out = [r.choice(few) for _ in range(n)]
    else:
        out = [draw(r, kind) for _ in range(n)]
    if nulls == "some":
        out = [None if r.random() < 0.3 else v for v in out]
    if nulls == "all":
        out = [None] * n
    return out


P = pyarrow
ENCODINGS = {  # of pyarrow's column_encoding; None: dictionary
    None: (P.bool_(), P.int32(), P.int64(), P.float32(), P.float64(), P.string(), P.binary(12)),
    "PLAIN": (P.bool_(), P.int32(), P.int64(), P.float32(), P.float64(), P.string(), P.binary(), P.binary(12), P.uint32(), P.uint64(),
              P.int8(), P.uint16(), P.float16(), P.large_string()),
    "RLE": (P.bool_(),),
    "DELTA_BINARY_PACKED": (P.int32(), P.int64(), P.uint32(), P.uint64(), P.int8()),
    "DELTA_LENGTH_BYTE_ARRAY": (P.string(), P.binary()),
    "DELTA_BYTE_ARRAY": (P.string(), P.binary(), P.binary(12)),
    "BYTE_STREAM_SPLIT": (P.float32(), P.float64(), P.int32(), P.int64(), P.binary(12), P.float16()),
}


def write_encodings(tool, folder, r):
    wrong = files = rows = 0
    path = f"{folder}/e.parquet"
    for encoding, codec, version, nulls in itertools.product(ENCODINGS, CODECS, ("1.0", "2.0"), ("none", "some", "all", "required")):
        n = r.choice((1, 7, 8, 9, 100, 129, 1025))
        columns, fields = [], []
        for i, kind in enumerate(ENCODINGS[encoding]):
            if nulls == "all" and P.types.is_float16(kind):
                continue
            fields.append(P.field(f"c{i}", kind, nullable=nulls != "required"))
            columns.append(P.array(values(r, kind, n, nulls), kind))
        table = P.table(columns, schema=P.schema(fields))
        more = {"use_dictionary": True} if encoding is None else {
            "use_dictionary": False, "column_encoding": {f.name: encoding for f in fields}}
        P.parquet.write_table(table, path, compression=codec, data_page_version=version, row_group_size=r.choice((n, 64, 500)),
                              data_page_size=r.choice((64, 1000, 1 << 20)), write_batch_size=r.choice((8, 64, 1024)),
                              write_page_checksum=r.random() < 0.5, write_statistics=r.random() < 0.5, **more)
        wrong += not compare(tool, path, table, f"{encoding} {codec} v{version} {nulls} n={n}")
        files += 1
        rows += n
    check(not wrong, f"{files} files, each encoding x codec x page version x nulls, {rows} rows: {wrong} differ")


# ---- nested types ----

SCALARS = (P.string(), P.int64(), P.float64(), P.bool_(), P.string(), P.binary(4), P.decimal128(9, 2), P.decimal128(18, 0),
           P.dictionary(P.int32(), P.string()))


def draw_type(r, depth):
    kind = r.randrange(5) if depth else 0
    if kind <= 1:
        return r.choice(SCALARS[:-1] if depth < 4 else SCALARS)
    if kind == 2:
        return P.list_(P.field("element", draw_type(r, depth - 1), nullable=r.random() < 0.7))
    if kind == 3:
        return P.struct([P.field(f"f{i}", draw_type(r, depth - 1), nullable=r.random() < 0.7) for i in range(r.randint(1, 4))])
    return P.map_(r.choice((P.string(), P.int32())), draw_type(r, depth - 1))


def draw_nested(r, kind, nullable):
    t = pyarrow.types
    if nullable and r.random() < 0.2:
        return None
    if t.is_list(kind):
        return [draw_nested(r, kind.value_type, kind.value_field.nullable) for _ in range(r.choice((0, 1, 2, 5)))]
    if t.is_struct(kind):
        return {f.name: draw_nested(r, f.type, f.nullable) for f in kind}
    if t.is_map(kind):
        keys = dict.fromkeys(draw(r, kind.key_type) for _ in range(r.choice((0, 1, 3))))
        return [(k, draw_nested(r, kind.item_type, True)) for k in keys]
    return draw(r, kind)


def write_nested(tool, folder, r, n_files):
    wrong = rows = 0
    path = f"{folder}/n.parquet"
    for number in range(n_files):
        fields = [P.field(f"c{i}", draw_type(r, 4), nullable=r.random() < 0.7) for i in range(r.randint(1, 3))]
        n = r.choice((0, 1, 3, 50, 400))
        table = P.table([P.array([draw_nested(r, f.type, f.nullable) for _ in range(n)], f.type) for f in fields], schema=P.schema(fields))
        P.parquet.write_table(table, path, compression=r.choice(CODECS), data_page_version=r.choice(("1.0", "2.0")),
                              row_group_size=r.choice((1, 20, 1000)), data_page_size=r.choice((32, 300, 1 << 20)),
                              write_batch_size=r.choice((1, 16, 1024)), use_dictionary=r.random() < 0.5,
                              use_compliant_nested_type=r.random() < 0.7, store_decimal_as_integer=r.random() < 0.5)
        wrong += not compare(tool, path, table, f"nested file {number}: {table.schema}")
        rows += n
    check(not wrong, f"{n_files} files of nested types drawn at random, {rows} rows: {wrong} differ")


# ---- other writers ----

def chats(r, n):
    return [{"messages": [{"role": r.choice(("user", "assistant")), "content": text(r)} for _ in range(r.randint(0, 5))],
             "text": text(r), "score": r.gauss(0, 1), "n": r.randint(-9, 9)} for _ in range(n)]


def write_by_others(tool, folder, r):
    path, rows = f"{folder}/o.parquet", chats(r, 700)
    try:
        import polars
        frame = polars.DataFrame(rows)
        for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4"):
            frame.write_parquet(path, compression=codec, row_group_size=100, data_page_size=2000)
            check(same(read(tool, path), rows), f"polars, {codec}: {len(rows)} rows")
    except ImportError:
        print("polars is not installed")
    try:
        import duckdb
        source = f"{folder}/rows.jsonl"
        with open(source, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw"):
            for version in ("V1", "V2"):
                duckdb.sql(f"copy (select * from read_json('{source}')) to '{path}' "
                           f"(format parquet, compression {codec}, row_group_size 200, parquet_version {version})")
                check(same(read(tool, path), rows), f"duckdb, {codec}, {version}: {len(rows)} rows")
    except ImportError:
        print("duckdb is not installed")
    try:
        import fastparquet
        import pandas
        flat = [{k: v for k, v in row.items() if k != "messages"} for row in rows]
        for codec in ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"):
            for nulls in (False, True):
                frame = pandas.DataFrame(flat)
                want = flat
                if nulls:
                    want = [dict(row, text=None if i % 3 else row["text"]) for i, row in enumerate(flat)]
                    frame["text"] = [row["text"] for row in want]
                fastparquet.write(path, frame, compression=codec, row_group_offsets=150, has_nulls=nulls)
                check(same(read(tool, path), want), f"fastparquet, {codec}, nulls {nulls}: {len(rows)} rows")
    except ImportError:
        print("fastparquet is not installed")


# ---- choice of columns, other types, refusals ----

def more_types(tool, folder, r):
    path = f"{folder}/m.parquet"
    table = P.table({"text": ["a", "b"], "when": P.array([datetime.datetime(1996, 1, 1)] * 2, P.timestamp("ns"))})
    P.parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    got = read(tool, path, "text", "absent")
    check(got == [{"text": "a"}, {"text": "b"}], "a column beside one of INT96 is read")
    got = read(tool, path)
    check(isinstance(got, str) and "INT96" in got and "when" in got, f"INT96 is refused: {got}")
    ids = [uuid.UUID(int=r.getrandbits(128)) for _ in range(5)]
    table = P.table({"id": P.array([i.bytes for i in ids], P.uuid())})
    P.parquet.write_table(table, path)
    check(read(tool, path) == [{"id": str(i)} for i in ids], "UUIDs are read")
    table = P.table({"x": P.array([1, None], P.timestamp("us")), "d": P.array([3, 4], P.date32()), "n": P.nulls(2)})
    P.parquet.write_table(table, path)
    check(read(tool, path) == [{"x": 1, "d": 3, "n": None}, {"x": None, "d": 4, "n": None}], "times, dates and null columns are read")
    P.parquet.write_table(P.table({"t": ["x"]}), path, compression="brotli")
    got = read(tool, path)
    check(isinstance(got, str) and "BROTLI" in got, f"BROTLI is refused: {got}")
    table = P.table({"b": [b"\xff\xfe"]})
    P.parquet.write_table(table, path)
    got = read(tool, path)
    check(isinstance(got, str) and "UTF-8" in got, f"bytes that are no text are refused: {got}")


def damage(tool, folder, r, n_files):
    """Whatever bytes change, ttrun ends with rows or with one line; with checksums a changed page is never read as rows."""
    path, bad = f"{folder}/d.parquet", 0
    table = P.Table.from_pylist(chats(r, 60))
    for number in range(n_files):
        P.parquet.write_table(table, path, compression=r.choice(CODECS), data_page_version=r.choice(("1.0", "2.0")), row_group_size=25)
        data = bytearray(open(path, "rb").read())
        for _ in range(r.randint(1, 4)):
            data[r.randrange(len(data))] = r.randrange(256)
        if r.random() < 0.2:
            del data[r.randrange(len(data)):]
        with open(path, "wb") as f:
            f.write(data)
        got = read(tool, path)
        if isinstance(got, str) and (got.startswith("status") or "\n" in got or not got):
            bad += 1
            check(False, f"damaged file {number}: {got}")
    check(not bad, f"{n_files} damaged files end with rows or a line")
    P.parquet.write_table(table, path, compression="none", write_page_checksum=True, use_dictionary=False)
    data = bytearray(open(path, "rb").read())
    at = data.find(table.column("text")[30].as_py().encode() or b"shared prefix")
    data[at] ^= 1
    with open(path, "wb") as f:
        f.write(data)
    got = read(tool, path)
    check(isinstance(got, str) and "checksum" in got, f"a changed page with a checksum: {got}")


def bombs(tool, folder):
    """Small files whose rows are large are refused before they take the machine's memory."""
    import resource
    path = f"{folder}/b.parquet"

    def limited(*columns):
        p = subprocess.run([tool, path, *columns], capture_output=True, timeout=120,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
        return p.returncode, p.stderr.decode().rstrip("\n")

    n = 150_000_000
    array = P.ListArray.from_arrays(P.array([0, n], P.int32()), P.nulls(n, P.string()))
    P.parquet.write_table(P.table({"c": array}), path, compression="zstd")
    del array
    rc, line = limited()
    check(rc == 1 and "256 MiB" in line, f"{os.path.getsize(path)} bytes with a list of {n} nulls: status {rc}, {line[:200]}")


def main():
    r = random.Random(18)
    with tempfile.TemporaryDirectory(prefix="parquet_peer.") as folder:
        tool = build(folder)
        write_encodings(tool, folder, r)
        write_nested(tool, folder, r, 250)
        write_by_others(tool, folder, r)
        more_types(tool, folder, r)
        damage(tool, folder, r, 100)
        bombs(tool, folder)
    sys.exit(1 if checks.failed else 0)


main()
