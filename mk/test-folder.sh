#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-folder.sh: makes an empty folder for tests and prints it. It is in $TMPDIR, if that is set; else in memory, where there is room and programs
# can be started, since tests write many small files and remove them at once, which costs ext4 up to a third of their CPU time; else, and in
# the long tier, in /tmp. Tests look at the calls that reach the disk, hardly any at the disk. The name in memory does not have "ttrun": tests look
# there for what ttrun has left.
enough=4000000 # KiB
shm=/dev/shm
if [ -z "${TMPDIR-}${TEST_LONG-}" ] && [ -w $shm ] && [ "$(df -P -k $shm | awk 'NR == 2 {print $4}')" -ge $enough ] &&
    [ "$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)" -ge $((2 * enough)) ] && at=$(mktemp -d $shm/tests.XXXXXX); then
    printf '#!/bin/sh\n' >"$at/program" && chmod +x "$at/program" && "$at/program" 2>/dev/null && rm "$at/program" && echo "$at" && exit 0
    rm -rf "$at"
fi
mktemp -d "${TMPDIR:-/tmp}/ttrun-test.XXXXXX"
