# SPDX-License-Identifier: Apache-2.0
# For the Makefile of a plugin outside the tree; installed as PREFIX/share/ttrun/plugin.mk:
#   PLUGIN := foo                       foo.so from the C or C++ files of the folder
#   include PREFIX/share/ttrun/plugin.mk
# Targets: all, check, clean. You may set: SOURCES, CC, CXX, STD, CFLAGS, LDFLAGS, LDLIBS, TTRUN.
TTRUN_ROOT := $(patsubst %/share/ttrun/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
TTRUN   ?= $(TTRUN_ROOT)/bin/ttrun
SOURCES ?= $(wildcard *.c *.cc *.cpp)
# One C++ file makes the plugin a C++ one.
IN_CXX  := $(filter %.cc %.cpp,$(SOURCES))
STD     ?= $(if $(IN_CXX),-std=c++20,-std=c11)
CFLAGS  ?= -O2 -g
LDLIBS  ?= -lm
# A guessed name or argument, as tt_log() for tt_log_e(), stops the build in C as it does in C++.
GUESSES := $(if $(findstring ++,$(STD)),,$(addprefix -Werror=,implicit-function-declaration int-conversion incompatible-pointer-types))

all: $(PLUGIN).so
# -z defs, -z now: a missing symbol fails here, not in the middle of a run
$(PLUGIN).so: $(SOURCES)
	$(if $(IN_CXX),$(CXX),$(CC)) $(STD) -Wall -Wextra -Wpedantic $(GUESSES) $(CFLAGS) -fPIC -fvisibility=hidden -shared \
	    -Wl,-z,defs -Wl,-z,now -I$(TTRUN_ROOT)/include $(SOURCES) -L$(TTRUN_ROOT)/lib $(LDFLAGS) \
	    -lttrun $(LDLIBS) -o $@
check: $(PLUGIN).so
	$(TTRUN) plugins check ./$(PLUGIN).so
clean:
	rm -f $(PLUGIN).so
.PHONY: all check clean
