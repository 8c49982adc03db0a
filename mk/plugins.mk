# SPDX-License-Identifier: Apache-2.0
# Plugins by wildcard: plugins/<kind>/<name>.c, or every .c of plugins/<kind>/<name>/. A new one needs no edit here; the
# table below is only for those that need a library or a flag.

PLUGIN_FILES   := $(wildcard plugins/*/*.c)
PLUGIN_FOLDERS := $(sort $(patsubst %/,%,$(dir $(wildcard plugins/*/*/*.c))))
# MPI, if installed and wanted: pkg-config knows Open MPI; mpicc knows any other MPI that prints its flags in the same form.
ifneq ($(DEPS),min)
MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell pkg-config --libs ompi-c 2>/dev/null || mpicc --showme:link 2>/dev/null)
endif
PLUGIN_FOLDERS := $(if $(MPI_CFLAGS),$(PLUGIN_FOLDERS),$(filter-out plugins/comms/mpi,$(PLUGIN_FOLDERS)))
PLUGIN_NAMES   := $(sort $(PLUGIN_FILES:.c=) $(PLUGIN_FOLDERS))
PLUGIN_SO      := $(PLUGIN_NAMES:%=$B/%.so)
PLUGIN_OBJ     := $(patsubst %.c,$B/%.o,$(PLUGIN_FILES) $(wildcard plugins/*/*/*.c))

# A spec holds only names: plugins/specs/<name>.json.
SPECS          := $(sort $(wildcard plugins/specs/*.json))

# $(1): plugins/<kind>/<name>
plugin_objects = $(patsubst %.c,$B/%.o,$(wildcard $(1).c) $(sort $(wildcard $(1)/*.c))) $(ALSO_$(1))
plugin_libs    = $(LIBS_$(1)) $(if $(findstring /tokenizers/,$(1)),-lpcre2-8 -lutf8proc -ljansson) -lm
# $(1): the source file; flags of its file name, then of its plugin
plugin_cflags  = $(call isa_cflags,$(1)) $(CFLAGS_$(1:.c=)) $(CFLAGS_$(patsubst %/,%,$(dir $(1))))

# Kernels for one instruction set live in files named after it and are called only after a check of the CPU.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ifeq ($(MACHINE),x86_64)
isa_cflags = $(if $(filter %_avx2.c,$(1)),-mavx2 -mfma) \
    $(if $(filter %_avx512.c %_amx.c,$(1)),-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma) \
    $(if $(filter %_amx.c,$(1)),-mamx-tile -mamx-bf16)
else
PLUGIN_OBJ     := $(filter-out %_avx2.o %_avx512.o %_amx.o,$(PLUGIN_OBJ))
plugin_objects = $(filter-out %_avx2.o %_avx512.o %_amx.o,$(patsubst %.c,$B/%.o,$(wildcard $(1).c) $(sort $(wildcard $(1)/*.c)))) $(ALSO_$(1))
endif

comma := ,
# Where the cpu backend looks for OpenBLAS first when a job wants it: Debian's pthread build. The serial build shares its
# buffers without a lock, so two of our threads in it at once get wrong products.
BLAS_DIR := $(firstword $(wildcard /usr/lib/$(MACHINE)-linux-gnu/openblas-pthread))

# ---- the table ----
# LIBS_ and CFLAGS_ of a plugin, and ALSO_: objects from outside its folder.
LIBS_plugins/backends/cpu := $(if $(BLAS_DIR),-Wl$(comma)-rpath$(comma)$(BLAS_DIR)) -ldl
LIBS_plugins/backends/cuda := -ldl
LIBS_plugins/metrics/trackio := -ldl
ALSO_plugins/backends/cuda = $(CUDA_EMBED_O)
# The search for NVIDIA's libraries is the cuda backend's.
LIBS_plugins/comms/nccl := -ldl
CFLAGS_plugins/comms/nccl := -Iplugins/backends
ALSO_plugins/comms/nccl := $B/plugins/backends/cuda/lib.o
LIBS_plugins/dataloaders/text := -lz -lzstd
LIBS_plugins/dataloaders/jsonl := -lz -lzstd
LIBS_plugins/dataloaders/chat := -ljansson -lz -lzstd
# The collectives of messages between two ranks are the tcp comm's.
CFLAGS_plugins/comms/mpi := $(MPI_CFLAGS:-I%=-isystem %) -Iplugins/comms
ALSO_plugins/comms/mpi   := $B/plugins/comms/tcp/pairwise.o
LIBS_plugins/comms/mpi   := $(MPI_LIBS)
