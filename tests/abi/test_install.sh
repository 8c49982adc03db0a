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
    [ -e "$example/Makefile" ] && ls "$example"/*.c >"$dir/log" 2>&1 || continue # no plugin, or in C++
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

# in C++: an example, and a scaffold by its name; nothing runs when it is loaded
mkdir "$dir/examples/sawtooth" && cp "$SRC"/examples/sawtooth/*.cpp "$SRC/examples/sawtooth/Makefile" "$dir/examples/sawtooth"
for cxx in g++ clang++; do
    command -v $cxx >"$dir/log" || continue
    make -s -B -C "$dir/examples/sawtooth" CXX=$cxx CFLAGS="$strict" >"$dir/log" 2>&1 && ! [ -s "$dir/log" ]
    ok "example_in_cxx_$cxx"
done
checked "$dir/examples/sawtooth"
ok check_example_in_cxx
TTRUN_PLUGIN_PATH=$dir/examples "$TTRUN" "$dir/job.json" --lr_scheduler.name sawtooth --lr_scheduler.cycle_steps 4 --dump_folder "$dir/saw" --training.steps 9 >"$dir/log" 2>&1
[ "$(sed -n 's/^{"step":[159],.*"lr":\([0-9.]*\),.*/\1/p' "$dir/saw/metrics.jsonl" | tr '\n' ' ')" = "0.001 0.001 0.001 " ] && grep -q '"step":3,.*"lr":0.00075,' "$dir/saw/metrics.jsonl"
ok example_in_cxx_trains
mv foo_model/foo_model.c foo_model/foo_model.cpp && make -s -C foo_model clean foo_model.so CFLAGS="$quick" >"$dir/log" 2>&1
ok scaffold_in_cxx

# which SDK: that of the ttrun in PATH before what pkg-config finds, also through a link; a prefix that is named before both
mkdir "$dir/bin" "$dir/none" && ln -s "$prefix/bin/ttrun" "$dir/bin/ttrun"
while read -r name path pkg more; do
    (PATH=$path:/usr/bin:/bin PKG_CONFIG_PATH=$pkg make -s -C "$dir/foo_model" $more clean foo_model.so) >"$dir/log" 2>&1
    ok "sdk_$name"
done <<END
of_path $prefix/bin $dir/none
of_a_link_in_path $dir/bin $dir/none
of_pkg_config $dir/none $prefix/lib/pkgconfig
of_prefix $dir/none $dir/none TTRUN_PREFIX=$prefix
END
(PATH=$dir/none:/usr/bin:/bin PKG_CONFIG_PATH=$dir/none make -s -C "$dir/foo_model" clean) >"$dir/log" 2>&1
[ $? -ne 0 ] && grep -q 'no ttrun SDK found' "$dir/log" && [ "$(wc -l <"$dir/log")" -eq 1 ]
ok no_sdk_says_what_to_do
# examples have nothing but the SDK's headers and C's or C++'s
! grep -h '#include "' "$SRC"/examples/*/*.c "$SRC"/examples/*/*.cpp "$SRC"/share/templates/*.c >"$dir/log"
ok examples_have_no_private_headers
exit $failed
