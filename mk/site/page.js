// SPDX-License-Identifier: Apache-2.0
// The search over all sections and the switch of the theme. The index is a script of its own, which is loaded when the search is first used, so that
// the site works from files, without a server.
"use strict";

const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);

// How well a text's words match one word of the query: 0 = not at all, 1 = as the begin of a word, 2 = as a word.
const matchOf = (words, wanted) => {
  let best = 0;
  for (const word of words) {
    if (word === wanted) return 2;
    if (word.startsWith(wanted)) best = 1;
  }
  return best;
};

// The entries of the index with their words.
const prepareIndex = (data) =>
  data.sections.map(([page, id, title, parent, text]) => ({
    file: data.pages[page][0], label: data.pages[page][1], id, title, parent, text,
    titleWords: wordsOf(title), parentWords: wordsOf(parent + " " + data.pages[page][1]), textWords: new Set(wordsOf(text)),
  }));

// The entries that have every word of the query, the best first. A title counts more than the section or the page around it, and that more than the
// text; a whole word counts more than its begin.
const searchIndex = (entries, query, most) => {
  const wanted = wordsOf(query);
  const found = [];
  if (!wanted.length) return found;
  for (const entry of entries) {
    let score = 0;
    for (const word of wanted) {
      const here = 20 * matchOf(entry.titleWords, word) + 4 * matchOf(entry.parentWords, word) + matchOf(entry.textWords, word);
      score = here ? score + here : -Infinity;
    }
    if (entry.titleWords.join(" ") === wanted.join(" ")) score += 100;
    if (score > 0) found.push({ entry, score: score - entry.titleWords.length / 100 });
  }
  return found.sort((a, b) => b.score - a.score).slice(0, most).map((f) => f.entry);
};

// A piece of the text around the first place that has a word of the query, and the places of such words in it.
const excerptOf = (text, query, length) => {
  const wanted = wordsOf(query);
  const places = [];
  for (const part of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
    if (wanted.some((word) => part[0].toLowerCase().startsWith(word))) places.push([part.index, part.index + part[0].length]);
  }
  const from = places.length ? Math.max(0, text.lastIndexOf(" ", Math.max(0, places[0][0] - length / 3)) + 1) : 0;
  const piece = text.slice(from, from + length);
  return {
    text: piece, before: from > 0, after: from + length < text.length,
    marks: places.map(([a, b]) => [a - from, b - from]).filter(([a, b]) => a >= 0 && b <= piece.length),
  };
};

const startPage = () => {
  const root = document.documentElement;
  const form = document.getElementById("search"), input = document.getElementById("query");
  const list = document.getElementById("results"), status = document.getElementById("found");
  const theme = document.getElementById("theme"), toc = document.getElementById("toc");
  let entries = null, loading = false, chosen = -1;

  const element = (name, text, kind) => {
    const node = document.createElement(name);
    node.textContent = text;
    if (kind) node.className = kind;
    return node;
  };
  const excerpt = (entry) => {
    const node = element("span", "", "excerpt"), part = excerptOf(entry.text, input.value, 150);
    let at = 0;
    node.append(part.before ? "… " : "");
    for (const [a, b] of part.marks) {
      node.append(part.text.slice(at, a), element("mark", part.text.slice(a, b)));
      at = b;
    }
    node.append(part.text.slice(at) + (part.after ? " …" : ""));
    return node;
  };
  const choose = (i) => {
    chosen = i;
    [...list.children].forEach((link, k) => link.setAttribute("aria-selected", String(k === i)));
    if (i >= 0) {
      input.setAttribute("aria-activedescendant", list.children[i].id);
      list.children[i].scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    choose(-1);
  };
  const show = () => {
    if (!entries) return;
    const found = searchIndex(entries, input.value, 20);
    list.replaceChildren(...found.map((entry, i) => {
      const link = element("a", "");
      link.href = root.dataset.root + entry.file + (entry.id ? "#" + entry.id : "");
      link.id = "result" + i;
      link.tabIndex = -1;
      link.setAttribute("role", "option");
      link.append(element("b", entry.title), element("span", [entry.label, entry.parent].filter(Boolean).join(" › "), "where"), excerpt(entry));
      return link;
    }));
    const asked = wordsOf(input.value).length > 0;
    status.textContent = !asked ? "" : found.length === 1 ? "1 section" : found.length ? found.length + " sections" : "No section has all these words.";
    status.classList.toggle("hear", !asked || found.length > 0);
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
    choose(found.length ? 0 : -1);
  };
  const load = () => {
    if (loading) return;
    loading = true;
    window.ttrunIndex = (data) => {
      entries = prepareIndex(data);
      show();
    };
    const script = document.createElement("script");
    script.src = root.dataset.root + "search-index.js";
    document.head.append(script);
  };

  form.hidden = theme.hidden = false;
  input.addEventListener("focus", load);
  input.addEventListener("input", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (list.children[chosen]) list.children[chosen].click();
  });
  input.addEventListener("keydown", (event) => {
    const n = list.children.length, step = { ArrowDown: 1, ArrowUp: n - 1 }[event.key];
    if (event.key === "Escape") {
      input.value = "";
      show();
      close();
    } else if (step && n) {
      event.preventDefault();
      choose((chosen + step) % n);
    }
  });
  list.addEventListener("click", close);
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target)) close();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });

  const names = ["", "light", "dark"];
  const name = () => (theme.textContent = "Theme: " + (root.dataset.theme || "system"));
  theme.addEventListener("click", () => {
    root.dataset.theme = names[(names.indexOf(root.dataset.theme || "") + 1) % names.length];
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch (e) { /* a browser that keeps nothing */ }
    name();
  });
  name();
  if (toc && matchMedia("(min-width: 1200px)").matches) toc.open = true;
};

if (typeof document !== "undefined") startPage();
else module.exports = { prepareIndex, searchIndex, excerptOf };
