#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh VERSION [FOLDER]: FOLDER/ttrun_VERSION_ARCH.deb (FOLDER: build) of what `make install PREFIX=/usr` installs, for this Debian or Ubuntu and later ones.
set -eu
cd "$(dirname "$0")/.."
version=$1 folder=${2:-build}
for tool in dpkg-deb dpkg-shlibdeps; do
    command -v $tool >/dev/null || { echo "deb: there is no $tool: apt install dpkg-dev" >&2; exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-deb.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022
make -s install PREFIX=/usr DESTDIR="$root" >/dev/null
find "$root" -type f -exec sh -c 'for f; do head -c 4 "$f" | grep -q "^.ELF" && strip --strip-unneeded "$f"; done; true' - {} +
gzip -9n "$root/usr/share/man/man1/ttrun.1"
mv "$root/usr/share/doc/ttrun/LICENSE" "$root/usr/share/doc/ttrun/copyright"
# dpkg-shlibdeps finds the packages, with the least versions, that the program and its plugins are linked with.
mkdir "$work/debian"
printf 'Source: ttrun\n\nPackage: ttrun\nArchitecture: any\n' >"$work/debian/control"
needs=$(cd "$work" && find root -type f \( -name '*.so' -o -name '*.so.0' -o -path '*/bin/ttrun' \) -exec sh -c 'dpkg-shlibdeps -O --ignore-missing-info -lroot/usr/lib "$@" 2>errors || { cat errors >&2; exit 1; }' - {} + |
    sed -n 's/^shlibs:Depends=//p')
[ -n "$needs" ] || { echo "deb: dpkg-shlibdeps names no package" >&2; exit 1; }
arch=$(dpkg --print-architecture)
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: ttrun
Version: $version
Architecture: $arch
Maintainer: ttrun's maintainers <maintainers@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: $needs
Recommends: openmpi-bin, libedit2, libevent-openssl-2.1-7 | libevent-openssl-2.1-7t64
Section: science
Priority: optional
Description: trainer for large language models
 Trains, fine-tunes, evaluates and serves language models, on one machine or many,
 on CPUs and NVIDIA GPUs. Models, optimizers, losses and loaders are plugins; the
 headers to write one are part of this package.
CONTROL
printf '#!/bin/sh\nset -e\nldconfig\n' >"$root/DEBIAN/postinst"
cp "$root/DEBIAN/postinst" "$root/DEBIAN/postrm"
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/postrm"
out=$folder/ttrun_${version}_$arch.deb
dpkg-deb --root-owner-group -Zgzip --build "$root" "$out" >/dev/null
echo "$out, $(($(wc -c <"$out") / 1024)) KiB"
