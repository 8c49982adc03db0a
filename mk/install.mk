# SPDX-License-Identifier: Apache-2.0
D := $(DESTDIR)$(PREFIX)
INSTALL_FILES = $D/bin/ttrun $D/lib/libttrun.so.0 $D/lib/libttrun.so $D/lib/pkgconfig/ttrun.pc \
    $D/share/man/man1/ttrun.1 $D/share/bash-completion/completions/ttrun \
    $D/share/zsh/site-functions/_ttrun $D/share/fish/vendor_completions.d/ttrun.fish $D/share/ttrun/plugin.mk
# What man page and scaffolds point to; jobs and examples run from there.
DOC_FILES = README.md LICENSE NOTICE CHANGELOG.md \
    $(shell find docs configs examples -type f -not -name '*.so' -not -name '*.o' -not -name ttrun.1 \
    -not -path 'examples/chat/out/*')
# The example jobs write beside their folder in a checkout; installed, where only root writes, into the user's home. Their comments say
# what to type: there, the program of PATH and the paths of the installed files.
INSTALLED_JOB = sed -e 's|"\.\./outputs/|"~/ttrun/outputs/|' \
    -e '/^\/\//{s|\./ttrun |ttrun |g;s|configs/|$(PREFIX)/share/doc/ttrun/configs/|g;s|docs/|$(PREFIX)/share/doc/ttrun/docs/|g;s|outputs/|~/ttrun/outputs/|g;}'

install: all
	$(Q)install -d $D/bin $D/lib/pkgconfig $D/include/ttrun $D/share/man/man1 $D/share/bash-completion/completions $D/share/ttrun \
	    $D/share/zsh/site-functions $D/share/fish/vendor_completions.d
	$(Q)$(if $(BIN),install -m 755 $(BIN) $D/bin/ttrun)
	$(Q)install -m 755 $(LIB) $D/lib/libttrun.so.0
	$(Q)ln -sf libttrun.so.0 $D/lib/libttrun.so
	$(Q)install -m 644 include/ttrun/*.h $D/include/ttrun/
	$(Q)set -e; for so in $(PLUGIN_SO:$B/plugins/%=%); do \
	    install -D -m 755 $B/plugins/$$so $D/lib/ttrun/plugins/$$so; done
	$(Q)install -d $D/lib/ttrun/plugins/specs && install -m 644 $(SPECS) $D/lib/ttrun/plugins/specs/
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@ABI@|$(ABI)|' mk/ttrun.pc.in \
	    > $D/lib/pkgconfig/ttrun.pc
	$(Q)install -m 644 docs/ttrun.1 $D/share/man/man1/ttrun.1
	$(Q)install -m 644 mk/ttrun.bash $D/share/bash-completion/completions/ttrun
	$(Q)install -m 644 mk/ttrun.zsh $D/share/zsh/site-functions/_ttrun
	$(Q)install -m 644 mk/ttrun.fish $D/share/fish/vendor_completions.d/ttrun.fish
	$(Q)install -m 644 mk/plugin.mk $D/share/ttrun/plugin.mk
	$(Q)set -e; for f in $(DOC_FILES); do install -D -m $$(test -x $$f && echo 755 || echo 644) $$f $D/share/doc/ttrun/$$f; done
	$(Q)set -e; for f in configs/*.json; do $(INSTALLED_JOB) $$f >$D/share/doc/ttrun/$$f; done
	@echo "installed under $D"

uninstall:
	$(Q)rm -f $(INSTALL_FILES) $(PLUGIN_SO:$B/plugins/%=$D/lib/ttrun/plugins/%) $(SPECS:plugins/%=$D/lib/ttrun/plugins/%)
	$(Q)rm -f $(DOC_FILES:%=$D/share/doc/ttrun/%)
	$(Q)rm -rf $D/include/ttrun
	$(Q)for d in share/ttrun share/zsh/site-functions share/zsh share/fish/vendor_completions.d share/fish \
	    share/bash-completion/completions share/bash-completion share/man/man1 lib/pkgconfig; do \
	    rmdir $D/$$d 2>/dev/null || true; done
	$(Q)find $D/lib/ttrun $D/share/doc/ttrun -depth -type d -empty -delete 2>/dev/null || true
deb wheel: all
	$(Q)sh mk/$@.sh $(VERSION)
.PHONY: install uninstall deb wheel
