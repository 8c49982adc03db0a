#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TORCHELASTIC_ERROR_FILE: a failure is written there in the form that torchrun reads; a run that ends well writes nothing.
. "$(dirname "$0")/lib.sh"
export TORCHELASTIC_ERROR_FILE="$dir/error.json"
train "$dir/run" --training.steps 1
[ "$rc" -eq 0 ] && [ ! -e "$dir/error.json" ]
ok no_file_without_a_failure
before=$(date +%s)
train "$dir/nan" --optimizer.lr 1e30
after=$(date +%s)
[ "$rc" -eq 3 ] && one_line "$dir/err" &&
    [ "$(value "$dir/error.json" message.message)" = "$(sed -n 's/^ttrun: //p' "$dir/err")" ] &&
    at=$(value "$dir/error.json" message.extraInfo.timestamp) && [ "${at%.*}" -ge "$before" ] && [ "${at%.*}" -le "$after" ]
ok a_failure_is_written_in_the_form_of_torch
TORCHELASTIC_ERROR_FILE=$dir/none/error.json train "$dir/nan2" --optimizer.lr 1e30
[ "$rc" -eq 3 ] && grep -q "TORCHELASTIC_ERROR_FILE: cannot write $dir/none/error.json: No such file" "$dir/err"
ok a_file_that_cannot_be_written_is_a_warning
exit $failed
