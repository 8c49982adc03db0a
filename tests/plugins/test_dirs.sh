#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where plugins are looked for: --plugin-dir and TTRUN_PLUGIN_PATH before ttrun's own folder, which gives way to them;
# --only-plugin-dirs leaves it out.
. "$(dirname "$0")/../run/lib.sh"
unset TTRUN_PLUGIN_PATH
build() { # NAME FILE: the example signum under another name
    mkdir -p "$(dirname "$2")" && sed "s/\"signum\"/\"$1\"/g" "$SRC/examples/signum/signum.c" >"$dir/signum.c" &&
        cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$dir/signum.c" "-L$BUILD" -lttrun -lm -o "$2"
}
build mine "$dir/mine/mine.so" && build adamw "$dir/over/adamw.so" && build adamw "$dir/deep/sub/other.so"
ok plugins_build
run() { # OPTION...: one step; the file of the optimizer is then in $file
    rm -rf "$dir/run"
    "$TTRUN" "$job" --dump_folder "$dir/run" --training.steps 1 --checkpoint.enable false "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    file=$(grep -o '"kind":"optimizer"[^}]*' "$dir/run/run.json" 2>/dev/null | sed 's/.*"file":"\([^"]*\)".*/\1/')
}
notices() { grep -c ' I plugin] ' "$dir/err"; }
run --plugin-dir "$dir/mine" --optimizer.name mine
[ $rc -eq 0 ] && [ "$file" = "$dir/mine/mine.so" ] && [ "$(notices)" -eq 0 ]
ok one_folder_with_one_plugin_is_enough
TTRUN_PLUGIN_PATH=$dir/mine run --optimizer.name mine
[ $rc -eq 0 ] && [ "$file" = "$dir/mine/mine.so" ]
ok the_variable_does_the_same
TTRUN_PLUGIN_PATH=$dir/mine run --plugin-dir "$dir/over" --optimizer.name mine
[ $rc -eq 2 ] && grep -q 'optimizer "mine" is unknown' "$dir/err"
ok the_option_is_instead_of_the_variable
run --plugin-dir "$PLUGINS"
[ $rc -eq 0 ] && [ "$(notices)" -eq 0 ]
ok naming_the_own_folder_changes_nothing
run --plugin-dir "$dir/over"
[ $rc -eq 0 ] && [ "$file" = "$dir/over/adamw.so" ] && [ "$(notices)" -eq 1 ] &&
    grep -q "optimizer \"adamw\" is that of $dir/over/adamw.so, not of .*/optimizers/adamw.so" "$dir/err"
ok the_users_wins_and_a_line_says_so
run --plugin-dir "$dir/deep"
[ $rc -eq 0 ] && [ "$file" = "$dir/deep/sub/other.so" ] && [ "$(notices)" -eq 1 ]
ok a_file_of_another_name_wins_too
run --plugin-dir "$dir/over" --plugin-dir "$dir/deep"
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'optimizer "adamw" is in both .*/over/adamw.so and .*/deep/sub/other.so: remove or rename one' "$dir/err"
ok two_of_the_users_are_an_error
echo nothing >"$dir/over/sgd.so"
run --plugin-dir "$dir/over" --optimizer.name sgd
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'over/sgd.so: not a plugin' "$dir/err"
ok a_faulty_file_of_the_users_is_not_passed_over
rm "$dir/over/sgd.so"
run --plugin-dir "$dir/mine" --only-plugin-dirs --optimizer.name mine
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "train_spec \"llama3\" is unknown; there is none in $dir/mine\$" "$dir/err"
ok only_these_folders
run --only-plugin-dirs --plugin-dir "$PLUGINS" --plugin-dir "$dir/mine" --optimizer.name mine
[ $rc -eq 0 ] && [ "$file" = "$dir/mine/mine.so" ]
ok only_these_folders_can_be_all_that_is_needed
# plugin_dirs of a job file: from its own folder, whatever the current one is; after the variable and --plugin-dir, before ttrun's own
mkdir -p "$dir/elsewhere" && sed 's|^{|{ "plugin_dirs": ["mine"],|' "$job" >"$dir/self.json"
kept=$job job=$dir/self.json
cd "$dir/elsewhere" && run --optimizer.name mine
[ $rc -eq 0 ] && [ "$file" = "$dir/mine/mine.so" ]
ok a_job_names_its_plugins
"$TTRUN" config "$dir/self.json" --json --optimizer.name mine 2>"$dir/err" | grep -q "\"plugin_dirs\": \[\"$dir/mine\"\]"
ok the_resolved_job_has_the_absolute_folder
"$TTRUN" plan "$dir/self.json" --optimizer.name mine >"$dir/out" 2>"$dir/err" && "$TTRUN" plan "$dir/self.json" --search --world 1 --hardware h100 --optimizer.name mine >"$dir/out" 2>"$dir/err"
ok plan_finds_them_too
TTRUN_PLUGIN_PATH=$dir/over run --optimizer.name mine && [ $rc -eq 0 ] && [ "$file" = "$dir/mine/mine.so" ]
ok the_variable_holds_beside_them
run --plugin-dir "$dir/over" --optimizer.name adamw
[ $rc -eq 0 ] && [ "$file" = "$dir/over/adamw.so" ]
ok the_option_holds_beside_them
run --only-plugin-dirs --plugin-dir "$PLUGINS" --optimizer.name mine
[ $rc -eq 2 ] && grep -q 'optimizer "mine" is unknown' "$dir/err"
ok only_plugin_dirs_leaves_those_of_the_job_out
run --plugin_dirs '["nowhere"]'
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "plugin_dirs: .*$dir/elsewhere/nowhere" "$dir/err"
ok a_folder_of_the_job_that_is_not_there_is_named
job=$kept
cd "$SRC"
"$TTRUN" plugins list optimizer --plugin-dir "$dir/over" >"$dir/out" 2>"$dir/err"
[ "$(grep -c '^optimizer  adamw ' "$dir/out")" -eq 1 ] && grep -q "^optimizer  adamw .*$dir/over/adamw.so" "$dir/out" && grep -q '^optimizer  sgd ' "$dir/out" && ! [ -s "$dir/err" ]
ok the_list_has_the_one_that_is_used
mkdir "$dir/tree" && cp -r "$TTRUN" "$BUILD/libttrun.so.0" "$dir/tree/" && cp -rL "$PLUGINS" "$dir/tree/plugins" 2>/dev/null
TTRUN=$dir/tree/ttrun run --plugin-dir "$PLUGINS"
[ $rc -eq 0 ] && [ "$(notices)" -eq 0 ] && [ "$file" = "$PLUGINS/optimizers/adamw.so" ]
ok a_copy_of_the_own_plugins_needs_no_line
printf 'x' >>"$dir/tree/plugins/optimizers/adamw.so" && echo >>"$dir/tree/plugins/specs/llama3.json"
TTRUN=$dir/tree/ttrun run --plugin-dir "$PLUGINS"
[ $rc -eq 0 ] && [ "$(notices)" -eq 1 ] && TTRUN=$dir/tree/ttrun run -v --plugin-dir "$PLUGINS" && [ "$(grep -c ' plugin\] .*, not of ' "$dir/err")" -eq 2 ]
ok the_plugins_of_another_build_are_one_line
# what a file has is read from its bytes: one that only mentions the names of a job's parts is not opened
mkdir -p "$dir/watch/optimizers" &&
    { printf '#include <unistd.h>\n__attribute__((constructor)) static void opened(void) { write(2, "OPENED\\n", 7); }\nconst char *const mentioned[] = {"llama3", "adamw", "text", "jsonl", "shm"};\n' &&
        sed 's/"signum"/"watch"/g' "$SRC/examples/signum/signum.c"; } >"$dir/watch.c" &&
    cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$dir/watch.c" "-L$BUILD" -lttrun -lm -o "$dir/watch/optimizers/watch.so" &&
    run --plugin-dir "$dir/watch" --nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2 && [ $rc -eq 0 ] && ! grep -q OPENED "$dir/err" &&
    run --plugin-dir "$dir/watch" --optimizer.name watch && [ $rc -eq 0 ] && grep -q OPENED "$dir/err"
ok only_files_that_are_needed_are_opened
exit $failed
