# SPDX-License-Identifier: Apache-2.0
# far.so, a backend and a communicator for tests: tests/plugins/far, with the kernels of plugins/backends/reference. Of that
# plugin's own file it needs the table of kernels, not the descriptor.
FAR_SO  := $B/tests/plugins/far/far.so
FAR_OBJ := $(patsubst %.c,$B/%.o,$(sort $(wildcard tests/plugins/far/*.c))) $B/tests/plugins/far/reference.o
FAR_KERNELS := $(filter-out %/reference.o,$(call plugin_objects,plugins/backends/reference))

$B/tests/plugins/far/reference.o: plugins/backends/reference/reference.c $B/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -Iinclude -Dtt_plugin_entry=far_reference_entry -MMD -MP -c $< -o $@

$(FAR_SO): $(FAR_OBJ) $(FAR_KERNELS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(SHARED_CHECKS) -Wl,-z,now $(FAR_OBJ) $(FAR_KERNELS) -L$B \
	    -Wl,--no-as-needed -lttrun -Wl,--as-needed -lm -Wl,-rpath,'$$ORIGIN/../../..' -o $@
-include $(FAR_OBJ:.o=.d)
