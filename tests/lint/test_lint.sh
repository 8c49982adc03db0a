#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make lint finds what it should: each case puts one offence into a small clean tree.
. "$(dirname "$0")/../script.sh"
tree=$dir/tree
spdx='/* SPDX-License-Identifier: Apache-2.0 */'

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/mk" "$tree/core/base" "$tree/core/graph" "$tree/core/mesh" "$tree/core/passes" "$tree/core/plugin" "$tree/tools/cli" "$tree/launch" \
        "$tree/plugins/losses/big" "$tree/plugins/backends/cuda/kernels" "$tree/include/ttrun" "$tree/docs/design"
    printf '**R1 A rule.** Text.\n- **P2 Another.** Text.\n' >"$tree/docs/design/rules.md"
    cp "$SRC"/mk/lint.sh "$SRC"/mk/lint.awk "$tree/mk/"
    cp "$SRC/.clang-format" "$tree/"
    for f in core/base/base.h core/mesh/mesh.h core/graph/graph.h launch/a.h plugins/losses/big/own.h include/ttrun/log.h; do
        echo "$spdx" >"$tree/$f"
    done
    printf '%s\n#include "base/base.h"\n#include "graph.h"\n#include "mesh/mesh.h"\n#include <ttrun/log.h>\n' "$spdx" >"$tree/core/graph/a.c"
    printf '%s\n#include "own.h"\n#include <math.h>\n#include <ttrun/log.h>\n' "$spdx" >"$tree/plugins/losses/big/a.c"
}
lint() { sh "$tree/mk/lint.sh" >"$dir/out" 2>&1; }
# finds NAME FILE PATTERN: the file's text is on stdin
finds() {
    fresh
    { echo "$spdx"; cat; } >"$tree/$2"
    ! lint && [ "$(wc -l <"$dir/out")" = 2 ] && grep -q "^$2:[0-9]*: .*$3" "$dir/out"
    ok "lint_finds_$1"
}

fresh
# words in comments and literals, and calls that merely look alike, are no offence
cat >>"$tree/core/graph/a.c" <<'C'
/* exit(1) and printf("x") in a
 * comment: abort() */
int tt_exit(int x);
int tt_exit(int x)
{
    const char *s = "exit(1); printf(\"x\")";
    return s[x] + on_exit(x); // abort()
}
C
printf '%s\n#include "emulator.h"\n' "$spdx" >"$tree/plugins/backends/cuda/kernels/dialect.h"
printf '%s\n#include "dialect.h"\n#ifdef __CUDACC__\n#define TABLE static __device__ const\n#else\n#define TABLE static const\n#endif\n' "$spdx" >"$tree/plugins/backends/cuda/kernels/a.cu"
lint && grep -qx 'lint: ok' "$dir/out"
ok lint_passes_a_clean_tree

echo '#include "graph/graph.h"' | finds include_against_the_order core/mesh/b.c "may not include core/graph"
echo '#include "graph/b_impl.h"' | finds private_header_of_another_folder core/passes/b.c "private to core/graph"
echo '#include "launch/a.h"' | finds include_of_a_root_above core/graph/b.c "core/graph may not include launch"
echo '#include "cli/b.h"' | finds include_of_tools_by_launch launch/b.c "launch may not include tools/cli"
echo '#include "elsewhere/b.h"' | finds a_folder_that_nobody_knows core/graph/b.c "no folder of that name"
echo '/* core/mesh/gone.c does it */' | finds a_file_that_is_gone core/graph/b.c 'there is no core/mesh/gone.c'
echo '/* tools/cli/gone.c does it */' | finds a_tool_that_is_gone core/graph/b.c 'there is no tools/cli/gone.c'
echo '#include <dlfcn.h>' | finds dlfcn_outside_plugin core/graph/b.c dlfcn
echo '#include <jansson.h>' | finds jansson_outside_config core/graph/b.c jansson
echo '#include "base/base.h"' | finds core_header_in_a_plugin plugins/losses/b.c "own headers only"
k=plugins/backends/cuda/kernels
echo '#include <math.h>' | finds a_system_header_in_kernels $k/b.cu "of their folder only"
echo '#include "cuda.h"' | finds a_header_from_elsewhere_in_kernels $k/b.cu "own headers only"
printf 'void f(float *p)\n{\n    atomicAdd(p, 1.0f);\n}\n' | finds a_name_outside_the_dialect $k/b.cu "names of dialect.h"
printf 'void f(void)\n{\n    __syncthreads();\n}\n' | finds a_barrier_outside_the_dialect $k/b.h "names of dialect.h"
printf 'void f( int x);\n' | finds kernels_that_are_not_formatted $k/b.cu "make fmt"
echo '#include "base/base.h"' | finds core_header_in_the_sdk include/ttrun/b.h "public headers"
printf 'void f(void)\n{\n    exit(1);\n}\n' | finds exit core/graph/b.c "exit and abort"
printf 'void f(void)\n{\n    fprintf(stderr, "x");\n}\n' | finds printing plugins/losses/b.c "no printing"
printf 'int f(const tt_node *n)\n{\n    return strcmp(n->op->name, "linear");\n}\n' | finds an_op_by_name core/graph/b.c "op's name"
printf 'int f(const tt_node *n)\n{\n    return !strncmp(n->op->name, "attention", 9);\n}\n' | finds ops_by_prefix tools/cli/b.c "op's name"
printf 'void f(void)\n{\n    tt_op_find(g->ops, "linear");\n}\n' | finds an_op_found_by_literal core/graph/b.c "literal name"
echo '#include "graph/ops/internal.h"' | finds ops_headers_outside_the_ops core/graph/b.c "private to core/graph/ops"
echo '/* FIX''ME */' | finds a_mark core/graph/b.c mark
{ echo 'void f(void)'; echo '{'; yes '    ;' | head -n 59; echo '}'; } | finds a_long_function core/graph/b.c "function of 61"
yes 'int x;' | head -n 600 | finds a_long_file core/graph/b.c "601 lines"
yes 'int x;' | head -n 250 | finds a_long_header core/graph/b.h "251 lines"
echo '/* as said (R1, R7) */' | finds a_rule_that_is_not_there core/graph/b.c "no rule R7"
echo '/* see ../elsewhere/page.md */' | finds a_path_out_of_the_tree core/graph/b.c "../elsewhere/page.md leads to no file"
echo 'As in [the page](page.md).' | finds a_link_to_nowhere docs/b.md "link to page.md leads nowhere"
fresh
mkdir "$dir/bin" && printf '#!/bin/sh\nkill -SEGV $$\n' >"$dir/bin/clang-format" && chmod +x "$dir/bin/clang-format"
! PATH=$dir/bin:$PATH lint && grep -q '^clang-format:0: .*terminated by signal 11' "$dir/out"
ok lint_finds_a_formatter_that_crashes
if command -v clang-format >/dev/null 2>&1; then
    echo 'int   x;' | finds loose_format core/graph/b.c clang-format
else
    skip loose_format "no clang-format here"
fi
# What the list has is allowed, and no more.
fresh
printf '%s\n#include "cli/b.h"\n' "$spdx" >"$tree/launch/b.h"
cp "$tree/launch/b.h" "$tree/launch/c.h"
echo 'launch/b.h tools/cli/b.h' >"$tree/mk/arrows.list"
! lint && [ "$(grep -c 'may not include' "$dir/out")" = 1 ] && grep -q '^launch/c.h:2: launch may not include tools/cli: "cli/b.h"' "$dir/out"
ok lint_allows_the_includes_of_the_list
# The fourth file with a static of one name is one too many; those of plugins count, and keep theirs.
fresh
for f in core/base/a core/base/b core/mesh/a plugins/losses/a; do
    printf '%s\nstatic void put(int x)\n{\n    (void)x;\n}\n' "$spdx" >"$tree/$f.c"
done
! lint && grep -qx "core/mesh/a.c:2: put: 4 files have a static of this name; give it its file's noun" "$dir/out" &&
    [ "$(grep -c ': put: 4 files' "$dir/out")" = 3 ]
ok lint_counts_the_names_of_statics
# A built ttrun prints other tables than the pages hold.
fresh
cp "$SRC/mk/ops.sh" "$SRC/mk/reference.sh" "$tree/mk/"
printf '#!/bin/sh\necho "/* new */"\n' >"$tree/ttrun"
chmod +x "$tree/ttrun" "$tree/mk/ops.sh" "$tree/mk/reference.sh"
printf '%s\n/* Made by `make docs` */\n/* old */\n/* End of what is made. */\n' "$spdx" >"$tree/include/ttrun/ops.h"
echo '/* new */' >"$tree/docs/reference.md"
echo '/* new */' >"$tree/docs/ops.md"
! lint && [ "$(wc -l <"$dir/out")" = 2 ] && grep -q '^include/ttrun/ops.h: its table is out of date' "$dir/out"
ok lint_finds_an_old_table
# ---- what a test's verdict must not depend on ----
clock() { # the list is on stdin
    fresh
    mkdir -p "$tree/tests/lint" "$tree/tests/comm"
    cp "$SRC/mk/lint-clock.awk" "$tree/mk/"
    cat >"$tree/tests/lint/clock.list"
}
offends() { # NAME FILE WORD LINE
    clock </dev/null
    printf '%s\n%s\n' "$(case $2 in *.sh) echo "#!/bin/sh" && echo '# SPDX-License-Identifier: Apache-2.0' ;; *) echo "$spdx" ;; esac)" "$4" >"$tree/tests/comm/$2"
    ! lint && [ "$(grep -c ': no verdict may depend on it' "$dir/out")" = 1 ] && grep -q "^tests/comm/$2:[0-9]: $3: no verdict" "$dir/out"
    ok "lint_finds_$1"
}
offends a_sleep_in_a_script test_a.sh sleep 'run && sleep 0.5'
offends a_date_in_a_script test_a.sh date 'begin=$(date +%s)'
offends a_limit_of_wall_time test_a.sh timeout 'timeout -k 5 300 "$TTRUN" job.json'
offends a_pid_in_a_script test_a.sh pid 'folder=/tmp/x.$$'
offends unseeded_chance test_a.sh chance 'head -c 8 /dev/urandom >x'
offends a_fixed_port test_a.sh port 'run --master_port 29500'
offends a_sleep_in_C test_a.c sleep '    usleep(1000);'
offends a_clock_in_C battery.h clock '    const int64_t begin = tt_now_ns();'
offends a_pid_in_C test_a.c pid '    snprintf(s, n, "x%d", getpid());'
offends rand_in_C test_a.c chance '    return rand() % 7;'
offends a_fixed_port_in_C test_a.c port '    a.sin_port = htons(8080);'
clock <<'LIST'
# a comment
tests/comm/test_a.sh sleep between two looks, decides nothing
LIST
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n# sleep 1 in a comment\nsleep 0.01\necho sleep well, $((1 + 1)) to date\n' >"$tree/tests/comm/test_a.sh"
printf '%s\n/* usleep(1) */\nint nap(void); /* no sleep(1) */\n' "$spdx" >"$tree/tests/comm/test_b.c"
lint
ok lint_passes_what_the_list_names
rm "$tree/tests/comm/test_a.sh"
! lint && grep -q '^tests/lint/clock.list:2: tests/comm/test_a.sh no longer uses sleep' "$dir/out"
ok lint_finds_an_entry_that_is_not_needed

fresh
echo 'int x;' >"$tree/core/graph/b.c"
! lint && grep -q '^core/graph/b.c:1: no SPDX' "$dir/out"
ok lint_finds_a_missing_licence
exit $failed
