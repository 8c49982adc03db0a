# SPDX-License-Identifier: Apache-2.0
"""Texts of this machine in many languages and scripts, for the peers of tokenizers."""
import gettext
import gzip
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACES = ("/usr/share/doc", "/usr/share/perl", "/usr/share/vim", "/usr/lib/python3.11", "/usr/lib/python3", "/usr/include", ROOT)
LOCALES, MANUALS = "/usr/share/locale", "/usr/share/man"


def walk(top):
    for folder, names, files in os.walk(top):
        names[:] = sorted(n for n in names if n not in (".git", "build", "__pycache__"))
        for name in sorted(files):
            yield os.path.join(folder, name)


def read(path):
    """A file's text, or None: it is not UTF-8, or not a text."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            data = f.read(1 << 20)
        text = data.decode("utf-8") if len(data) < 1 << 20 else data.decode("utf-8", "ignore")
        return text if text and "\0" not in text and "\ufffd" not in text else None
    except (OSError, EOFError, UnicodeDecodeError):
        return None


def messages(path):
    """The translations in a .mo file, one after the other."""
    try:
        with open(path, "rb") as f:
            found = gettext.GNUTranslations(f)._catalog
        return "\n".join(v for k, v in found.items() if k and isinstance(v, str) and "\0" not in v) or None
    except (OSError, UnicodeError, ValueError, LookupError):
        return None


def some(paths, reader, size):
    """Texts of paths, until they have size bytes."""
    for path in paths:
        if size <= 0:
            return
        text = reader(path)
        if text:
            size -= len(text.encode())
            yield text


def folders(top):
    return [os.path.join(top, n) for n in sorted(os.listdir(top)) if os.path.isdir(os.path.join(top, n))] if os.path.isdir(top) else []


def corpus(mb):
    """About mb MB of documents: a quarter is translations and manuals in other languages, the rest is files of PLACES."""
    languages = [(f, messages) for f in folders(LOCALES)] + [(f, read) for f in folders(MANUALS) if not re.search(r"man\d$", f)]
    out = []
    for folder, reader in languages:
        ends = ".mo" if reader is messages else ".gz"
        out += some((p for p in walk(folder) if p.endswith(ends)), reader, mb * 0.25e6 / len(languages))
    places = [p for p in PLACES if os.path.isdir(p)]
    for i, place in enumerate(places):
        left = mb * 1e6 - sum(len(t.encode()) for t in out)
        out += some(walk(place), read, left / (len(places) - i))
    return out
