// Small things everything needs: elements, numbers with their units, files to take away.

export function h(tag, props = {}, ...children) {
  const el = document.createElementNS && SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
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

// Numbers. SI in, words out; three significant digits, as the command line prints them.

let keepZeros = false;

export function significant(value, digits = 3) {
  if (value === 0) return "0";
  const decimals = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(value))), 0);
  const text = Number(value.toPrecision(digits)).toFixed(Math.min(decimals, 12));
  return text.includes(".") && !keepZeros ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

function prefixed(value, steps) {
  let chosen = steps[0];
  for (const step of steps) if (Math.abs(value) >= step[0] * 0.9995) chosen = step;
  return significant(value / chosen[0]) + chosen[1];
}
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const dash = "\u2013";

export const count = (v) => known(v) ? Math.round(v).toLocaleString("en") : dash;
export const short = (v) => !known(v) ? dash : Math.abs(v) < 10000 && v === Math.round(v) ? count(v)
  : prefixed(v, [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "B"], [1e12, "T"]]);
export const grouped = (v) => {
  if (!known(v)) return dash;
  const rounded = Math.abs(v) >= 1000 ? Math.round(v) : Number(v.toPrecision(3));
  return rounded.toLocaleString("en");
};
export const bytes = (v) => known(v) ? prefixed(v, ["B", "KiB", "MiB", "GiB", "TiB"].map((u, i) => [2 ** (10 * i), " " + u])) : dash;
export const gib = (v) => known(v) ? (v / 2 ** 30).toFixed(1) + " GiB" : dash;
export const seconds = (v) => {
  if (!known(v)) return dash;
  for (const [size, unit] of [[86400, " days"], [3600, " h"], [60, " min"]])
    if (Math.abs(v) >= 2 * size) return significant(v / size) + unit;
  return v === 0 ? "0 s" : prefixed(v, [[1e-9, " ns"], [1e-6, " \u00b5s"], [1e-3, " ms"], [1, " s"]]);
};
export const days = (v) => known(v) ? seconds(v * 86400) : dash;
export const dollars = (v) => {
  if (!known(v)) return dash;
  const sign = v < 0 ? "\u2212" : "", size = Math.abs(v);
  if (size < 1) return `${sign}$${significant(size)}`;
  if (size < 999.995) return `${sign}$${size.toFixed(2)}`;
  if (size < 999500) return `${sign}$${Math.round(size).toLocaleString("en")}`;
  return `${sign}$${prefixed(size, [[1e6, "M"], [1e9, "B"], [1e12, "T"]])}`;
};
export const energy = (v) => known(v) ? prefixed(v / 3.6e6, [[1e-3, " Wh"], [1, " kWh"], [1e3, " MWh"], [1e6, " GWh"]]) : dash;
export const joules = (v) => known(v) ? prefixed(v, [[1e-3, " mJ"], [1, " J"], [1e3, " kJ"]]) : dash;
export const watts = (v) => known(v) ? prefixed(v, [[1, " W"], [1e3, " kW"], [1e6, " MW"], [1e9, " GW"]]) : dash;
export const percent = (v, digits = 1) => known(v) ? `${(v * 100).toFixed(digits)} %` : dash;
export const signed = (v, digits = 1) => known(v) ? `${v > 0 ? "+" : v < 0 ? "\u2212" : "\u00b1"}${Math.abs(v * 100).toFixed(digits)} %` : dash;

// An interval with the unit said once: "1.23\u20131.60 s".
export function range(format, low, high) {
  if (!known(low) || !known(high)) return "";
  keepZeros = true;
  const a = format(low), b = format(high);
  keepZeros = false;
  const [, first, unit] = a.match(/^([^ ]+)( .*)?$/) || [];
  return unit && b.endsWith(unit) ? `${first}\u2013${b}` : `${a}\u2013${b}`;
}

export function read(text) {
  const match = String(text).trim().replace(/[,_\s]/g, "").match(/^([0-9.]+(?:e[+-]?[0-9]+)?)([kmbgt]?)/i);
  if (!match) return NaN;
  return Number(match[1]) * ({ k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[match[2].toLowerCase()] || 1);
}

// When something was first on the screen: what the benchmark of opening the page reads.
const marked = new Set();
export function mark(name) {
  if (marked.has(name)) return;
  marked.add(name);
  requestAnimationFrame(() => setTimeout(() => performance.mark(`scalewise-${name}`)));
}

// Sources with what can be followed in them as links; nothing is fetched until somebody clicks.
export function linked(text) {
  const found = [];
  let from = 0;
  for (const match of String(text || "").matchAll(/https?:\/\/[^\s,;)]+|arXiv[: ](\d{4}\.\d{4,5})|github:([\w.-]+\/[\w.-]+)/gi)) {
    const href = match[1] ? `https://arxiv.org/abs/${match[1]}` : match[2] ? `https://github.com/${match[2]}` : match[0];
    found.push(text.slice(from, match.index), h("a", { href, target: "_blank", rel: "noreferrer noopener", text: match[0] }));
    from = match.index + match[0].length;
  }
  return [...found, String(text || "").slice(from)];
}

// Files to take away.

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
    const text = v === null || v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [keys.join(","), ...rows.map((row) => keys.map((k) => cell(row[k])).join(","))].join("\n") + "\n";
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
    toast("The browser did not allow copying");
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
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen", text: caption }),
      h("thead", {}, h("tr", {}, columns.map(([title, , kind, sort]) =>
        h("th", { scope: "col", class: kind, "aria-sort": sort?.state }, sort
          ? h("button", { class: "sort", onclick: sort.click }, title, h("span", { "aria-hidden": "true", text: { ascending: " \u2191", descending: " \u2193" }[sort.state] || "" }))
          : title)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: selected?.(row) ? "here" : null, onclick: onrow && (() => onrow(row)) },
        columns.map(([, cell, kind], i) => h(i ? "td" : "th", { class: kind, scope: i ? null : "row" }, cell(row))))))));
}

export function segmented(name, options, value, change) {
  return h("div", { class: "segmented", role: "radiogroup", "aria-label": name }, options.map(([key, label, title]) =>
    h("label", { title }, h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }), h("span", { text: label }))));
}

export const GROUP_COLOURS = {
  compute: "var(--c-compute)", recompute: "var(--c-recompute)", communication: "var(--c-comm)",
  bubble: "var(--c-bubble)", optimizer: "var(--c-opt)", other: "var(--c-other)",
};
