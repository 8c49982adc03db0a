# SPDX-License-Identifier: Apache-2.0
#: chaos      200 kills of training runs, their ranks and supervisors while they save, on meshes drawn anew (KILLS=…, SEED=…)
chaos: all $B/tests/run/json_tool
	$(Q)SRC=$(CURDIR) BUILD=$(CURDIR)/$B TTRUN=$(CURDIR)/$B/ttrun PLUGINS=$(CURDIR)/$B/plugins KILLS=$(or $(KILLS),200) sh tests/run/test_chaos.sh
.PHONY: chaos
