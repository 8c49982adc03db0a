# SPDX-License-Identifier: Apache-2.0
# bash completion for ttrun(1): `ttrun complete` knows the candidates
_ttrun() {
    local cur=${COMP_WORDS[COMP_CWORD]} mode='' line lines=()
    [[ $cur == = ]] && cur=
    mapfile -t lines < <("${COMP_WORDS[0]/#\~/$HOME}" complete bash "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
    mode=${lines[0]-words}
    COMPREPLY=()
    for line in "${lines[@]:1}"; do
        line=${line%%$'\t'*}
        [[ $line == *. || $mode != words ]] || line+=' '
        COMPREPLY+=("$line")
    done
    case $mode in
    files) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
    folders) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
    *) compopt -o nospace 2>/dev/null ;;
    esac
    [[ $mode == words ]] || compopt -o filenames 2>/dev/null
}
complete -F _ttrun ttrun
