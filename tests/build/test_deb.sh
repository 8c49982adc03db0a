#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make deb: the package names what it needs, and what it holds works where it is unpacked.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
command -v dpkg-shlibdeps >/dev/null && command -v dpkg-deb >/dev/null || { skip deb "no dpkg-deb and dpkg-shlibdeps here"; exit 0; }
sh mk/deb.sh 1.2.3 "$dir" >"$dir/log" 2>&1
ok is_built
deb=$(echo "$dir"/ttrun_1.2.3_*.deb)
dpkg-deb -f "$deb" >"$dir/control" 2>>"$dir/log" && grep -q '^Version: 1.2.3$' "$dir/control" && grep -q '^Depends: .*libc6 (>= .*libjansson4' "$dir/control"
ok names_what_it_needs
dpkg-deb -x "$deb" "$dir/root" 2>>"$dir/log" && [ "$("$dir/root/usr/bin/ttrun" --version 2>>"$dir/log")" = "$("$TTRUN" --version)" ]
ok the_program_starts
"$dir/root/usr/bin/ttrun" plugins >"$dir/plugins" 2>>"$dir/log" && grep -q "^model *llama3 .*$dir/root/usr/lib/ttrun/plugins/models/llama3.so" "$dir/plugins"
ok finds_its_plugins
printf '{"spec":"llama3","dataloader":{"path":["%s/README.md"]},"tokenizer":{"name":"byte"},"training":{"steps":2,"seq_len":64},"dump_folder":"%s/run"}' "$SRC" "$dir" >"$dir/job.json"
"$dir/root/usr/bin/ttrun" "$dir/job.json" >>"$dir/log" 2>&1
ok trains
find "$dir/root" -type f ! -perm -a+r >"$dir/log" && ! [ -s "$dir/log" ] && [ -e "$dir/root/usr/share/man/man1/ttrun.1.gz" ] && [ -e "$dir/root/usr/share/doc/ttrun/copyright" ] && [ -e "$dir/root/usr/include/ttrun/plugin.h" ] && ! [ -e "$dir/root/usr/share/doc/ttrun/examples/chat/out" ]
ok has_manual_headers_and_licence
exit $failed
