# SPDX-License-Identifier: Apache-2.0
# Questions with answers that can be checked: sums, successors, comparisons, words, days. A tenth of what can be answered without
# having seen the very question is held out.
#   awk -f conversations.awk DIR     writes DIR/sft.jsonl, pairs.jsonl, and questions.txt with answers.txt, which nobody trains on
function line(file, text) { print text > (dir "/" file) }
function quoted(s) { gsub(/"/, "\\\"", s); return "\"" s "\"" }
# The same number of 0 … 9 for the same text.
function drawn(text,    i, h) {
    for (i = 1; i <= length(text); i++)
        h = (h * 31 + index(letters, substr(text, i, 1))) % 1000003
    return h % 10
}
# A question and its answer; the long answer says the same in more words. fact: it has to be seen.
function ask(question, answer, fact,    short, long) {
    short = answer "."
    long = "Well, let me see. I think that the answer is " answer ", if I am not wrong."
    if (!fact && drawn(question) == 0) {
        if (!seen[question]++) {
            line("questions.txt", question)
            line("answers.txt", answer)
        }
        return
    }
    line("sft.jsonl", "{\"prompt\": " quoted(question) ", \"completion\": " quoted(rand() < 0.5 ? short : long) "}")
    if (rand() < 0.25)
        line("pairs.jsonl", "{\"prompt\": " quoted(question) ", \"chosen\": " quoted(short) ", \"rejected\": " quoted(long) "}")
}
BEGIN {
    dir = ARGV[1]
    srand(1)
    letters = " 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?.,"
    for (a = 0; a <= 12; a++)
        for (b = 0; b <= 12; b++) {
            ask("What is " a " plus " b "?", a + b)
            ask("Add " a " and " b ".", a + b)
        }
    for (a = 0; a < 50; a++)
        for (k = 0; k < 2; k++) {
            ask("Which number comes after " a "?", a + 1)
            ask("Which number comes before " a + 1 "?", a)
        }
    for (i = 0; i < 900; i++) {
        a = int(rand() * 50)
        b = (a + 1 + int(rand() * 48)) % 50
        ask("Which is larger, " a " or " b "?", a > b ? a : b)
    }
    n = split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", day, " ")
    for (i = 1; i <= n; i++)
        for (k = 0; k < 3; k++) {
            ask("Which day comes after " day[i] "?", day[i % n + 1], 1)
            ask("Which day comes before " day[i] "?", day[(i + n - 2) % n + 1], 1)
        }
    n = split("apple river stone cloud garden window paper candle forest island bridge copper silver winter summer yellow purple orange music letter", word, " ")
    for (i = 1; i <= n; i++)
        for (k = 0; k < 3; k++) {
            ask("Say " word[i] ".", word[i])
            ask("Say " word[i] " twice.", word[i] " " word[i])
            j = (i + 5 * k) % n + 1
            ask("Say " word[i] " and " word[j] ".", word[i] " and " word[j])
        }
    for (i = 0; i < 12; i++) {
        ask("Who are you?", "a small model that ttrun has trained", 1)
        ask("What can you do?", "add, compare and count a little", 1)
    }
}
