#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make install into an empty folder: the installed files work from there, and uninstall removes all of them.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
mode=${BUILD##*/}
root=$dir/root
install_puts_files() {
    make MODE="$mode" install DESTDIR="$root" PREFIX=/opt/t >"$dir/log" 2>&1 || { cat "$dir/log"; return 1; }
    for f in bin/ttrun lib/libttrun.so.0 lib/libttrun.so lib/pkgconfig/ttrun.pc include/ttrun/ttrun.h \
        share/man/man1/ttrun.1 share/bash-completion/completions/ttrun share/ttrun/plugin.mk \
        share/doc/ttrun/docs/sdk.md share/doc/ttrun/configs/llama3_debug.json share/doc/ttrun/examples/signum/signum.c; do
        [ -e "$root/opt/t/$f" ] || { echo "missing $f"; return 1; }
    done
    (cd "$BUILD/plugins" && ls -d */*.so */*.json) >"$dir/built"
    (cd "$root/opt/t/lib/ttrun/plugins" && ls -d */*.so */*.json) | cmp - "$dir/built"
}
# A folder without .git, in a checkout of something else: a release.
release_has_no_commit() {
    mkdir -p "$dir/other/release" && git -C "$dir/other" init -q && cp -r Makefile mk "$dir/other/release" &&
        make -s -C "$dir/other/release" build/release/.commit >"$dir/log" 2>&1 && [ "$(cat "$dir/other/release/build/release/.commit")" = "" ]
}
installed_library_is_found() {
    ldd "$root/opt/t/bin/ttrun" | grep -q "libttrun.so.0 => $root/opt/t/" || return 1
    for so in "$root"/opt/t/lib/ttrun/plugins/*/*.so; do
        ldd "$so" | grep -q "libttrun.so.0 => $root/opt/t/" || { echo "$so"; return 1; }
    done
}
pkg_config_knows_it() {
    PKG_CONFIG_PATH=$root/opt/t/lib/pkgconfig
    export PKG_CONFIG_PATH
    [ "$(pkg-config --variable=plugindir ttrun)" = /opt/t/lib/ttrun/plugins ] &&
        [ "$(pkg-config --variable=abi_version ttrun)" = 0.1 ]
}
headers_stand_alone() { # each, as C and as C++
    for h in "$root"/opt/t/include/ttrun/*.h; do
        echo "#include <ttrun/${h##*/}>" >"$dir/h.c"
        ${CC:-gcc} -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$root/opt/t/include" -fsyntax-only "$dir/h.c" || return 1
        g++ -x c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -I"$root/opt/t/include" -fsyntax-only "$dir/h.c" || return 1
    done
}
# tt_log() is the logger, tt_log_e() the logarithm: a guess stops the build.
a_guessed_call_does_not_build() {
    mkdir -p "$dir/guess" && printf '%s\n' 'PLUGIN := guess' "include $root/opt/t/share/ttrun/plugin.mk" >"$dir/guess/Makefile" || return 1
    for call in 'tt_log(b, x)' 'tt_exp(x, b)' 'tt_logarithm(b, x)' 'tt_log_e(b, x)'; do
        printf '%s\n' '#include <ttrun/ops.h>' 'tt_value *f(tt_builder *b, tt_value *x);' "tt_value *f(tt_builder *b, tt_value *x) { return $call; }" >"$dir/guess/guess.c"
        rm -f "$dir/guess/guess.so"
        make -C "$dir/guess" >"$dir/log" 2>&1
        [ "$call" = 'tt_log_e(b, x)' ] && { [ -f "$dir/guess/guess.so" ] || { cat "$dir/log"; return 1; }; } && continue
        grep -q 'guess.c:3:.*error' "$dir/log" || { echo "$call"; cat "$dir/log"; return 1; }
    done
}
# As a user finds them: from any folder, with the commands of their first lines; nothing is written where they are installed.
installed_jobs_run() {
    doc=$root/opt/t/share/doc/ttrun
    mkdir -p "$dir/home" "$dir/any" && find "$root" | sort >"$dir/before" || return 1
    typed=$(sed -n 's|^// *ttrun tokenizer|ttrun tokenizer|p' "$doc/configs/pretrain_text.json" | sed "s|/opt/t/share|$root&|; s|^|$root/opt/t/bin/|")
    [ -n "$typed" ] && (cd "$dir/any" && HOME=$dir/home sh -c "$typed -q") || { echo "$typed"; return 1; }
    for job in pretrain_text "$doc"/configs/*.json; do
        job=${job##*/} job=${job%.json}
        (cd "$dir/any" && HOME=$dir/home "$root/opt/t/bin/ttrun" "$doc/configs/$job.json" -q --training.steps 1 --training.seq_len 64 --validation.enable false) >"$dir/log" 2>&1
        rc=$?
        case $job in
        llama3_bin) [ $rc -eq 2 ] && grep -q 'no file matches .*/configs/fineweb10B' "$dir/log" ;; # its data is downloaded
        *) [ $rc -eq 0 ] && [ -e "$dir/home/ttrun/outputs/$job/metrics.jsonl" ] ;;
        esac || { echo "$job: $rc"; cat "$dir/log"; return 1; }
    done
    ! (cd "$dir/any" && TEXT=/nowhere env -u TTRUN "$doc/examples/chat/run.sh") >"$dir/log" 2>&1 &&
        grep -q "TEXT='/nowhere' has 0 lines" "$dir/log" && [ -e "$dir/any/chat/pretrain.json" ] || { cat "$dir/log"; return 1; }
    [ "$(ls "$dir/any")" = chat ] && find "$root" | sort | cmp - "$dir/before" && ! grep -l '\.\./outputs\|\./ttrun' "$doc"/configs/*.json
}
uninstall_leaves_nothing() {
    make MODE="$mode" uninstall DESTDIR="$root" PREFIX=/opt/t >/dev/null 2>&1
    left=$(find "$root" -not -type d; find "$root" -type d -name '*zsh*' -o -type d -name '*fish*' -o -type d -name '*completion*' -o -type d -name '*ttrun*')
    [ -z "$left" ] || { echo "$left"; return 1; }
}
scaffold_without_sdk_says_what_to_do() {
    (cd "$dir" && "$TTRUN" plugins new hook lonely >/dev/null) || return 1
    make -C "$dir/lonely" TTRUN_PREFIX=/nowhere >"$dir/log" 2>&1 && return 1
    grep -q 'no ttrun SDK found: run "make install PREFIX=DIR"' "$dir/log" || { cat "$dir/log"; return 1; }
}
for t in release_has_no_commit install_puts_files installed_library_is_found pkg_config_knows_it headers_stand_alone a_guessed_call_does_not_build scaffold_without_sdk_says_what_to_do installed_jobs_run \
    uninstall_leaves_nothing; do
    check $t $t
done
exit $failed
