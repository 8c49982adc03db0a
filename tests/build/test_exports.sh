#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The symbols that the shared objects export.
. "$(dirname "$0")/../script.sh"
cd "$BUILD" || exit 1
library_exports_only_tt() {
    bad=$(nm -D --defined-only libttrun.so.0 | awk '$2 != "A" && $3 !~ /^tt_/ && $3 !~ /^__(asan|ubsan|tsan|odr)/ {print $3}')
    [ -z "$bad" ] || { echo "$bad"; return 1; }
}
# Every TT_EXPORT function of the public headers is there, and nothing that they do not declare.
library_exports_what_headers_declare() {
    cat "$SRC"/include/ttrun/*.h | tr '\n' ' ' | grep -o 'TT_EXPORT [^;(]*[ *]tt_[a-z0-9_]*(' | grep -o 'tt_[a-z0-9_]*($' |
        tr -d '(' | sort -u >"$dir/declared"
    nm -D --defined-only libttrun.so.0 | awk '$2 == "T" || $2 == "D" || $2 == "R" {sub(/@.*/, "", $3); print $3}' |
        grep '^tt_' | grep -v '^tt_cli_main$' | sort -u >"$dir/exported"
    cmp -s "$dir/declared" "$dir/exported" || { diff "$dir/declared" "$dir/exported"; return 1; }
}
library_has_its_soname() { readelf -d libttrun.so.0 | grep -q 'soname: \[libttrun.so.0\]'; }
plugins_export_one_symbol() {
    for so in plugins/*/*.so; do
        [ -e "$so" ] || continue
        names=$(nm -D --defined-only "$so" | awk '$3 !~ /^__(asan|ubsan|tsan|odr)/ {print $3}')
        [ "$names" = tt_plugin_entry ] || { echo "$so: $names"; return 1; }
    done
}
plugins_need_the_library() {
    for so in plugins/*/*.so; do
        [ -e "$so" ] || continue
        readelf -d "$so" | grep -q 'NEEDED.*libttrun.so.0' || { echo "$so"; return 1; }
    done
}
plugins_have_no_constructors() {
    for so in plugins/*/*.so; do
        [ -e "$so" ] || continue
        case $BUILD in */asan | */tsan) continue ;; esac
        size=$(readelf -d "$so" | awk '/INIT_ARRAYSZ/ {print $3}')
        nm "$so" | grep -q ' __cpu_indicator_init$' && size=$((size - 8)) # libgcc's, behind __builtin_cpu_supports
        [ "${size:-8}" -le 8 ] || { echo "$so: $size bytes of constructors"; return 1; } # 8: crtbegin's own
    done
}
for t in library_exports_only_tt library_exports_what_headers_declare library_has_its_soname plugins_export_one_symbol \
    plugins_need_the_library plugins_have_no_constructors; do
    check $t $t
done
exit $failed
