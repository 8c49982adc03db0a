# SPDX-License-Identifier: Apache-2.0
# fish completion for ttrun(1): `ttrun complete` knows the candidates
function __ttrun_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] complete fish (count $words) $words "$current" 2>/dev/null)
    for line in $lines[2..-1]
        echo $line
    end
    switch "$lines[1]"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current"
    end
end
complete -c ttrun -f -a '(__ttrun_complete)'
