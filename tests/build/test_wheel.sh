#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make wheel: pip installs it into an empty environment without the network, and the program works there. Where Python or pip is
# absent, nothing is tested.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
# the pip that is here, if it can install for others (22.3), saves the environment's own, which takes seconds
pip() { "$dir/venv/bin/pip" "$@"; }
python3 -m venv --without-pip "$dir/venv" >/dev/null 2>&1 && python3 -m pip --python "$dir/venv/bin/python" --version >/dev/null 2>&1 &&
    pip() { python3 -m pip --python "$dir/venv/bin/python" "$@"; } || python3 -m venv "$dir/venv" >/dev/null 2>&1 || { skip wheel "no Python with venv here"; exit 0; }
sh mk/wheel.sh 1.2.3 "$dir" >"$dir/log" 2>&1
ok is_built
pip install --no-index --disable-pip-version-check "$dir"/ttrun-1.2.3-*.whl >"$dir/log" 2>&1
ok pip_installs_it
[ "$("$dir/venv/bin/ttrun" --version 2>"$dir/log")" = "$("$TTRUN" --version)" ]
ok the_program_starts
printf '{"spec":"llama3","dataloader":{"path":["%s/README.md"]},"tokenizer":{"name":"byte"},"model":{"args":{"dim":64,"n_layers":2}},"training":{"steps":2,"seq_len":16},"dump_folder":"%s/run"}' "$SRC" "$dir" >"$dir/job.json"
# the libraries that came along are used, not the system's
ldd "$dir/venv/lib/libttrun.so.0" >"$dir/log" 2>&1 && grep -q "libpcre2-8.so.0 => $dir/venv/lib/ttrun/libs/" "$dir/log" && [ -e "$dir/venv/lib/ttrun/libs/libjansson.so.4" ] &&
    LD_DEBUG=files "$dir/venv/bin/ttrun" plan "$dir/job.json" 2>&1 | grep -q "calling init: $dir/venv/lib/ttrun/libs/libjansson.so.4"
ok brings_its_libraries
"$dir/venv/bin/ttrun" "$dir/job.json" >"$dir/log" 2>&1
ok trains
pip uninstall -y ttrun >"$dir/log" 2>&1 && ! [ -e "$dir/venv/bin/ttrun" ] && ! [ -e "$dir/venv/lib/libttrun.so.0" ]
ok pip_removes_it
exit $failed
