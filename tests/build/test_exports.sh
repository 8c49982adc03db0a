#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The symbols that the shared objects export.
. "$(dirname "$0")/../script.sh"
cd "$BUILD" || exit 1
library_exports_only_tt() {
    bad=$(nm -D --defined-only libttrun.so.0 | awk '$2 != "A" && $3 !~ /^tt_/ && $3 !~ /^__(asan|ubsan|tsan|odr)/ {print $3}')
    [ -z "$bad" ] || { echo "$bad"; return 1; }
}
# Every TT_EXPORT function of the public headers is there, and nothing that they do not declare but what the program calls.
library_exports_what_headers_declare() {
    cat "$SRC"/include/ttrun/*.h | tr '\n' ' ' | grep -o 'TT_EXPORT [^;(]*[ *]tt_[a-z0-9_]*(' | grep -o 'tt_[a-z0-9_]*($' |
        tr -d '(' | sort -u >"$dir/declared"
    nm -D --defined-only libttrun.so.0 | awk '$2 == "T" || $2 == "D" || $2 == "R" {sub(/@.*/, "", $3); print $3}' |
        grep '^tt_' | grep -v -x -e tt_cli_main -e tt_ranks_leave | sort -u >"$dir/exported"
    cmp -s "$dir/declared" "$dir/exported" || { diff "$dir/declared" "$dir/exported"; return 1; }
}
library_has_its_soname() { readelf -d libttrun.so.0 | grep -q 'soname: \[libttrun.so.0\]'; }
plugins_export_one_symbol() {
    nm -A -D --defined-only plugins/*/*.so >"$dir/symbols" || return 1
    awk '{so = $1; sub(/:.*/, "", so)} $3 !~ /^__(asan|ubsan|tsan|odr)/ {n[so]++; if ($3 == "tt_plugin_entry") entry[so] = 1; else {print so ": " $3; bad = 1}}
        END {for (so in n) if (n[so] != 1 || !entry[so]) bad = 1; for (so in entry) all++; print all " plugins"; exit bad}' "$dir/symbols" >"$dir/found" &&
        [ "$(tail -n 1 "$dir/found")" = "$(ls plugins/*/*.so | wc -l) plugins" ] || { cat "$dir/found"; return 1; }
}
plugins_need_the_library() {
    for so in plugins/*/*.so; do
        [ -e "$so" ] || continue
        readelf -d "$so" | grep -q 'NEEDED.*libttrun.so.0' || { echo "$so"; return 1; }
    done
}
plugins_have_no_constructors() {
    case $BUILD in */asan | */tsan) return 0 ;; esac
    readelf -d plugins/*/*.so >"$dir/dynamic" && nm -A plugins/*/*.so >"$dir/symbols" || return 1
    # 8 bytes are crtbegin's own, and 8 libgcc's, behind __builtin_cpu_supports
    awk 'FNR == NR {if (/ __cpu_indicator_init$/) {sub(/:.*/, ""); own[$0] = 8} next}
        /^File: / {so = $2; files++} /INIT_ARRAYSZ/ && $3 - own[so] > 8 {print so ": " $3 " bytes of constructors"; bad = 1}
        END {exit bad || files < 2}' "$dir/symbols" "$dir/dynamic"
}
for t in library_exports_only_tt library_exports_what_headers_declare library_has_its_soname plugins_export_one_symbol \
    plugins_need_the_library plugins_have_no_constructors; do
    check $t $t
done
exit $failed
