# SPDX-License-Identifier: Apache-2.0
# lint.awk [-v arrows=LIST] FILE...: findings as FILE:LINE: text. See lint.sh. LIST has includes that are allowed all the same (mk/arrows.list).
BEGIN {
    # Which root a folder is in; launch and interchange are both. An include names the folder, so no two roots have folders of one name.
    n = split("base mesh config pipeline data plugin graph device comm cost plan passes exec checkpoint setup rank train", folder, " ")
    for (i = 1; i <= n; i++) home[folder[i]] = "core/" folder[i]
    n = split("chat corpus linalg link parquet", folder, " ")
    for (i = 1; i <= n; i++) home[folder[i]] = "lib/" folder[i]
    n = split("infer estimate serve report conformance cli", folder, " ")
    for (i = 1; i <= n; i++) home[folder[i]] = "tools/" folder[i]
    home["launch"] = "launch"
    home["interchange"] = "interchange"

    # Who may include whom (docs/design/architecture.md), transitively; base and include/ttrun go without saying.
    # core
    allow["base"] = ""
    allow["mesh"] = allow["config"] = allow["pipeline"] = ""
    allow["data"] = allow["plugin"] = "config"
    allow["graph"] = allow["device"] = "mesh"
    allow["comm"] = "mesh device"
    allow["cost"] = "graph mesh"
    allow["plan"] = "cost graph mesh pipeline"
    allow["passes"] = "plan " allow["plan"]
    allow["exec"] = "plan comm device mesh pipeline" # a finished program: no graph, no costs
    allow["checkpoint"] = "config comm mesh"
    allow["setup"] = "config data plugin device passes " allow["passes"]
    allow["rank"] = "setup checkpoint exec comm " allow["setup"]
    allow["train"] = "rank " allow["rank"]
    # lib: what of the core needs neither a graph nor a rank
    allow["linalg"] = allow["link"] = allow["parquet"] = ""
    allow["chat"] = allow["corpus"] = "config"
    # what is beside training
    allow["interchange"] = "setup checkpoint comm chat " allow["setup"]
    allow["launch"] = "link train " allow["train"]
    # tools
    allow["infer"] = "exec passes comm " allow["passes"]
    allow["serve"] = "infer chat link config plugin " allow["infer"]
    allow["report"] = "config checkpoint comm plan " allow["plan"]
    allow["estimate"] = "train " allow["train"]
    allow["conformance"] = "train " allow["train"]
    allow["cli"] = "launch interchange chat corpus link parquet infer serve report estimate conformance " allow["launch"]

    while (arrows != "" && (getline line < arrows) > 0)
        if (split(line, word, " ") > 1 && line !~ /^#/) listed[word[1], word[2]] = 1
}

function finding(text) { print FILENAME ":" FNR ": " text }

function finish() {
    if (file == "") return
    limit = file ~ /\.h$/ ? 250 : 600
    if (lines > limit) print file ":" lines ": " lines " lines; at most " limit
}

FNR == 1 {
    finish()
    file = FILENAME
    in_comment = 0
    body = 0
    for_device = 0
    n = split(file, part, "/")
    area = part[1] == "launch" || part[1] == "interchange" ? part[1] : part[1] ~ /^(core|lib|tools)$/ ? part[2] : ""
    plugin = part[1] == "plugins"
    # The dialect of kernels is dialect.h; the emulator and NVRTC know nothing else.
    kernels = file ~ /\/kernels\/[^\/]*\.(cu|h)$/
    dialect = kernels && part[n] == "dialect.h"
    # the folder a plugin's own headers are in: plugins/<kind>/<name>/ or none
    longest = file ~ /^plugins\/backends\// ? 100 : 60
}

# The line without comments and with literals emptied.
function strip(s,    out, i, c, two) {
    if (!in_comment && s !~ /[\/"']/) return s
    out = ""
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        two = substr(s, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (two == "/*") { in_comment = 1; i++ }
        else if (two == "//") break
        else if (c == "\"" || c == "'") {
            for (i++; i <= length(s) && substr(s, i, 1) != c; i++)
                if (substr(s, i, 1) == "\\") i++
            out = out c c
        } else out = out c
    }
    return out
}

function exists(path,    line, ok) {
    ok = (getline line < path) >= 0
    close(path)
    return ok
}

# An op's properties are traits in its definition (include/ttrun/op.h): only the ops compare op names.
function check_op_names(code) {
    if (code ~ /(cmp|strstr|starts_with|fnmatch)[ ]*\([^;]*(op|def)->name/)
        finding("no comparison with an op's name: give its definition a trait (ttrun/op.h)")
    if (code ~ /(^|[^_A-Za-z0-9])tt_op_find[ ]*\([^;]*""/)
        finding("no op is looked up by a literal name: give the op that leads to it a trait (ttrun/op.h)")
}

# The file that "area/x.h" names.
function found(path,    to) {
    to = path
    sub(/\/.*/, "", to)
    return to in home ? home[to] substr(path, length(to) + 1) : ""
}

# "area/x.h" is below one of the roots, "x.h" in the file's own folder.
function check_quoted(path,    to, p) {
    if (dialect && path == "emulator.h") return # of tests/fake
    if (path == "cuda/lib.h" && file ~ /^plugins\/comms\/nccl\//) return # the search for NVIDIA's libraries
    if (plugin) {
        p = file
        sub(/[^\/]*$/, "", p)
        if (path ~ /\.\./ || !exists(p path)) finding("plugins include <ttrun/...> and their own headers only: \"" path "\"")
        return
    }
    if (area == "") { finding("public headers include <ttrun/...>: \"" path "\""); return }
    if (path ~ /\.\./) { finding("no .. in an include: \"" path "\""); return }
    p = file
    sub(/[^\/]*$/, "", p)
    if (path !~ /\// || (exists(p path) && !exists(found(path)))) return
    to = found(path)
    sub(/\/[^\/]*$/, "", to)
    if (to == "") { finding("\"" path "\": no folder of that name is in mk/lint.awk"); return }
    if ((file, found(path)) in listed) return
    if (path ~ /(_impl|\/internal)\.h$/ && index(p, to "/") != 1)
        finding("\"" path "\" is private to " to)
    to = path
    sub(/\/.*/, "", to)
    if (to != area && to != "base" && index(" " allow[area] " ", " " to " ") == 0)
        finding(home[area] " may not include " home[to] ": \"" path "\"")
}

function check_system(path) {
    if (kernels) finding("kernels include headers of their folder only: <" path ">")
    if (path ~ /^(ltdl|dlfcn)\.h$/ && !plugin && area != "plugin") finding("only core/plugin includes <" path ">")
    if (path == "jansson.h" && !plugin && area != "config") finding("only core/config includes <" path ">")
    if (path ~ /^event2\// && area != "serve") finding("only tools/serve includes <" path ">")
    if (path ~ /^(mpi|nccl|cuda|cublas)/ && !plugin) finding("core knows no <" path ">")
}

{ lines = FNR }

!in_comment && /^[ \t]*#[ \t]*include/ {
    path = $0
    if (match(path, /"[^"]*"/)) check_quoted(substr(path, RSTART + 1, RLENGTH - 2))
    else if (match(path, /<[^>]*>/)) check_system(substr(path, RSTART + 1, RLENGTH - 2))
    next
}

{
    code = strip($0)
    if (file ~ /\.cu?$/) {
        if (code ~ /^\{/) body = FNR
        if (code ~ /^\}/ && body) {
            if (FNR - body + 1 > longest)
                print file ":" body ": a function of " FNR - body + 1 " lines; at most " longest
            body = 0
        }
    }
    # what has a twin for the emulator
    if (code ~ /^#[ ]*if.*__CUDACC__/) for_device = 1
    else if (code ~ /^#[ ]*(else|endif)/) for_device = 0
    if (kernels && !dialect && !for_device && code ~ /(^|[^_A-Za-z0-9])(__(device|global|shared|shfl|sync|launch|ld|st)[a-z_]*|atomic[A-Z][A-Za-z]*|asm|curand[a-z_]*)[^_A-Za-z0-9]/)
        finding("kernels use the names of dialect.h, not CUDA\047s own")
    if (area != "" && file !~ /^core\/graph\/ops\//) check_op_names(code)
    if (area != "cli" && area != "launch") {
        if (code ~ /(^|[^_A-Za-z0-9])(printf|vprintf|puts|putchar|perror)[ ]*\(/ ||
            code ~ /(^|[^_A-Za-z0-9])v?f(printf|puts|putc|write)[ ]*\(.*(stdout|stderr)/)
            finding("no printing here: tt_log, or text returned to the caller")
        # check.c is a failed assertion; plugin_check.c ends the process that it forked
        if (file !~ /^(core\/base\/check|tools\/conformance\/plugin_check)\.c$/ && code ~ /(^|[^_A-Za-z0-9>.])(exit|_exit|_Exit|quick_exit|abort)[ ]*\(/)
            finding("exit and abort are for tools/cli and launch; return a status")
    }
}

END { finish() }
