# SPDX-License-Identifier: Apache-2.0
# ttrun: one non-recursive makefile. `make help` lists the targets; V=1 shows the commands; MODE=release|debug|asan|tsan.
#   the .c files of core, launch, interchange, lib and tools but main.c  →  libttrun.so.0 (what plugins link), libttrun_core.a (what tests link)
#   tools/cli/main.c  →  ttrun
#   plugins/<kind>/<name>.c, or a folder plugins/<kind>/<name>/  →  plugins/<kind>/<name>.so, found by wildcard
#   tests/<area>/test_*.c            →  one binary each
MODE    ?= release
PREFIX  ?= /usr/local
DESTDIR ?=
ifeq ($(origin CC),default)
CC      := gcc
endif
AR      ?= ar
VERSION := 0.1.0
ABI     := 0.1

B := build/$(MODE)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '%-7s%s\n' $(1) $(2))

all:
include mk/deps.mk
include mk/flags.mk
include mk/plugins.mk
include mk/cuda.mk

# ---- what there is ----
rwildcard = $(foreach d,$(wildcard $(1:=/*)),$(call rwildcard,$d,$2)$(filter $(subst *,%,$2),$d))
# The roots, and where an include of theirs is looked for: "mesh/mesh.h" is core's, "chat/chat.h" lib's, "cli/cli.h" tools'.
ROOTS    := core launch interchange lib tools
INCLUDES := -Iinclude -Icore -Ilib -Itools -I.
CORE_SRC := $(sort $(filter-out tools/cli/main.c,$(call rwildcard,$(ROOTS),*.c)))
# share/templates are embedded in the library, so that an installed ttrun needs no file for `plugins new`, and so is share/dialects, as
# tables: a job that has no name of another trainer opens no file for them.
CORE_GEN := $B/gen/templates.c $B/gen/dialects.c
DIALECTS := $(sort $(wildcard share/dialects/*.json))
TEMPLATES := $(sort $(wildcard share/templates/*))
# One line TT_CORE_OP(name) per op that a file of core/graph/ops defines.
OPS_DEF := $B/gen/ops.def
CORE_OBJ := $(CORE_SRC:%.c=$B/%.o) $(CORE_GEN:.c=.o)
LIB      := $B/libttrun.so.0
CORE_A   := $B/libttrun_core.a
BIN      := $(if $(wildcard tools/cli/main.c),$B/ttrun)
TEST_SRC := $(sort $(filter-out tests/fuzz/%,$(foreach n,test long,$(wildcard tests/*/$n_*.c tests/*/*/$n_*.c))))
TEST_BIN := $(TEST_SRC:%.c=$B/%)
TOOL_BIN := $(patsubst %.c,$B/%,$(wildcard tests/*/*_tool.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
LINKS    := $(if $(filter release,$(MODE)),$(if $(BIN),ttrun) $(PLUGIN_SO:$B/%=%))

all: $(LIB) $(CORE_A) $(BIN) $(PLUGIN_SO) $(SPECS:%=$B/%) $(LINKS)

# ---- compile ----
$(CORE_SRC:%.c=$B/%.o) $B/tools/cli/main.o: $B/%.o: %.c $B/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(INCLUDES) -I$B/gen -MMD -MP -c $< -o $@

# The commit is compiled into the program's own object alone, so that a commit links the program anew and nothing else. An unpacked
# release has no .git, and that of a folder around it is another project's.
$B/.commit: force
	@mkdir -p $B; c=; if [ -e .git ]; then c=$$(git describe --always --abbrev=12 --exclude='*' --dirty 2>/dev/null); fi; \
	    echo "$$c" | cmp -s - $@ || echo "$$c" > $@
$B/tools/cli/main.o: $B/.commit
$B/tools/cli/main.o: CFLAGS_ALL += -DTT_BUILD_COMMIT='"$(shell cat $B/.commit 2>/dev/null)"'

$(filter $B/core/graph/ops/%,$(CORE_OBJ)): | $(OPS_DEF)
$(OPS_DEF): mk/ops-list.awk $(filter core/graph/ops/%,$(CORE_SRC))
	@mkdir -p $(@D)
	$(Q)LC_ALL=C awk -f mk/ops-list.awk $(filter %.c,$^) > $@.new
	@cmp -s $@.new $@ || mv $@.new $@

$B/plugins/%.o: plugins/%.c $B/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -Iinclude $(call plugin_cflags,$<) -MMD -MP -c $< -o $@

$B/share/%.o: share/%.c $B/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -Iinclude -MMD -MP -c $< -o $@
$B/gen/templates.c: mk/embed.sh $(TEMPLATES) $(patsubst %.c,$B/%.o,$(filter %.c,$(TEMPLATES)))
	@mkdir -p $(@D)
	$(Q)sh mk/embed.sh tt_template $(TEMPLATES) > $@
$B/gen/dialects.c: mk/dialects.awk $(DIALECTS)
	@mkdir -p $(@D)
	$(Q)LC_ALL=C awk -f mk/dialects.awk $(DIALECTS) > $@
$B/gen/%.o: $B/gen/%.c $B/.flags
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(INCLUDES) -MMD -MP -c $< -o $@

# A change of compiler or flags rebuilds everything; a removed file relinks; a removed plugin's .so is deleted.
stamp = @mkdir -p $B; echo '$(1)' | cmp -s - $@ || echo '$(1)' > $@
FLAGS := $(subst ',,$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL))
$B/.flags: force
	$(call stamp,$(FLAGS))
$B/.objects: force
	$(call stamp,$(CORE_OBJ))
STALE := $(filter-out $(PLUGIN_SO) $(SPECS:%=$B/%),$(wildcard $B/plugins/*/*.so $B/plugins/specs/*.json))
$(if $(STALE),$(shell rm -f $(STALE) $(patsubst $B/%,%,$(filter %.so,$(STALE)))))

# ---- link ----
# rpath: the libraries that a wheel brings along (mk/wheel.sh).
$(LIB): $(CORE_OBJ) $B/.objects mk/ttrun.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-soname,libttrun.so.0 -Wl,--version-script=mk/ttrun.map \
	    $(SHARED_CHECKS) $(CORE_OBJ) $(CORE_LIBS) -Wl,-rpath,'$$ORIGIN/ttrun/libs' -o $@
	@ln -sf libttrun.so.0 $B/libttrun.so

$(CORE_A): $(CORE_OBJ) $B/.objects
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(CORE_OBJ)

$B/ttrun: $B/tools/cli/main.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $< -L$B -lttrun -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@

# A plugin is copied before it is loaded, and each test holds the core: in release mode they carry no debug information.
STRIP_DEBUG := $(if $(filter release,$(MODE)),-Wl$(comma)--strip-debug)
# rpath: the build folder's library, or lib/ seen from lib/ttrun/plugins/<kind>/.
.SECONDEXPANSION:
$(PLUGIN_SO): $B/%.so: $$(call plugin_objects,$$*) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(SHARED_CHECKS) -Wl,-z,now $(STRIP_DEBUG) $(call plugin_objects,$*) -L$B \
	    -Wl,--no-as-needed -lttrun -Wl,--as-needed $(call plugin_libs,$*) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../..' -o $@

$(SPECS:%=$B/%): $B/%: %
	@mkdir -p $(@D)
	@cp $< $@

ttrun: $B/ttrun
	@ln -sfn $< $@
$(PLUGIN_SO:$B/%=%): %.so: $B/%.so
	@ln -sfn ../../$< $@

# ---- tests ----
# -rdynamic: a plugin that a test loads binds to the test's copy of the core. Tools (<name>_tool.c) serve test scripts.
$(TEST_BIN) $(TOOL_BIN): $B/%: $B/%.o $(CORE_A)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -rdynamic $(STRIP_DEBUG) $(filter %.o,$^) $(CORE_A) $(CORE_LIBS) -lcmocka -o $@

# The tests' own code is compiled without optimisation, in a fifth of the time, but for what computes for a second or more.
COMPUTES := plugins/far/%.c backends/test_cpu_attention.c backends/test_cpu_checks.c backends/test_cpu_chain.c backends/test_cpu_gemm.c \
    backends/test_cpu_half.c checkpoint/test_faults.c cuda/test_cuda_gemm.c cuda/test_cuda_rows.c cuda/test_rtc.c estimate/test_budget.c \
    estimate/test_budget_offload.c exec/test_far.c graph/test_local.c graph/test_mutations.c graph/test_reshape.c graph/test_sim.c \
    ops/test_backends.c ops/test_quantize.c ops/test_vjp.c passes/test_convert.c
$B/tests/%.o: tests/%.c $B/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(if $(filter release,$(MODE)),$(if $(filter $(COMPUTES:%=tests/%),$<),-O1,-O0)) $(INCLUDES) -Itests -MMD -MP -c $< -o $@

include mk/far.mk
include mk/fake.mk
test: deps
	+$(Q)$(MAKE) --no-print-directory MODE=$(MODE) run-tests
# What several tests use: with it every script can run, so it comes first.
TEST_TOOLS := $(TOOL_BIN) $(FAR_SO) $(FAKE_ALL)
tests: all $(TEST_TOOLS) $(TEST_BIN) $(if $(FUZZ_SRC),fuzz-drivers)
# $(call run_tests,AREAS): while this make links the programs, those of longest CPU time first, the runner runs what is linked, and scripts.
run_tests = { AREAS='$(1)' $(MAKE) --no-print-directory MODE=$(MODE) ready || echo "! the build of the tests broke"; } | sh mk/run-tests.sh $B -
LISTED := $(if $(filter ready,$(MAKECMDGOALS)),$(shell BUILD=$B sh mk/list-tests.sh $(AREAS)))
ready: $(LISTED:%=ready/%)
$(filter ready/tests/fuzz/%,$(LISTED:%=ready/%)): fuzz-drivers
$(filter-out %.sh ready/tests/fuzz/%,$(LISTED:%=ready/%)): ready/%: $B/%
ready/%: force
	@echo $*
run-tests: all $(TEST_TOOLS)
	+$(Q)$(call run_tests)
# Two minutes: what takes no more than a second and a half, and what the changed files reach; test-changed: only the latter, whatever it takes.
test-quick: all $(TEST_TOOLS)
	+$(Q)export QUICK=$${QUICK:-1.5}; $(call run_tests)
test-changed: all $(TEST_TOOLS)
	+$(Q)export CHANGED=1; $(call run_tests)
# T="test_x test_y": only these of the area.
test-%: all $(TEST_TOOLS)
	+$(Q)$(call run_tests,$*)
test-times: all $(TEST_TOOLS)
	+$(Q)TIMES=tests/times; export TIMES; $(call run_tests)

# The programs whose verdict could depend on time, while threads stand still at random looks at the clock: STALL=SEED repeats a run.
STALLED ?= base link comm plugins exec train checkpoint serve sim launch run
test-stall: tests $B/tests/stall/stall.so
	@seed=$${STALL:-$$$$}; echo "STALL=$$seed"; STALL=$$seed JOBS=$${JOBS:-4} sh mk/run-tests.sh $B $(STALLED)
$B/tests/stall/stall.so: tests/stall/stall.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) -std=c11 -Wall -Wextra -O1 -shared -fPIC $< -ldl -o $@

# The same tests with every seed, mesh and recipe, and those that `make test` does not run (tests/AREA/long_*).
test-long: all $(TEST_TOOLS)
	+$(Q)export TEST_LONG=1 TEST_CPU=5400 TEST_TIMEOUT=10800; $(call run_tests)

# Faults put into a copy of the tree, and what the tests say of each: the table, and N=200 drawn with SEED=1 (mk/mutants.sh).
mutants: $B/tests/mutants/mutate_tool
	$(Q)sh mk/mutants.sh
# The lines that the tests run, by folder; BEFORE=FILE: beside another run's build/coverage/lines (mk/coverage.sh).
coverage:
	$(Q)rm -rf build/coverage/lines && find build -path 'build/coverage/*' -name '*.gcda' -delete
	+$(Q)GCOV_ERROR_FILE=$(CURDIR)/build/coverage/errors $(MAKE) --no-print-directory MODE=coverage run-tests; \
	    sh mk/coverage.sh build/coverage

include mk/fuzz.mk
include mk/install.mk
include mk/bench.mk
include mk/chaos.mk
include mk/site.mk

# ---- the rest ----
debug asan tsan:
	+$(Q)$(MAKE) --no-print-directory MODE=$@ all
lint:
	@sh mk/lint.sh
fmt:
	$(Q)mkdir -p build; find $(ROOTS) include plugins tests examples bench mk -name '*.[ch]' -o -name '*.cu' 2>/dev/null | tee build/.fmt | xargs -r clang-format -i; \
	    xargs -r clang-format -i < build/.fmt # twice: 14 needs it to settle
# Compares the numbers with another, built tree's: make same-bits OTHER=/path/to/tree.
same-bits: all
	$(Q)sh tests/bits/compare.sh $(OTHER)
test-peers: all
	$(Q)sh mk/peers.sh
test-docs: all $B/tests/run/json_tool
	$(Q)sh tests/docs/commands.sh
test-clean:
	$(Q)sh mk/test-clean.sh
bench: all
	$(Q)set -e; for s in bench/*/run.sh; do [ -e "$$s" ] || continue; echo "== $$s"; sh "$$s"; done
demo: deps
	+$(Q)$(MAKE) --no-print-directory all
	$(Q)sh mk/demo.sh
docs: all
	$(Q)sh mk/reference.sh > build/.reference.md && cp build/.reference.md docs/reference.md
	$(Q)sh mk/man.sh > build/.ttrun.1 && cp build/.ttrun.1 docs/ttrun.1
	$(Q)sh mk/ops.sh page > build/.ops.md && cp build/.ops.md docs/ops.md
	$(Q)sh mk/ops.sh header > build/.ops.h && { cmp -s build/.ops.h include/ttrun/ops.h || cp build/.ops.h include/ttrun/ops.h; }
clean:
	$(Q)rm -rf build
	$(Q)find . -path ./.git -prune -o -type l \( -name '*.so' -o -name ttrun \) -lname '*build/*' -exec rm {} +
help:
	@sed -n 's/^#: //p' Makefile mk/*.mk

#: all        build ./ttrun, libttrun.so and the plugins (the default)
#: test       install what is missing, build everything, run every test: about ten minutes on two cores
#: test-quick two minutes: the short tests, and what the changed files reach; test-changed: only the latter (SINCE=COMMIT)
#: test-long  every seed, mesh, recipe and chip: hours
#: test-AREA  one area, a folder of tests/; T="test_x test_y": only these of it
#: test-times the same as test; writes tests/times, by which tests are ordered
#: test-stall the tests in which ranks, threads or clients wait, while threads stand still at random (STALL=SEED, STALLED="comm run")
#: mutants    faults that tests must find: those of tests/mutants/table, and N=200 drawn with SEED=1
#: coverage   the lines of each folder that the tests run; BEFORE=FILE: beside another run's build/coverage/lines
#: lint       include rules, sizes, forbidden words, format
#: test-peers ttrun beside PyTorch, transformers, safetensors, TensorBoard (Python packages; TTRUN_VENV=… names where)
#: test-docs  every command of the README and of docs/, as it stands
#: test-clean the README's commands on a bare Debian 12 and Ubuntu 24.04 (debootstrap; needs root and the network)
#: same-bits  metrics of the jobs in tests/bits beside another tree's, bit by bit (OTHER=/path/to/it, built)
#: fmt        clang-format everything
#: fuzz-list  writes tests/fuzz/core.list: what of the core is built with sanitizers for the fuzzers of `make test`
#: fuzz       libFuzzer, 60 s per target (FUZZ_SECONDS=…)
#: bench      bench/*/run.sh, a table per script; bench/NAME/README.md has the numbers
#: demo       train a small Llama on the C headers for about 90 s (DEMO_SECONDS=…), then let it write some
#: docs       docs/reference.md and the lists of docs/ttrun.1 from the option tables, docs/ops.md and the table of ops.h from the op definitions
#: deps       check for compilers and libraries; install them with apt where allowed. DEPS=min|build|test|site: see mk/deps.sh
#: debug asan tsan    the build in that mode, under build/<mode>/ (or MODE=… with any target)
#: install uninstall  PREFIX=/usr/local DESTDIR=
#: deb wheel  build/ttrun_VERSION_ARCH.deb, build/ttrun-VERSION-….whl: packages of what install installs
#: clean      remove build/ and the links into it

force:
.PHONY: all test ready test-quick test-changed test-times test-stall test-long test-clean mutants coverage test-docs tests run-tests test-peers same-bits debug asan tsan deps lint fmt bench demo docs clean help force
.DELETE_ON_ERROR:
-include $(CORE_OBJ:.o=.d) $(patsubst %.c,$B/%.d,$(filter %.c,$(TEMPLATES))) $(PLUGIN_OBJ:.o=.d) $(TEST_BIN:=.d) $(TOOL_BIN:=.d) $B/tools/cli/main.d
