#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line on bad plugins: one line naming file and reason, status 2, never a crash. TTRUN: the program;
# SRC: the checkout. The whole table of lies is test_registry.c's.
. "$(dirname "$0")/../script.sh"
mkdir "$dir/none"

build() { # FILE FLAGS...
    to=$1
    shift
    mkdir -p "$(dirname "$to")"
    cc -w -shared -fPIC "-I$SRC/include" "$@" "$SRC/tests/abi/liar.c" -o "$to" || exit 1
}
refused() { # NAME WORDS COMMAND...: status 2, one line on stderr with the words
    name=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -qF -- "$words" "$dir/err"
    ok "$name"
}
check() { # NAME WORDS FILE
    refused "$1" "$3: " "$TTRUN" --plugin-dir "$dir/none" plugins check "$3"
    grep -qF -- "$2" "$dir/err" || { echo "not ok $1: says \"$2\"" && failed=1; }
}

build "$dir/good.so"
"$TTRUN" --plugin-dir "$dir/none" plugins check "$dir/good.so" >"$dir/out" 2>"$dir/err"
ok good

build "$dir/magic.so" -DLIE_MAGIC=7u
check magic "magic is 0x00000007" "$dir/magic.so"
build "$dir/major.so" -DLIE_MAJOR=2
check major "built for ABI 2.1, this ttrun has 0.1" "$dir/major.so"
build "$dir/minor.so" -DLIE_MINOR=2
check minor "built for ABI 0.2, this ttrun has 0.1" "$dir/minor.so"
build "$dir/size.so" -DLIE_PLUGIN_SIZE=9999
check size "it claims 9999 bytes" "$dir/size.so"
build "$dir/symbol.so" -DWITH_UNDEFINED
check symbol "undefined symbol: function_no_library_has" "$dir/symbol.so"
build "$dir/entry.so" -DWITHOUT_ENTRY
check entry "exports no tt_plugin_entry" "$dir/entry.so"
echo "not a plugin" >"$dir/text.so"
check text "no ELF file" "$dir/text.so"
: >"$dir/empty.so"
check empty "the file is empty" "$dir/empty.so"
mkdir "$dir/folder.so"
check folder "not a regular file" "$dir/folder.so"
check absent "No such file" "$dir/absent.so"

build "$dir/crash.so" -DWITH_CRASH
check crash "crashed: " "$dir/crash.so"

bytes=$(wc -c <"$dir/good.so")
survived=0
i=0
while [ $i -lt 50 ]; do
    head -c $((bytes * i / 50)) "$dir/good.so" >"$dir/cut.so"
    "$TTRUN" --plugin-dir "$dir/none" plugins check "$dir/cut.so" >"$dir/out" 2>"$dir/err"
    [ $? -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && survived=$((survived + 1))
    i=$((i + 1))
done
[ $survived -eq 50 ]
ok truncated

refused folder_absent "$dir/nowhere: this plugin folder cannot be read" "$TTRUN" --plugin-dir "$dir/nowhere" plugins list

# list shows what is good and warns of the rest
mkdir -p "$dir/mixed/lr_schedulers"
build "$dir/mixed/lr_schedulers/fine.so" -DNAME='"fine"'
build "$dir/mixed/a.so" -DNAME='"double"'
build "$dir/mixed/b.so" -DNAME='"double"'
cp "$dir/major.so" "$dir/mixed/"
"$TTRUN" --plugin-dir "$dir/mixed" plugins list >"$dir/out" 2>"$dir/err" &&
    grep -q '^lr_scheduler  *fine  *1.0 ' "$dir/out" && grep -q 'major.so: built for ABI 2.1' "$dir/err" &&
    grep -q '"double" is in both .*a.so and .*b.so' "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 2 ]
ok list
"$TTRUN" --plugin-dir "$dir/mixed" plugins list --json >"$dir/out" 2>"$dir/err" && grep -q '"name":"fine"' "$dir/out"
ok list_json

# a TrainSpec that is a file of names
spec="$dir/mine/specs/mine.json"
mkdir -p "$dir/mine/specs"
echo '{"model": "some", "metrics": ["a", "b"], "rules": [{"label": "ffn", "axes": "tp", "policy": "pad"}]}' >"$spec"
echo '{"not": "a plugin"}' >"$dir/mine/job.json"
"$TTRUN" --plugin-dir "$dir/mine" --only-plugin-dirs plugins list >"$dir/out" 2>"$dir/err" &&
    grep -q "^train_spec  *mine .*specs/mine.json\$" "$dir/out" && [ "$(wc -l <"$dir/out")" -eq 2 ] && ! [ -s "$dir/err" ]
ok spec_file_is_listed
echo '{}' >"$dir/empty.json"
refused spec_file_is_used 'model "some" is unknown' "$TTRUN" --plugin-dir "$dir/mine" plan "$dir/empty.json" --spec mine
bad_spec() { # NAME WORDS TEXT
    echo "$3" >"$spec"
    refused "$1" "$spec$2" "$TTRUN" --plugin-dir "$dir/none" plugins check "$spec"
}
bad_spec spec_file_unknown_key ':1:29: optimiser: unknown key (did you mean optimizer?)' '{"model": "a", "optimiser": "b"}'
bad_spec spec_file_without_a_model ':1:1: model: missing' '{"loss": "a"}'
bad_spec spec_file_no_object ': expected an object of component names' '[]'
bad_spec spec_file_no_json ':2:1: ' '{"model": '
bad_spec spec_file_metrics ':1:27: metrics: expected a list of names' '{"model": "a", "metrics": "b"}'
bad_spec spec_file_rule ':1:51: axis: a rule has label, axes and policy' '{"model": "a", "rules": [{"label": "ffn", "axis": "tp"}]}'
bad_spec spec_file_type ':1:24: loss: expected a name' '{"model": "a", "loss": 3}'

# new refuses what it must not write
cd "$dir" || exit 1
refused new_bad_name 'cannot be the name of a plugin' "$TTRUN" plugins new model '../x'
refused new_bad_kind 'did you mean model?' "$TTRUN" plugins new modle x
"$TTRUN" plugins new hook watcher >"$dir/out" 2>"$dir/err"
ok new
refused new_exists 'watcher: exists already' "$TTRUN" plugins new hook watcher
exit $failed
