#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file system that is really full, or really read-only: a tmpfs of a mount namespace. The run ends by one line, the step before stays
# whole, nothing of the failed save is left, and with room again the run goes on to the bits of the unbroken one.
. "$(dirname "$0")/lib.sh"
if [ -z "${FULL_DISK_INSIDE:-}" ]; then
    rm -rf "$dir"
    for how in "unshare -m" "unshare -rm"; do
        $how sh -c 'mount --make-rprivate / && mount -t tmpfs -o size=1m tmpfs /mnt' 2>/dev/null || continue
        FULL_DISK_INSIDE=1 exec $how sh "$0"
    done
    skip full_disk "nothing can be mounted here"
    exit 0
fi
mount --make-rprivate /
disk=$dir/disk
mkdir "$disk"
train "$dir/whole" --training.steps 20
[ "$rc" -eq 0 ]
ok unbroken_run
kib=$(du -sk "$dir/whole/checkpoint/step-5" | cut -f 1)
mount -t tmpfs -o size=$((kib * 3 / 2))k tmpfs "$disk" # one step fits, two do not

keeps_5() { # SAYS: status 1, one line that says so, step-5 whole and nothing else there
    [ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q "^ttrun: .*$1" "$dir/err" &&
        [ "$(ls "$disk/saves")" = step-5 ] && "$TTRUN" ckpt verify "$disk/saves/step-5" >>"$dir/out" 2>&1
}
train "$dir/run" --training.steps 20 --checkpoint.folder "$disk/saves"
keeps_5 'step-10.tmp.*No space left on device; free some space'
ok full_disk_keeps_the_step_before
train "$dir/run" --training.steps 20 --checkpoint.folder "$disk/saves" --checkpoint.async_mode disabled
keeps_5 'step-10.tmp.*No space left on device; free some space'
ok full_disk_keeps_the_step_before_without_async
mount -o remount,size=64m,ro "$disk"
train "$dir/run" --training.steps 20 --checkpoint.folder "$disk/saves"
[ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q 'Read-only file system' "$dir/err" && [ "$(ls "$disk/saves")" = step-5 ]
ok read_only_disk_is_named
mount -o remount,rw "$disk"
train "$dir/run" --training.steps 20 --checkpoint.folder "$disk/saves"
[ "$rc" -eq 0 ] && grep -q 'resumed from .*/step-5, next is step 6' "$dir/err" &&
    [ "$(hash_of "$disk/saves/step-20")" = "$(hash_of "$dir/whole/checkpoint/step-20")" ]
ok with_room_again_the_run_goes_on
umount -l "$disk"
exit $failed
