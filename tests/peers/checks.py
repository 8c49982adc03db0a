# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder say about each comparison, and how many went wrong."""

failed = 0


def check(ok, what):
    global failed
    failed += not ok
    print(("ok    " if ok else "WRONG ") + what, flush=True)
