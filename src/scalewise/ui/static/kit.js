// Elements, tables, files and messages that every view uses; numbers as text are in format.js.

import { signed, significant } from "./format.js";

export * from "./format.js";

// An element: `class`, `text`, `on...` and attributes, then its children.
export function h(tag, props = {}, ...children) {
  const el =
    document.createElementNS && SVG.has(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") el.setAttribute("class", value);
    else if (key === "text") el.textContent = value;
    else if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  add(el, children);
  return el;
}

const SVG = new Set(["svg", "path", "rect", "line", "g", "pattern", "defs", "circle", "title"]);

export function add(el, children) {
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : String(child));
  }
  return el;
}

export function fill(el, ...children) {
  el.replaceChildren();
  return add(el, children);
}

// When something was first on the screen, for the benchmark of opening the web UI.
const marked = new Set();

export function mark(name) {
  if (marked.has(name)) return;
  marked.add(name);
  requestAnimationFrame(() => setTimeout(() => performance.mark(`scalewise-${name}`)));
}

// Text with its addresses as links.
export function linked(text) {
  const found = [];
  let from = 0;
  for (const match of String(text || "").matchAll(
    /https?:\/\/[^\s,;)]+|arXiv[: ](\d{4}\.\d{4,5})|github:([\w.-]+\/[\w.-]+)/gi,
  )) {
    const href = match[1]
      ? `https://arxiv.org/abs/${match[1]}`
      : match[2]
        ? `https://github.com/${match[2]}`
        : match[0];
    found.push(
      text.slice(from, match.index),
      h("a", { href, target: "_blank", rel: "noreferrer noopener", text: match[0] }),
    );
    from = match.index + match[0].length;
  }
  return [...found, String(text || "").slice(from)];
}

// Save a file.
export function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 5000);
}

export function csv(rows) {
  if (!rows.length) return "";
  const keys = Object.keys(rows[0]);
  const cell = (v) => {
    const text =
      v === null || v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return (
    [keys.join(","), ...rows.map((row) => keys.map((k) => cell(row[k])).join(","))].join("\n") +
    "\n"
  );
}

let hide;

export function toast(text) {
  const el = document.getElementById("toast");
  el.textContent = text;
  el.classList.add("on");
  clearTimeout(hide);
  hide = setTimeout(() => el.classList.remove("on"), 2600);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    toast("The browser blocked the clipboard");
  }
}

export function debounce(run, wait) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), wait);
  };
}

// A table with real headers; cells may be nodes. Columns: [title, cell(row), class].
export function table(rows, columns, { caption, onrow, selected } = {}) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen", text: caption }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(([title, , kind, sort]) =>
            h(
              "th",
              { scope: "col", class: kind, "aria-sort": sort?.state },
              sort
                ? h(
                    "button",
                    { class: "sort", onclick: sort.click },
                    title,
                    h("span", {
                      "aria-hidden": "true",
                      text: { ascending: " \u2191", descending: " \u2193" }[sort.state] || "",
                    }),
                  )
                : title,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { class: selected?.(row) ? "here" : null, onclick: onrow && (() => onrow(row)) },
            columns.map(([, cell, kind], i) =>
              h(i ? "td" : "th", { class: kind, scope: i ? null : "row" }, cell(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

export function segmented(name, options, value, change) {
  return h(
    "div",
    { class: "segmented", role: "radiogroup", "aria-label": name },
    options.map(([key, label, title]) =>
      h(
        "label",
        { title },
        h("input", {
          type: "radio",
          name,
          value: key,
          checked: key === value,
          onchange: () => change(key),
        }),
        h("span", { text: label }),
      ),
    ),
  );
}

// Relative change against the previous answer; nothing below 0.05%.
export function delta(now, before, better = "low") {
  if (!now || !before) return null;
  const share = now / before - 1;
  if (Math.abs(share) < 0.0005) return null;
  const good = better === "low" ? share < 0 : share > 0;
  const text = Math.abs(share) > 9.99 ? `\u00d7${significant(now / before, 2)}` : signed(share);
  return h("span", {
    class: `delta ${good ? "good" : "bad"}`,
    text,
    title: "relative to the previous answer",
  });
}

// An error with its hint.
export function refusal(error) {
  return h(
    "div",
    { class: "refused", role: "alert" },
    h("p", { text: error.message || error.error }),
    error.hint && h("p", { class: "hint", text: `Hint: ${error.hint}` }),
  );
}

// Lists of rows by a key.
export function groupBy(rows, key) {
  const groups = {};
  for (const row of rows) (groups[key(row)] ||= []).push(row);
  return groups;
}
