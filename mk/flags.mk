# SPDX-License-Identifier: Apache-2.0
# Flags of each MODE. No -ffast-math and no contraction, ever: bitwise repeatability is a feature.
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wdouble-promotion -Wvla -Wundef \
    -Werror=implicit-function-declaration

MODE_release := -O2 -g
MODE_debug   := -O0 -g3
MODE_asan    := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
MODE_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
# Counts of threads may be lost, a line that was run never: atomic counts make programs with threads ten times as slow.
MODE_coverage := -O1 -g --coverage -fprofile-update=single
$(if $(MODE_$(MODE)),,$(error MODE=$(MODE): use release, debug, asan, tsan or coverage))

CFLAGS_ALL  := -std=c11 $(WARN) -fno-common -ffp-contract=off -fvisibility=hidden -fPIC -pthread \
    $(MODE_$(MODE)) $(CPPFLAGS) $(CFLAGS) -DTT_BUILD_VERSION='"$(VERSION)"'
# For one file only, and not among the flags whose change rebuilds: an installed ttrun finds its plugins relative to itself.
$B/core/plugin/scan.o: CFLAGS_ALL += -DTT_BUILD_PLUGIN_DIR='"$(PREFIX)/lib/ttrun/plugins"'
LDFLAGS_ALL := -pthread $(filter -fsanitize=% --coverage,$(MODE_$(MODE))) -Wl,--as-needed $(LDFLAGS)

# A shared object with an undefined symbol must fail here, not at the user's. Sanitizer runtimes come with the program.
SHARED_CHECKS := $(if $(filter asan tsan,$(MODE)),,-Wl,-z,defs)

CORE_LIBS := -ljansson -lltdl -lzstd -lz -lpcre2-8 -lutf8proc -levent_core -lm -ldl
