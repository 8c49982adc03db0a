# SPDX-License-Identifier: Apache-2.0
# The kernels of plugins/backends/cuda, as texts in the plugin, which NVRTC compiles for the GPU that is there when the plugin first
# starts. CUDA=fatbin: also as machine code for all GPUs, by nvcc, which takes minutes; all MODEs share it.
CUDA    ?= texts
CUDA_DIR    := plugins/backends/cuda
CUDA_KERNELS := $(sort $(wildcard $(CUDA_DIR)/kernels/*.cu))
CUDA_HEADERS := $(sort $(wildcard $(CUDA_DIR)/kernels/*.h))
NVCC_FOUND  := $(if $(filter fatbin,$(CUDA)),$(or $(shell sh mk/cuda.sh find),$(error CUDA=fatbin needs nvcc: NVCC, CUDA_HOME/bin/nvcc or PATH)))
CUDA_BIN    := build/cuda
CUDA_FATBIN := $(if $(NVCC_FOUND),$(CUDA_KERNELS:$(CUDA_DIR)/kernels/%.cu=$(CUDA_BIN)/%.fatbin))
CUDA_EMBED  := $B/gen/cuda/embedded.c
CUDA_EMBED_O := $B/gen/cuda/embedded.o
# Another nvcc compiles all again.
$(CUDA_BIN)/.nvcc: force
	@mkdir -p $(CUDA_BIN); echo '$(NVCC_FOUND)' | cmp -s - $@ || echo '$(NVCC_FOUND)' > $@
$(CUDA_BIN)/%.fatbin: $(CUDA_DIR)/kernels/%.cu mk/cuda.sh $(CUDA_BIN)/.nvcc
	$(call say,NVCC,$<)
	@for h in $$(sh mk/cuda.sh depends $<); do echo "$@: $$h"; echo "$$h:"; done > $(@:.fatbin=.d)
	$(Q)NVCC='$(NVCC_FOUND)' sh mk/cuda.sh compile $< $@

# The embedded files are dependencies of the object, because the assembler includes them.
$B/gen/cuda/.files: force
	@mkdir -p $(@D); echo '$(CUDA_KERNELS) $(CUDA_HEADERS) $(CUDA_FATBIN)' | cmp -s - $@ || \
	    echo '$(CUDA_KERNELS) $(CUDA_HEADERS) $(CUDA_FATBIN)' > $@
$(CUDA_EMBED): mk/cuda.sh $B/gen/cuda/.files | $(CUDA_FATBIN)
	$(Q)sh mk/cuda.sh embed $(CUDA_DIR)/kernels $(if $(CUDA_FATBIN),$(CUDA_BIN),/dev/null) > $@
$(CUDA_EMBED_O): $(CUDA_EMBED) $(CUDA_KERNELS) $(CUDA_HEADERS) $(CUDA_FATBIN) $(CUDA_DIR)/module.h $B/.flags
	$(call say,CC,$<)
	$(Q)CCACHE_DISABLE=1 $(CC) $(CFLAGS_ALL) -Iinclude -I$(CUDA_DIR) -c $< -o $@
-include $(CUDA_FATBIN:.fatbin=.d)
# It compiles the same texts.
$B/tests/cuda/test_rtc: $(CUDA_EMBED_O)
