#compdef ttrun
# SPDX-License-Identifier: Apache-2.0
# zsh completion for ttrun(1): `ttrun complete` knows the candidates
_ttrun() {
    local -a lines whole parts
    local line mode word meaning
    lines=("${(@f)$(${~words[1]} complete zsh $((CURRENT - 1)) "${(@)words}" 2>/dev/null)}")
    mode=${lines[1]:-words}
    for line in "${(@)lines[2,-1]}"; do
        [[ -n $line ]] || continue
        word=${line%%$'\t'*}
        meaning=${line#*$'\t'}
        word=${word//:/\\:}
        if [[ $word == *. ]]; then parts+=("$word:$meaning"); else whole+=("$word:$meaning"); fi
    done
    (( $#whole )) && _describe -o ttrun whole
    (( $#parts )) && _describe -o ttrun parts -S ''
    case $mode in
    files) _files ;;
    folders) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _ttrun ]]; then _ttrun "$@"; else compdef _ttrun ttrun; fi
