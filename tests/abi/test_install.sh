#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A third party's view: `make install DESTDIR=…`, then the examples and every scaffold are built against what was
# installed, as C11 and C++20 without a warning, and checked by the installed ttrun.
. "$(dirname "$0")/../script.sh"
strict="-O2 -Werror -Wall -Wextra -Wpedantic"
quick="-O0 -Werror -Wall -Wextra -Wpedantic"

# With the outer make's variables (MODE, CC, PREFIX, …): others would rebuild the tree under the running tests.
make -s -C "$SRC" install DESTDIR="$dir/root" >"$dir/log" 2>&1
ok install
[ $failed -eq 0 ] || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS

prefix=$(dirname "$(dirname "$(dirname "$(find "$dir/root" -name ttrun.pc)")")")
TTRUN=$prefix/bin/ttrun
sed -i "s|^prefix=|prefix=$dir/root|" "$prefix/lib/pkgconfig/ttrun.pc" # as if installed where it lies
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
export TTRUN PKG_CONFIG_PATH

"$TTRUN" plugins list >"$dir/log" 2>&1 && grep -q '^model  *llama3 ' "$dir/log"
ok installed_plugins_are_found

build() { # FOLDER CC STD [CFLAGS]: with the folder's own Makefile
    (cd "$1" && make -s -B CC="$2" STD="$3" CFLAGS="${4:-$strict}") >"$dir/log" 2>&1
}
# Every compiler there is, both languages; the last build is the one that is checked. C17 is for the long tier: what C11 and C++20 take
# without a warning it takes too.
built_all_ways() { # FOLDER
    case ${BUILD:-} in
    */asan | */tsan) ;; # the compilers have their turn in the plain build
    *)
        build "$1" g++ "-x c++ -std=c++20" "$quick" || return 1
        if command -v clang >/dev/null; then
            build "$1" clang -std=c11 || return 1
            build "$1" clang++ "-x c++ -std=c++20" || return 1
        fi
        ! is_long || { build "$1" g++ "-x c++ -std=c++20" && build "$1" gcc -std=c17; } || return 1 ;;
    esac
    build "$1" gcc -std=c11
}

# All stages pass, and it loads and describes at least: what is skipped there needs options.
checked() { # FOLDER
    make -s -C "$1" check >"$dir/log" 2>&1 && [ "$(grep -c '^ok ' "$dir/log")" -ge 2 ] && [ "$(wc -l <"$dir/log")" -eq 5 ]
}

command -v clang >/dev/null || skip plugins_built_by_clang "no clang here"
mkdir "$dir/examples"
for example in "$SRC"/examples/*/; do
    [ -e "$example/Makefile" ] || continue # no plugin
    name=$(basename "$example")
    mkdir "$dir/examples/$name"
    cp "$example"/*.c "$example/Makefile" "$dir/examples/$name"
    built_all_ways "$dir/examples/$name"
    ok "example_$name"
    checked "$dir/examples/$name"
    ok "check_$name"
done
[ "$(wc -l <"$SRC/examples/mini/mini.c")" -le 60 ]
ok mini_is_60_lines
make -s -C "$dir/examples/mini" check >"$dir/log" 2>&1 && [ "$(grep -c '^ok ' "$dir/log")" -eq 5 ]
ok mini_passes_every_stage

# a job with all three, and text of its own
cat >"$dir/job.json" <<JOB
{"model": {"name": "mini"}, "dataloader": {"path": ["$SRC/include/ttrun/*.h"]}, "dump_folder": "$dir/run",
 "optimizer": {"name": "signum", "lr": 1e-3}, "lr_scheduler": {"name": "triangle", "min_lr_factor": 0.5},
 "training": {"local_batch_size": 4, "seq_len": 64, "steps": 20}, "metrics": {"log_freq": 1}}
JOB
TTRUN_PLUGIN_PATH=$dir/examples "$TTRUN" "$dir/job.json" >"$dir/log" 2>&1
ok mini_signum_triangle_train
loss_of() { sed -n "s/^{\"step\":$1,.*\"loss\":\([0-9.]*\),.*/\1/p" "$dir/run/metrics.jsonl"; }
awk "BEGIN {exit !($(loss_of 20) < 0.9 * $(loss_of 1))}" 2>"$dir/log"
ok the_loss_falls
"$TTRUN" --plugin-dir "$dir/examples" --plugin-dir "$prefix/lib/ttrun/plugins" --dump_folder "$dir/run2" \
    --training.steps 2 "$dir/job.json" >"$dir/log" 2>&1
ok trains_by_plugin_dir

cd "$dir" || exit 1
for kind in model optimizer loss lr_scheduler tokenizer dataloader metrics hook op kernels converter train_spec; do
    "$TTRUN" plugins new $kind foo_$kind >"$dir/log" 2>&1 && built_all_ways "$dir/foo_$kind"
    ok "new_$kind"
    checked "$dir/foo_$kind"
    ok "check_new_$kind"
done

# without pkg-config
unset PKG_CONFIG_PATH
make -s -C "$dir/foo_model" TTRUN_PREFIX="$prefix" clean foo_model.so >"$dir/log" 2>&1
ok prefix_instead_of_pkg_config
exit $failed
