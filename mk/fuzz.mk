# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/fuzz_<name>.c define LLVMFuzzerTestOneInput. `make test` runs them for a short while with gcc's sanitizers and
# our own driver (seeds of tests/fuzz/corpus/<name>/, fixed-seed mutations of them, and inputs made from tests/fuzz/grammar/<name>.txt);
# `make fuzz` is libFuzzer, for hours if wanted.
FUZZ_DRIVERS := $(FUZZ_SRC:tests/fuzz/%.c=build/asan/tests/fuzz/%)
FUZZ_MAIN    := build/asan/tests/fuzz/driver.o build/asan/tests/fuzz/grammar.o
FUZZ_CLANG   := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/%)
FUZZ_CC      ?= clang
FUZZ_CFLAGS  := -std=c11 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
    -ffp-contract=off $(INCLUDES) -Itests -I$B/gen -DTT_BUILD_VERSION='"$(VERSION)"'

# Of the core only what they link is built with the sanitizers: the files of tests/fuzz/core.list, one in eight. An undefined
# reference of the link says that a file is missing there: `make fuzz-list` asks the linker and writes the list.
FUZZ_LIST := tests/fuzz/core.list
FUZZ_CORE := $(file < $(FUZZ_LIST))

ifeq ($(MODE),asan)
# What makes inputs nests as deeply as they do, on the stack of which a parser may use little (driver.c).
build/asan/tests/fuzz/grammar.o: CFLAGS_ALL += -fno-sanitize=all -O2
$(FUZZ_DRIVERS): build/asan/%: build/asan/%.o $(FUZZ_MAIN) build/asan/libttrun_fuzz.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(CORE_LIBS) -o $@
build/asan/libttrun_fuzz.a: $(FUZZ_CORE:%.c=build/asan/%.o) build/asan/gen/dialects.o $(FUZZ_LIST)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
fuzz-drivers: $(FUZZ_DRIVERS)
fuzz-list: $(CORE_OBJ) $(FUZZ_DRIVERS:=.o) $(FUZZ_MAIN)
	$(Q)rm -f build/asan/all.a && $(AR) rcsT build/asan/all.a $(CORE_OBJ) # thin: its members have paths
	$(Q)set -e; for f in $(FUZZ_DRIVERS); do \
	    $(CC) $(LDFLAGS_ALL) -Wl,--trace $$f.o $(FUZZ_MAIN) build/asan/all.a $(CORE_LIBS) -o build/asan/.fuzz; \
	done >build/asan/.trace
	$(Q)sed -n 's|.*build/asan/\([a-z0-9_/]*\)\.o.*|\1.c|p' build/asan/.trace | grep -v '^\(gen\|tests\)/' | LC_ALL=C sort -u >$(FUZZ_LIST)
	@rm -f build/asan/all.a build/asan/.fuzz build/asan/.trace
-include $(FUZZ_DRIVERS:=.d) $(FUZZ_MAIN:.o=.d)
else
fuzz-drivers fuzz-list:
	+$(Q)$(MAKE) --no-print-directory MODE=asan $@
endif

build/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -MMD -MP -c $< -o $@
$(patsubst %.c,build/fuzz/%.o,$(filter core/graph/ops/%,$(CORE_SRC))): | $(OPS_DEF)
build/fuzz/libcore.a: $(CORE_SRC:%.c=build/fuzz/%.o) $(CORE_GEN:%.c=build/fuzz/%.o)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(FUZZ_CLANG): build/fuzz/%: build/fuzz/tests/fuzz/%.o build/fuzz/libcore.a
	$(call say,LD,$@)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined $^ $(CORE_LIBS) -lpthread -o $@

fuzz: $(FUZZ_CLANG)
	$(Q)set -e; for f in $(FUZZ_CLANG); do n=$${f##*/fuzz_}; mkdir -p build/fuzz/corpus/$$n tests/fuzz/corpus/$$n; \
	    echo "== fuzz $$n"; $$f -max_total_time=$${FUZZ_SECONDS:-60} -timeout=10 -rss_limit_mb=2048 \
	    -artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/corpus/$$n tests/fuzz/corpus/$$n; done
.PHONY: fuzz fuzz-drivers fuzz-list
-include $(CORE_SRC:%.c=build/fuzz/%.d)
