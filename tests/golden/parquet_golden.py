#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes parquet.json beside itself: Parquet files that pyarrow wrote, as hex, with the rows that pyarrow reads from them; some of forms that
   pyarrow does not write, put together here; and files that are refused, each with words of the error. The files become seeds of the fuzz
   target, too, in the folder that is given.
   python3 tests/golden/parquet_golden.py [tests/fuzz/corpus/parquet]      (pyarrow 26)"""
import datetime, decimal, json, os, struct, sys, tempfile, uuid

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
NULL, SOME = None, ("", "a", "prefix one", "prefix two", "ä 漢字 😀", "quote \" and \\", "line\nbreak\t\x01")
files, refused = [], []
path = os.path.join(tempfile.mkdtemp(), "x.parquet")


def put(name, table, rows=None, **options):
    pq.write_table(table, path, **{"write_statistics": False, "store_schema": False, "compression": "none", **options})
    data = open(path, "rb").read()
    files.append({"name": name, "hex": data.hex(), "rows": table.to_pylist() if rows is None else rows})
    return data


def refuse(name, data, *words):
    refused.append({"name": name, "hex": bytes(data).hex(), "words": words})


# ---- encodings, page versions, codecs ----
words = [SOME[i * i % len(SOME)] for i in range(41)]
columns = {
    "DICTIONARY": {"c": pa.array([w if i % 3 else None for i, w in enumerate(words)]), "n": pa.array([7] * 41, pa.int64())},
    "PLAIN": {"s": pa.array(words), "b": pa.array([i % 3 == 0 for i in range(41)]), "i": pa.array(range(-20, 21), pa.int32()),
              "d": pa.array([i / 3 + 0.1 for i in range(41)]), "x": pa.array([b"abc", b"def", None] * 13 + [b"ghi"] * 2, pa.binary(3))},
    "RLE": {"b": pa.array([i % 7 > 2 if i % 5 else None for i in range(41)])},
    "DELTA_BINARY_PACKED": {"i": pa.array([(-1) ** i * i ** 6 for i in range(30)] + [2 ** 31 - 1, -2 ** 31] * 2 + list(range(7)), pa.int32()),
                            "l": pa.array([2 ** 63 - 1, -2 ** 63] * 2 + list(range(37)))},
    "DELTA_LENGTH_BYTE_ARRAY": {"s": pa.array(words)},
    "DELTA_BYTE_ARRAY": {"s": pa.array(sorted(words)), "x": pa.array([b"abc", b"abd", b"add"] * 13 + [b"xyz"] * 2, pa.binary(3))},
    "BYTE_STREAM_SPLIT": {"f": pa.array([i + 0.5 for i in range(41)], pa.float32()), "d": pa.array([i / 7 + 0.1 for i in range(41)]),
                          "i": pa.array(range(-20, 21), pa.int32()), "x": pa.array([b"abc", b"def", b"xyz"] * 13 + [b"ghi"] * 2, pa.binary(3))},
}


def text(rows):
    return [{k: v.decode() if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]


for encoding, c in columns.items():
    for version in ("1.0", "2.0"):
        plain = encoding == "DICTIONARY"
        table = pa.table(c)
        more = {} if plain else {"column_encoding": {k: encoding for k in c}}
        put(f"{encoding}, pages {version}", table, text(table.to_pylist()), use_dictionary=plain, data_page_version=version, row_group_size=30,
            data_page_size=64, write_batch_size=8, **more)
for codec in ("snappy", "gzip", "zstd", "lz4"):
    put(codec, pa.table({"s": [w * 9 for w in words], "n": pa.nulls(41, pa.string())}), compression=codec, use_dictionary=False,
        data_page_version="2.0" if codec in ("gzip", "zstd") else "1.0")

# ---- nesting ----
turn = pa.struct([("role", pa.string()), ("content", pa.string())])
talks = [[{"role": "user", "content": f"question {i}?"}, {"role": "assistant", "content": f"the answer is {i * 7}"}] * (1 + i % 2) for i in range(6)]
chats = put("chats", pa.table({"messages": pa.array(talks, pa.list_(turn))}), row_group_size=4, compression="zstd")
put("texts", pa.table({"id": range(12), "text": [f"document {i}: " + "abcdefgh ijkl " * (i * 3 % 7 + 2) for i in range(12)]}), row_group_size=5,
    compression="snappy")
holes = [[{"role": None, "content": "x"}, None], [], None, [{"role": "a", "content": None}]]
deep = pa.struct([("a", pa.list_(pa.list_(pa.int64()))), ("m", pa.map_(pa.string(), pa.list_(turn)))])
rows = [{"a": [[1, None], [], None], "m": {"k": holes[0], "": None}}, None, {"a": [], "m": {}}, {"a": None, "m": None}]
table = pa.table({"l": pa.array(holes, pa.list_(turn)), "d": pa.array([r and {"a": r["a"], "m": r["m"] and list(r["m"].items())} for r in rows], deep)})
for version in ("1.0", "2.0"):
    put(f"nested, pages {version}", table, [{"l": a, "d": b} for a, b in zip(holes, rows)], row_group_size=3, data_page_version=version)
put("map of numbers", pa.table({"m": pa.array([[(1, True), (-2, None)], []], pa.map_(pa.int32(), pa.bool_()))}), [{"m": {"1": True, "-2": None}}, {"m": {}}])
put("no rows", pa.table({"s": pa.array([], pa.string())}))

# ---- types ----
d = decimal.Decimal
wide = ["-170141183460469231731687303715884.10572", "0.00001", "99999999999999999999999999999999.99999"]
for integers in (True, False):
    put(f"decimals, as integers {integers}", pa.table({"a": pa.array([d("-1.25"), d("0.05"), None], pa.decimal128(9, 2)),
                                                       "b": pa.array([d("-123456789012345678"), d(0), d(7)], pa.decimal128(18, 0))}),
        [{"a": -1.25, "b": -123456789012345678}, {"a": 0.05, "b": 0}, {"a": None, "b": 7}], store_decimal_as_integer=integers)
put("wide decimals", pa.table({"a": pa.array(map(d, wide), pa.decimal256(60, 5))}), [{"a": float(w)} for w in wide])
u = [uuid.UUID(int=i * 0x123456789ABCDEF0123456789ABCDEF) for i in (1, 2)]
put("other types", pa.table({"h": pa.array([1.5, -6.1035e-05], pa.float16()), "u": pa.array([2 ** 32 - 1, 1], pa.uint32()),
                             "d": pa.array([datetime.date(1970, 1, 4), None]), "t": pa.array([5, 6], pa.timestamp("us")),
                             "id": pa.array([x.bytes for x in u], pa.uuid()), "f": pa.array([float("nan"), float("-inf")])}),
    [{"h": 1.5, "u": 2 ** 32 - 1, "d": 3, "t": 5, "id": str(u[0]), "f": None},
     {"h": -6.103515625e-05, "u": 1, "d": None, "t": 6, "id": str(u[1]), "f": None}])
summed = put("checksums", pa.table({"s": words}), use_dictionary=False, write_page_checksum=True)


# ---- put together by hand ----
def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def number(i, v):
    return i, 6, varint((v << 1) ^ (v >> 63))


def string(i, s):
    return i, 8, varint(len(s)) + s


def struct_of(*fields):
    out, last = b"", 0
    for i, kind, data in fields:
        out, last = out + bytes([(i - last) << 4 | kind]) + data, i
    return out + b"\0"


def array(i, kind, items):
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return i, 9, head + b"".join(items)


def inner(i, *fields):
    return i, 12, struct_of(*fields)


def node(name, kind=None, repetition=None, children=None, converted=None):
    return struct_of(*([number(1, kind)] if kind is not None else []), *([number(3, repetition)] if repetition is not None else []), string(4, name),
                     *([number(5, children)] if children else []), *([number(6, converted)] if converted is not None else []))


def levels(*runs):
    data = b"".join(varint(n << 1) + bytes([v]) for n, v in runs)
    return struct.pack("<I", len(data)) + data


def page(n, data, unpacked=None, encoding=0):
    return struct_of(number(1, 0), number(2, len(data) if unpacked is None else unpacked), number(3, len(data)),
                     inner(5, number(1, n), number(2, encoding), number(3, 3), number(4, 3))) + data


def whole(schema, rows, chunks, offset=None):
    """chunks: (type, values, page) of the one row group"""
    body, metas = b"PAR1", []
    for kind, n, data, *codec in chunks:
        at = len(body) if offset is None else offset
        metas.append(struct_of(number(2, at), inner(3, number(1, kind), array(2, 5, []), array(3, 8, []), number(4, codec[0] if codec else 0),
                                                    number(5, n), number(6, len(data)), number(7, len(data)), number(9, at))))
        body += data
    footer = struct_of(number(1, 1), array(2, 12, schema), number(3, rows), array(4, 12, [struct_of(array(1, 12, metas), number(2, 0), number(3, rows))]))
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def add(name, data, rows):
    files.append({"name": name, "hex": data.hex(), "rows": rows})


INT, BYTES, REQUIRED, OPTIONAL, REPEATED, LIST = 1, 6, 0, 1, 2, 3
ints = struct.pack("<3i", 1, 2, 3)
root = node(b"root", children=1)
two = page(3, levels((1, 0), (1, 1), (1, 0)) + levels((3, 2)) + ints)
legacy = [{"c": [1, 2]}, {"c": [3]}]
add("a list of two levels", whole([root, node(b"c", None, OPTIONAL, 1, LIST), node(b"array", INT, REPEATED)], 2, [(INT, 3, two)]), legacy)
two = page(3, levels((1, 0), (1, 1), (1, 0)) + levels((3, 1)) + ints)
add("a repeated column", whole([root, node(b"c", INT, REPEATED)], 2, [(INT, 3, two)]), legacy)
pairs = [root, node(b"c", None, REQUIRED, 1, LIST), node(b"c_tuple", None, REPEATED, 1), node(b"x", INT, REQUIRED)]
add("a list whose repeated group is the element", whole(pairs, 2, [(INT, 3, two)]), [{"c": [{"x": 1}, {"x": 2}]}, {"c": [{"x": 3}]}])

# ---- refused ----
many = (1 << 31) - 10
nulls = page(many, levels((1, 0), (many - 1, 1)) + levels((many, 2)))
refuse("very many nulls", whole([root, node(b"c", None, OPTIONAL, 1, LIST), node(b"list", None, REPEATED, 1), node(b"element", INT, OPTIONAL)], 1,
                                [(INT, many, nulls)]), "row 1", "256 MiB")
empty = page(many, levels((1, 0), (many - 1, 1)) + levels((many, 1)))
refuse("very many empty lists", whole([root, node(b"c", None, REPEATED, 1), node(b"d", INT, REPEATED)], 1, [(INT, many, empty)]), "256 MiB")
both = [root, node(b"c", None, REPEATED, 1), node(b"d", None, REPEATED, 2), node(b"a", INT, REQUIRED), node(b"b", INT, REQUIRED)]


def leaf(*reps):
    return page(3, levels(*((1, r) for r in reps)) + levels((3, 2)) + ints)


refuse("lists of siblings that differ", whole(both, 1, [(INT, 3, leaf(0, 2, 1)), (INT, 3, leaf(0, 1, 2))]), "c.d.b", "neighbours")
one = [root, node(b"c", INT, REQUIRED)]
refuse("a page of more values than its row group", whole(one, 3, [(INT, 2, page(3, ints))]), "column c", "more values")
refuse("too few values", whole(one, 3, [(INT, 3, page(3, ints[:-1]))]), "row 3", "column c", "end early")
refuse("too few pages", whole(one, 3, [(INT, 3, page(2, ints))]), "column c", "end before")
refuse("other rows", whole(one, 4, [(INT, 3, page(3, ints))]), "column c", "rows")
refuse("pages outside of the file", whole(one, 3, [(INT, 3, page(3, ints))], offset=1 << 40), "outside")
refuse("a dictionary that is missing", whole(one, 3, [(INT, 3, page(3, b"\2\6\0", encoding=8))]), "dictionary")
refuse("an encoding of another type", whole(one, 3, [(INT, 3, page(3, ints, encoding=6))]), "does not fit its type")
refuse("an encoding that there is not", whole(one, 3, [(INT, 3, page(3, ints, encoding=99))]), "encoding")
for codec, name in ((1, "SNAPPY"), (2, "GZIP"), (6, "ZSTD"), (7, "LZ4")):
    refuse(f"{name} that is damaged", whole(one, 3, [(INT, 3, page(3, b"\x0d\x10\x01\x02\x03\x04\x05\x09\x00", unpacked=13), codec)]), name)
for codec in (0, 1, 2, 6, 7):
    refuse(f"a page larger than codec {codec} can make it", whole(one, 3, [(INT, 3, page(3, ints, unpacked=(1 << 31) - 1), codec)]), "size")
for codec, name in ((3, "LZO"), (4, "BROTLI"), (5, "LZ4 (the old kind)"), (40, "unknown codec")):
    refuse(name, whole(one, 3, [(INT, 3, page(3, ints), codec)]), "column c", name)
refuse("a name that is not UTF-8", whole([root, node(b"\xff", INT, REQUIRED)], 3, [(INT, 3, page(3, ints))]), "UTF-8")
refuse("a name of two lines", whole([root, node(b"a\nb", INT, REQUIRED)], 3, [(INT, 3, page(2, ints))]), "a")
refuse("bytes that are not UTF-8", whole([root, node(b"c", BYTES, REQUIRED)], 1, [(BYTES, 1, page(1, b"\1\0\0\0\xff"))]), "row 1", "UTF-8")
refuse("INT96", whole([root, node(b"c", 3, REQUIRED)], 1, [(3, 1, page(1, bytes(12)))]), "INT96")
refuse("a schema nested too deep", whole([node(b"root", children=1)] + [node(b"g", None, OPTIONAL, 1)] * 200 + [node(b"c", INT, REQUIRED)], 0, [(INT, 0, b"")]), "schema")
refuse("a schema of more children than there are", whole([node(b"root", children=9), node(b"c", INT, REQUIRED)], 3, [(INT, 3, page(3, ints))]), "schema")
refuse("structures nested too deep", b"PAR1" + b"\x1c" * 5000 + struct.pack("<I", 5000) + b"PAR1", "too deep")
refuse("a list longer than the file", b"PAR1" + b"\x29\xfc\xff\xff\xff\xff\x0f" + struct.pack("<I", 7) + b"PAR1", "list")
refuse("a footer longer than the file", b"PAR1" + struct.pack("<I", 1 << 30) + b"PAR1", "footer")
refuse("an encrypted footer", b"PARE" + bytes(8) + struct.pack("<I", 8) + b"PARE", "encrypted")
refuse("an empty file", b"PAR1", "too short")
good = whole(one, 3, [(INT, 3, page(3, ints))])
add("the good form of those above", good, [{"c": 1}, {"c": 2}, {"c": 3}])
refuse("a file cut off", good[:-3], "PAR1")
at = summed.index(b"prefix one")
refuse("a changed byte", summed[:at] + b"P" + summed[at + 1:], "checksum")

with open(os.path.join(HERE, "parquet.json"), "w", encoding="utf-8") as f:
    f.write(f'{{"pyarrow": "{pa.__version__}", "files": [\n' + ",\n".join(map(json.dumps, files)) + '\n], "refused": [\n' +
            ",\n".join(map(json.dumps, refused)) + "\n]}\n")
for i, x in enumerate(files + refused if len(sys.argv) > 1 else ()):
    name = "".join(c if c.isalnum() else "_" for c in x["name"]).lower()
    with open(os.path.join(sys.argv[1], f"{name}.parquet"), "wb") as f:
        f.write(bytes.fromhex(x["hex"]))
