# SPDX-License-Identifier: Apache-2.0
#: site       docs/, README.md and the READMEs of bench/ and examples/ as HTML with a search, which works without a server: build/site/index.html
site:
	$(Q)sh mk/deps.sh site
	$(Q)sh mk/site/make.sh build/site
.PHONY: site
