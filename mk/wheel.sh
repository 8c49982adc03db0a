#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh VERSION [FOLDER]: FOLDER/ttrun-VERSION-py3-none-manylinux_2_N_ARCH.whl (FOLDER: build) of what `make install` installs, with the
# libraries that a minimal system lacks in lib/ttrun/libs. N is what the files need of glibc: build it on the oldest system
# that it is for. Python packs it; pip is not needed. MPI stays the system's.
set -eu
cd "$(dirname "$0")/.."
version=$1 folder=${2:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-wheel.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
umask 022
make -s install PREFIX=/x DESTDIR="$work/root" >/dev/null
root=$work/root/x
sed -i 's|/x/share|$VIRTUAL_ENV/share|g' "$root"/share/doc/ttrun/configs/*.json # what their comments say to type
libs=$root/lib/ttrun/libs
mkdir -p "$libs" "$work/licenses"
rm -rf "$root/lib/libttrun.so" "$root/lib/pkgconfig"
cp LICENSE NOTICE "$work/licenses/"
elf() { find "$root" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/ttrun' \); }
# of MPI nothing: neither it nor what only it needs
elf | grep -v '/comms/mpi.so$' | while read -r f; do ldd "$f" 2>/dev/null; done |
    awk '$3 ~ /^\// && $1 !~ /^((libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so|ld-linux|libttrun|libopenblas|libcuda)/ {print $1, $3}' | sort -u >"$work/needs"
while read -r name path; do
    cp -L "$path" "$libs/$name"
    package=$(dpkg -S "$(readlink -f "$path")" 2>/dev/null | sed -n '1s/:.*//p')
    [ -z "$package" ] || cp -L "/usr/share/doc/$package/copyright" "$work/licenses/$package.txt" 2>/dev/null || true
done <"$work/needs"
elf | while read -r f; do strip --strip-unneeded "$f"; done
glibc=$(elf | grep -v '/comms/mpi.so$' | while read -r f; do objdump -T "$f" 2>/dev/null; done | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | sed 's/GLIBC_2\.//')
python3 - "$root" "$work/licenses" "$version" "manylinux_2_${glibc}_$(uname -m)" "$folder" <<'PY'
import base64, hashlib, os, sys, zipfile

root, licenses, version, tag, folder = sys.argv[1:]
info, data = f"ttrun-{version}.dist-info", f"ttrun-{version}.data"
name = f"ttrun-{version}-py3-none-{tag}.whl"
record = []
with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as z:
    def put(path, content, mode):
        entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        z.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")

    for base, dirs, files in os.walk(root):
        dirs.sort()
        for f in sorted(files):
            full = os.path.join(base, f)
            path = os.path.relpath(full, root)
            where = f"{data}/scripts/ttrun" if path == "bin/ttrun" else f"{data}/data/{path}"
            put(where, open(full, "rb").read(), 0o755 if os.access(full, os.X_OK) else 0o644)
    for f in sorted(os.listdir(licenses)):
        put(f"{info}/licenses/{f}", open(os.path.join(licenses, f), "rb").read(), 0o644)
    put(f"{info}/METADATA", f"""Metadata-Version: 2.1
Name: ttrun
Version: {version}
Summary: A trainer for large language models, in C: one program, with its plugins and the headers to write one
License: Apache-2.0
Classifier: Operating System :: POSIX :: Linux

`ttrun --help` begins. Nothing of it is Python; MPI, OpenBLAS and CUDA are the system's, where they are there.
""".encode(), 0o644)
    put(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: ttrun\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), 0o644)
    z.writestr(f"{info}/RECORD", "\n".join(record) + f"\n{info}/RECORD,,\n")
print(f"{os.path.join(folder, name)}, {os.path.getsize(os.path.join(folder, name)) // 1024} KiB")
PY
