# SPDX-License-Identifier: Apache-2.0
# tests/fake: libcuda.so.1 and libnvrtc.so.13 that run kernels on the host, so that the backend "cuda" is tested without a
# GPU: tests name $B/tests/fake/lib in the option backend.libraries. C++, and only for tests; the fake libraries and the
# kernels are built without the sanitizers in every MODE, because those do not know of fibers.
#   tests/fake/*.cpp                      → $B/tests/fake/lib/libcuda.so.1, and nvrtc.cpp → libnvrtc.so.13
#   plugins/backends/cuda/kernels/*.cu    → $B/tests/fake/kernels/*.so, what the fake driver loads for a fatbin of nvcc
#   tests/fake/libNAME*.cpp, .c           → $B/tests/fake/lib/libNAME.so.N, with queue.h: cublasLt, cudnn, nccl
#   tests/fake/selftest.cu                → $B/tests/fake/selftest.so
CXX ?= g++
FAKE := $B/tests/fake
FAKE_WARN := -Wall -Wextra -Wpedantic -Wshadow -Wundef
FAKE_CXXFLAGS := -std=c++17 -O2 -g1 $(FAKE_WARN) -fPIC -fvisibility=hidden -pthread -ffp-contract=off -MMD -MP
# A GPU faults on a misaligned address: so do the kernels here (the trap is told by tests/fake/fail.cpp). Kernels look at
# the same bytes with several types.
FAKE_TRAPS := -fsanitize=alignment,bounds $(if $(findstring clang,$(CXX)),-fsanitize-trap=alignment$(comma)bounds,-fsanitize-undefined-trap-on-error)
# fmaf as an instruction where this machine has it; its bits are those of libm's function.
FAKE_FMA := $(if $(shell grep -w -m 1 -o fma /proc/cpuinfo 2>/dev/null),-mfma)
FAKE_IMAGE := $(CXX) -std=c++17 -shared -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing $(FAKE_FMA) $(FAKE_TRAPS)
FAKE_CUDA_SRC := $(filter-out tests/fake/nvrtc.cpp tests/fake/lib%.cpp,$(sort $(wildcard tests/fake/*.cpp)))
FAKE_CUDA_OBJ := $(FAKE_CUDA_SRC:%.cpp=$B/%.o)
FAKE_KERNELS := $(patsubst plugins/backends/cuda/kernels/%.cu,$(FAKE)/kernels/%.so,$(sort $(wildcard plugins/backends/cuda/kernels/*.cu)))
fake_objects = $(patsubst %.c,$B/%.o,$(patsubst %.cpp,$B/%.o,$(sort $(wildcard tests/fake/lib$(1)*.c tests/fake/lib$(1)*.cpp))))
FAKE_LINKED := $(if $(call fake_objects,cublasLt),$(FAKE)/lib/libcublasLt.so.13) $(if $(call fake_objects,nccl),$(FAKE)/lib/libnccl.so.2) \
    $(if $(call fake_objects,cudnn),$(FAKE)/lib/libcudnn.so.9)
FAKE_LIBS := $(FAKE)/lib/libcuda.so.1 $(FAKE)/lib/libnvrtc.so.13 $(FAKE_LINKED)
FAKE_ALL := $(FAKE_LIBS) $(FAKE_KERNELS) $(FAKE)/selftest.so
STALE_KERNELS := $(filter-out $(FAKE_KERNELS),$(wildcard $(FAKE)/kernels/*.so))
$(if $(STALE_KERNELS),$(shell rm -f $(STALE_KERNELS)))

$B/tests/fake/%.o: tests/fake/%.cpp mk/fake.mk
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(FAKE_CXXFLAGS) -c $< -o $@
$(FAKE)/nvrtc.o: FAKE_CXXFLAGS += -DFAKE_INCLUDE='"$(CURDIR)/tests/fake"' -DFAKE_IMAGE_COMPILER='"$(FAKE_IMAGE)"'

# nodelete: handlers of signals stay.
$(FAKE)/lib/libcuda.so.1: $(FAKE_CUDA_OBJ)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CXX) -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-z,nodelete $(FAKE_CUDA_OBJ) -ldl -o $@
$(FAKE)/lib/libnvrtc.so.13: $(FAKE)/nvrtc.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CXX) -shared -Wl,-soname,libnvrtc.so.13 -Wl,-z,defs $< -ldl -o $@

$(FAKE)/lib/libcublasLt.so.13: $(call fake_objects,cublasLt)
$(FAKE)/lib/libcudnn.so.9: $(call fake_objects,cudnn)
$(FAKE)/lib/libnccl.so.2: $(call fake_objects,nccl)
$(FAKE)/lib/libcudnn.so.9: $(call fake_objects,cudnn)
$(FAKE_LINKED): $(FAKE)/lib/libcuda.so.1
	$(call say,LD,$@)
	$(Q)$(CXX) -shared -pthread -Wl,-soname,$(@F) $(filter %.o,$^) -L$(FAKE)/lib -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN' -lm -o $@

# Loops of multiply-adds are most of what the tests run: the compiler's time for these is won back.
FAKE_O3 := attention_plain delta_rule delta_rule_bwd gemm_f32
# $(1) the object, $(2) the source
fake_image = @mkdir -p $(dir $(1)); $(if $(V),,printf '%-7s%s\n' EMU $(2);) \
    $(FAKE_IMAGE) $(if $(filter $(FAKE_O3),$(basename $(notdir $(2)))),-O3,-O1) -g1 $(FAKE_WARN) -Wno-unknown-pragmas -Iplugins/backends/cuda/kernels -Itests/fake -MMD -MP -MF $(1).d -MT $(1) -x c++ $(2) -o $(1)
$(FAKE)/kernels/%.so: plugins/backends/cuda/kernels/%.cu mk/fake.mk
	$(call fake_image,$@,$<)
$(FAKE)/selftest.so: tests/fake/selftest.cu mk/fake.mk
	$(call fake_image,$@,$<)
-include $(FAKE_CUDA_OBJ:.o=.d) $(FAKE)/nvrtc.d $(FAKE_KERNELS:=.d) $(FAKE)/selftest.so.d

# Files of the comms "tcp" and "mpi", on what stands for MPI.
$B/tests/comm/test_pieces.o: CFLAGS_ALL += -Itests/fake/mpi -Iplugins/comms
