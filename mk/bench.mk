# SPDX-License-Identifier: Apache-2.0
#: bench-peers  training and kernels beside PyTorch and llm.c (TTRUN_VENV=…, LLMC_DIR=…; else both are fetched); writes bench/train/README.md
bench-peers: all
	$(Q)sh bench/peers.sh --write bench/train/README.md
	$(Q)TTRUN_VENV=$(or $(TTRUN_VENV),$(CURDIR)/build/venv) sh bench/kernels/run.sh
.PHONY: bench-peers
