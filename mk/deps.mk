# SPDX-License-Identifier: Apache-2.0
# `make deps`, `make demo`, `make test` and its kin (test-quick, test-AREA, tests, mutants, coverage) install what is missing before this
# makefile asks the compiler for the machine and pkg-config for MPI: mk/deps.sh writes a makefile that is included here, and make then
# reads all of them again.
#   DEPS=min     the compiler and eight small libraries; ttrun is built without MPI
#   DEPS=build   all that `make` can use (the default of deps and demo)
#   DEPS=test    also what the tests need (the default of test and its kin)
TESTS_WANTED := $(filter-out test-clean,$(filter test test-% tests mutants coverage,$(MAKECMDGOALS)))
DEPS ?= $(if $(TESTS_WANTED),test,build)
DEPS_DONE := build/.deps.$(DEPS).mk
dry_run := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
ifneq ($(filter deps demo,$(MAKECMDGOALS))$(TESTS_WANTED),)
ifeq ($(MAKE_RESTARTS)$(dry_run),)
$(shell mkdir -p build && touch $(DEPS_DONE))
$(DEPS_DONE): force
	@sh mk/deps.sh $(DEPS) $(if $(filter deps demo test,$(MAKECMDGOALS)),,>/dev/null)
	@echo '# mk/deps.sh $(DEPS) found everything' > $@
include $(DEPS_DONE)
endif
endif
deps:
	@:
