#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make site: every page is there and linked, every link within the site leads to a file and, with #, to an element of it; the search finds.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
find README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs bench examples -name '*.md' | sort >"$dir/have"
sed -n 's/^ \+\([^ ]*\.md\) .*/\1/p' mk/site/pages | sort >"$dir/listed"
diff "$dir/have" "$dir/listed"
ok every_page_is_in_the_table
if ! printf '#include <cmark-gfm-core-extensions.h>\n' | ${CC:-gcc} -E -x c - >/dev/null 2>&1; then
    skip site "it is not made without libcmark-gfm-dev and libcmark-gfm-extensions-dev (DEPS=test make deps)"
    exit $failed
fi
site=$dir/site
CFLAGS="-fsanitize=address,undefined -g" ASAN_OPTIONS=detect_leaks=0 sh mk/site/make.sh "$site" >"$dir/out" 2>"$dir/err" && [ ! -s "$dir/err" ]
ok "is_made ($(head -1 "$dir/out"; head -3 "$dir/err"))"
# "id FILE#ID" of every element, "link FILE TARGET" of every link and script
(cd "$site" && find . -name '*.html' | sed 's#^\./##' | sort >"$dir/pages" && xargs awk '
    {
        s = $0
        while (match(s, / (id|href|src)="[^"]*"/)) {
            a = substr(s, RSTART + 1, RLENGTH - 2); s = substr(s, RSTART + RLENGTH)
            n = index(a, "=\""); name = substr(a, 1, n - 1); value = substr(a, n + 2)
            gsub(/&amp;/, "\\&", value)
            if (name == "id") print "id", FILENAME "#" value
            else if (value !~ /^[a-z]+:/) print "link", FILENAME, value
        }
    }' <"$dir/pages" >"$dir/found")
grep -q '^link' "$dir/found" && (cd "$site" && awk '
    function path(from, to,    n, parts, i, out, k) {
        if (to == "") return from
        sub(/[^\/]*$/, "", from); n = split(from to, parts, "/"); k = 0
        for (i = 1; i <= n; i++) { if (parts[i] == "..") k--; else if (parts[i] != ".") out[++k] = parts[i] }
        to = out[1]; for (i = 2; i <= k; i++) to = to "/" out[i]
        return to
    }
    $1 == "id" { ids[$2] = 1; next }
    { at = index($3, "#"); file = at ? substr($3, 1, at - 1) : $3; id = at ? substr($3, at + 1) : ""
      gsub(/%20/, " ", file); target = path($2, file); links[$2 " -> " $3] = target (id == "" ? "" : "#" id); files[target] = 1 }
    END {
        for (f in files) if ((getline line < f) < 0) missing[f] = 1; else close(f)
        for (l in links) { t = links[l]; f = t; sub(/#.*/, "", f); if (f in missing || (t ~ /#/ && f ~ /html$/ && !(t in ids))) { print l; bad = 1 } }
        exit bad
    }' "$dir/found" >"$dir/broken")
ok "every_link_leads_somewhere ($(grep -c '^link' "$dir/found") links; $(head -3 "$dir/broken" | tr '\n' ' '))"
sort "$dir/found" | uniq -d | grep '^id' >"$dir/twice"
[ ! -s "$dir/twice" ]
ok "no_id_is_there_twice ($(head -2 "$dir/twice"))"
while read -r page; do grep -q "^link index.html $page\$" "$dir/found" || echo "$page"; done <"$dir/pages" >"$dir/alone"
[ ! -s "$dir/alone" ] && [ "$(wc -l <"$dir/pages")" -ge 30 ]
ok every_page_is_linked_from_the_first
! grep -lE '(src|href)="(https?:)?//[^"]*\.(js|css|woff2?|png|svg)"|@import|url\(' -r "$site" >"$dir/out"
ok "nothing_is_loaded_from_elsewhere ($(head -2 "$dir/out"))"
grep -q '"max_norm","training"' "$site/search-index.js" && grep -q '"docs/reference.html"' "$site/search-index.js"
ok the_index_has_the_options
page=$site/docs/ttrun.1.html
grep -q 'id="options"' "$page" && grep -q '<b>--nproc </b><i>N</i>' "$page" && grep -q '<pre><code>ttrun configs' "$page" && ! grep -q '\\f[BIPR]\|\\-' "$page"
ok the_manual_page
# a heading with <, & and quotes, a picture, a link out of the tree: escaped, carried, refused
mkdir -p "$dir/tree/docs" && cp "$site.tool" "$dir/tool"
printf '# A <b> & "q" `x<y>`\n\nText\\<script>\n\n[to](#two) ![p](p.svg)\n\n## Two\n\n## Two\n' >"$dir/tree/docs/a.md"
printf '<svg xmlns="http://www.w3.org/2000/svg"/>\n' >"$dir/tree/docs/p.svg"
printf 'Group\n    docs/a.md   A\n' >"$dir/table"
export ASAN_OPTIONS=detect_leaks=0
"$dir/tool" "$dir/tree" "$dir/small" "$dir/table" >"$dir/out" 2>"$dir/err" && grep -q '<title>A &lt;b&gt;\|<title>A' "$dir/small/docs/a.html" &&
    ! grep -q 'Text<script>' "$dir/small/docs/a.html" && grep -q 'id="two-1"' "$dir/small/docs/a.html" && [ -s "$dir/small/docs/p.svg" ]
ok "escapes_and_carries ($(head -2 "$dir/err"))"
for bad in '[x](missing.md)' '[x](#nowhere)' '[x](../../out.md)' '![x](none.svg)'; do
    printf '# A\n\n%s\n' "$bad" >"$dir/tree/docs/a.md"
    "$dir/tool" "$dir/tree" "$dir/small" "$dir/table" >/dev/null 2>"$dir/err"
    [ $? -eq 1 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q '^site: docs/a.md: ' "$dir/err"
    ok "refuses $bad ($(cat "$dir/err"))"
done
printf '%s\n' '.\" a comment' '.TH NAME 1 2026' '.SH A SECTION' 'text \fIslanted\fP, a*b_c <x>' '.TP' '.BI lr " RATE"' 'its text' '.br' '.B """quoted"" text"' '.PP' '- no list' '.nf' 'as *it* is' '.fi' >"$dir/tree/docs/name.1"
printf 'Group\n    docs/name.1   A\n' >"$dir/table"
"$dir/tool" "$dir/tree" "$dir/small" "$dir/table" >"$dir/out" 2>"$dir/err" && tr '\n' ' ' <"$dir/small/docs/name.1.html" >"$dir/text" && grep -q 'name(1)' "$dir/text" && grep -q '<h2 id="a-section"> A section' "$dir/text" &&
    grep -q 'text <i>slanted</i>, a\*b_c &lt;x&gt;' "$dir/text" && grep -q '<b>lr</b><i> RATE</i><br /> its text <br> <b>&quot;quoted&quot; text</b>' "$dir/text" && grep -q '<p>- no list</p> <pre><code>as \*it\* is </code>' "$dir/text"
ok "manual_pages ($(head -2 "$dir/err"))"
printf '.TH A 1\n.ZZ x\n' >"$dir/tree/docs/name.1"
"$dir/tool" "$dir/tree" "$dir/small" "$dir/table" >/dev/null 2>"$dir/err"
[ $? -eq 1 ] && grep -q '^site: docs/name.1: .ZZ x: this macro' "$dir/err"
ok "refuses_an_unknown_macro ($(cat "$dir/err"))"
if command -v node >/dev/null 2>&1; then
    cat >"$dir/search.js" <<'JS'
const p = require(process.argv[2] + "/page.js");
let entries;
global.ttrunIndex = (data) => (entries = p.prepareIndex(data));
require(process.argv[2] + "/search-index.js");
const first = (query) => (p.searchIndex(entries, query, 20)[0] || {}).title;
const check = (name, good) => console.log((good ? "ok " : "not ok ") + name);
check("finds_an_option", first("training.max_norm") === "max_norm");
check("finds_the_begin_of_a_word", p.searchIndex(entries, "max_nor", 20).some((e) => e.title === "max_norm"));
check("wants_every_word", p.searchIndex(entries, "max_norm zzzznothing", 20).length === 0);
check("an_empty_query_finds_nothing", p.searchIndex(entries, " .,; ", 20).length === 0);
check("a_title_is_before_a_text", /glossary/i.test(first("glossary") || ""));
const x = p.excerptOf("one two three four five six", "thr", 12);
check("marks_what_was_found", x.marks.length === 1 && x.text.slice(...x.marks[0]) === "three");
JS
    node "$dir/search.js" "$site" >"$dir/out" 2>&1 || { echo "not ok the_search_runs"; failed=1; }
    cat "$dir/out"
    ! grep -q '^not ok' "$dir/out" || failed=1
else
    skip the_search "no node here"
fi
exit $failed
