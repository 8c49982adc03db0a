# SPDX-License-Identifier: Apache-2.0
# bash completion for ttrun(1)
_ttrun() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word command=train i
    local commands="train plan config plugins data tokenize ckpt generate eval"
    local sections="model tokenizer dataloader loss optimizer lr_scheduler training parallelism activation_checkpoint
        converters checkpoint validation metrics profiling comm backend hooks debug log"
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ " $commands " == *" $word "* ]] && command=$word && break
    done
    case $prev in
    --plugin-dir | --checkpoint | --dump_folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --tokenizer) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    --resume) mapfile -t COMPREPLY < <(compgen -W "auto never" -- "$cur"); return ;;
    --nproc | --world | --spec | --prompt | --max-tokens | --temperature | --top-k | --top-p | --seed | --sample | --n) return ;;
    esac
    if [[ $cur == --*.* ]]; then # a key of the job: ttrun knows them
        local keys
        keys=$("${COMP_WORDS[0]}" config --explain 2>/dev/null | sed -n 's/^\([a-z_]*\.[a-z_.]*\).*/--\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$keys" -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        local options="--spec --plugin-dir --nproc --resume --dump_folder --dry-run --json --verbose --quiet --help --version -v -q -h"
        case $command in
        plan) options+=" --world --hardware" ;;
        config) options+=" --schema --explain --reference" ;;
        data) options+=" --sample --n " ;;
        tokenize) options+=" --tokenizer --lines --bos --eos" ;;
        eval) options+=" --checkpoint --data --samples " ;;
        generate) options+=" --checkpoint --prompt --max-tokens --temperature --top-k --top-p --seed" ;;
        esac
        case $command in train | plan | config | data)
            for word in $sections; do options+=" --$word."; done
            compopt -o nospace 2>/dev/null
            ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    case $command in
    plugins) mapfile -t COMPREPLY < <(compgen -W "list check new" -f -- "$cur") ;;
    data) mapfile -t COMPREPLY < <(compgen -W "build show" -f -- "$cur") ;;
    ckpt) mapfile -t COMPREPLY < <(compgen -W "ls verify" -f -- "$cur") ;;
    train) mapfile -t COMPREPLY < <(compgen -W "$([[ $COMP_CWORD -eq 1 ]] && echo "$commands")" -f -- "$cur") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -o filenames -F _ttrun ttrun
