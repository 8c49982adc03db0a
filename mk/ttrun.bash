# SPDX-License-Identifier: Apache-2.0
# bash completion for ttrun(1)
_ttrun() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} word command=train i
    local commands="train plan config plugins data tokenize tokenizer ckpt generate eval report runs gc"
    local sections="model tokenizer dataloader loss optimizer lr_scheduler training parallelism activation_checkpoint
        converters checkpoint validation metrics profiling comm backend hooks debug log"
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ " $commands " == *" $word "* ]] && command=$word && break
    done
    case $prev in
    --plugin-dir | --checkpoint | --dump_folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --pattern) mapfile -t COMPREPLY < <(compgen -W "gpt2 llama3 qwen2 qwen35 deepseek3 tekken o200k nanochat" -- "$cur"); return ;;
    --tokenizer | --prompts | --data) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    --from) mapfile -t COMPREPLY < <(compgen -W "hf meta torchtitan" -- "$cur"); return ;;
    --to) mapfile -t COMPREPLY < <(compgen -W "hf gguf" -- "$cur"); return ;;
    --type) mapfile -t COMPREPLY < <(compgen -W "f32 f16 bf16 q8_0" -- "$cur"); return ;;
    --resume) mapfile -t COMPREPLY < <(compgen -W "auto never" -- "$cur"); return ;;
    --nproc | --world | --files | --spec | --prompt | --n | --batch | --seq_len | --samples | --sample | --max-tokens | --temperature | --top-k | --top-p | --seed) return ;;
    esac
    if [[ $cur == --*.* ]]; then # a key of the job: ttrun knows them
        local keys
        keys=$("${COMP_WORDS[0]}" config --explain 2>/dev/null | sed -n 's/^\([a-z0-9_]*\.[a-z0-9_.]*\).*/--\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$keys" -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        local options="--spec --plugin-dir --nproc --resume --dump_folder --converters --hooks --dry-run --json --verbose --quiet --help --version -v -q -h"
        case $command in
        train) options+=" --profile " ;;
        plan) options+=" --world --hardware --svg --search --memory --best" ;;
        config) options+=" --schema --explain --reference --ops" ;;
        data) options+=" --sample --n " ;;
        tokenize) options+=" --tokenizer --lines --bos --eos" ;;
        report) options+=" --output " ;;
        gc) options+=" --keep --cache --yes" ;;
        ckpt) options+=" --from --to --type --files " ;;
        tokenizer) options+=" --data --vocab-size --pattern --out --bos --eos --pad --special --threads " ;;
        eval) options+=" --checkpoint --data --seq_len --samples " ;;
        generate) options+=" --checkpoint --prompt --prompts --n --batch --max-tokens --temperature --top-k --top-p --seed" ;;
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
    tokenizer) mapfile -t COMPREPLY < <(compgen -W "train" -f -- "$cur") ;;
    plugins) mapfile -t COMPREPLY < <(compgen -W "list check new" -f -- "$cur") ;;
    ckpt) mapfile -t COMPREPLY < <(compgen -W "ls verify diff reshard import export" -f -- "$cur") ;;
    data) mapfile -t COMPREPLY < <(compgen -W "build show" -f -- "$cur") ;;
    train) mapfile -t COMPREPLY < <(compgen -W "$([[ $COMP_CWORD -eq 1 ]] && echo "$commands")" -f -- "$cur") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -o filenames -F _ttrun ttrun
