# SPDX-License-Identifier: Apache-2.0
# What the scripts about ranks as processes share. Sourced.
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
has_mpirun() { command -v mpirun >/dev/null; }
has_mpirun || echo "# no mpirun here: \`make deps\` installs it; its part is skipped"
# A PATH without mpirun.
mkdir "$dir/bin"
for tool in sh env cat; do ln -s "$(command -v $tool)" "$dir/bin/"; done

# How ranks are started: under mpirun where it is, and by ttrun itself.
ways="own"
has_mpirun && ways="mpirun own"
# processes WAY FOLDER OPTION...: as train
processes() {
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    PATH=$path "$timeout" 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
timeout=$(command -v timeout)

