// Assumptions: every constant, where it comes from, what it moves; change it here.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { question, setOverride } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;
let told = null, buys = null, asked = "";

export function show(el) {
  told = buys = null;
  asked = "";
  fill(el, h("h1", { class: "question", text: "What does the answer rest on?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("div", { class: "halves", style: "margin-top:0" }, h("section", { class: "card" }, h("h2", { text: "What a tenth more or less would move" }), c.figure("tornado")), h("section", { class: "card" }, h("h2", { text: "What the next upgrade buys" }), h("p", { class: "muted small", id: "lead", text: "\u00a0" }), c.figure("upgrades"))),
    h("section", { class: "card", id: "rows" }), h("div", { class: "halves" }, h("section", { class: "card sayings", id: "missing" }), h("section", { class: "card sayings", id: "origin" })));
}

export async function update(el, ctx) {
  const body = question(), key = JSON.stringify(body);
  if (key === asked && told) { paint(el, ctx); return; }
  asked = key;
  try {
    told = await ask("assumptions", body, { kind: "assumptions" });
    paint(el, ctx);
    k.mark("answer");
    buys = await ask("sensitivity", body, { kind: "sensitivity" });
    upgrades(el);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#says"), refusal(error));
  }
}

export const theme = (el, ctx) => { if (told) paint(el, ctx); if (buys) upgrades(el); };

const most = (row) => Math.max(...["time", "usd", "joules"].flatMap((key) => row[key].map((v) => Math.abs(v || 0))));
const NAMES = { cluster: "Site, price and network rate", accelerator: "Accelerator", fabric: "Fabric", stack: "Software, fitted" };

function paint(el, ctx) {
  if (!el.querySelector("#rows")) return;
  const first = told.rows.toSorted((a, b) => most(b) - most(a))[0];
  fill(el.querySelector("#says"), "Nothing moves this answer more than ", h("b", { text: first.key }), `: a tenth of it is ${k.percent(most(first))}. `, told.changed.length ? h("b", { text: `${told.changed.length} changed by you: ${told.changed.join("; ")}. ` }) : "Change a value and every view follows; changed values travel in the address. ",
    `The 80 % range of throughput, ${k.signed(told.interval[0] - 1, 0)} to ${k.signed(told.interval[1] - 1, 0)}, comes from how far predictions missed the runs behind ${told.stack.name}.`);
  tornado(el.querySelector("#tornado"));
  table(el.querySelector("#rows"), ctx);
  fill(el.querySelector("#missing"), h("h2", { text: "What is not modelled" }), h("p", { class: "muted small", text: "With the direction in which the answer errs." }), h("ul", {}, told.not_modelled.map((m) => h("li", {}, h("b", { text: m.what }), " ", h("span", { class: "chip", text: m.errs }), h("br"), h("span", { class: "muted", text: m.why })))));
  fill(el.querySelector("#origin"), h("h2", { text: "Where the numbers come from" }), h("ul", {}, Object.entries(told.provenance).map(([part, text]) => h("li", {}, h("b", { text: `${part}: ` }), k.linked(text))), told.defaults.map((d) => h("li", {}, h("b", { text: `${d.what}, where none are given: ` }), `${d.value}; `, k.linked(d.source), " ", h("span", { class: "chip", text: d.used ? "in use" : "not in use" }))), told.warnings.map((text) => h("li", {}, h("b", { text: "warning: " }), text)), told.stack.on_bounds.length ? h("li", {}, h("b", { text: "not determined by the data: " }), told.stack.on_bounds.join(", ").replaceAll("_", " ")) : null));
}

function tornado(el) {
  const rows = told.rows.filter((r) => most(r) > 0.0005).sort((a, b) => most(b) - most(a)).slice(0, 12).reverse();
  const pick = (r) => { const time = Math.max(...r.time.map((v) => Math.abs(v || 0))); return time >= 0.0005 ? ["time", r.time] : Math.abs(r.usd[0] || 0) >= 0.0005 ? ["rent", r.usd] : ["energy", r.joules]; };
  const small = innerWidth <= 640, name = (r) => (small ? r.key.split(".").pop().replaceAll("_", " ").replace("bandwidth", "rate") : r.key);
  const y = rows.map((r) => `${name(r)}${pick(r)[0] === "time" ? "" : ` (${pick(r)[0]})`}`);
  const bar = (place, name, tint, pattern) => ({ type: "bar", orientation: "h", y, x: rows.map((r) => pick(r)[1][place]), name, marker: { color: c.colour(tint), pattern: pattern && { shape: pattern, fillmode: "overlay", fgcolor: c.colour("card"), solidity: 0.3 } }, hovertemplate: "%{y}: %{x:+.2%}<extra></extra>" });
  c.draw(el, { traces: [bar(0, "a tenth more", "c-compute"), bar(1, "a tenth less", "c-comm", "/")], rows: told.rows.map(({ time, usd, joules, ...r }) => ({ ...r, time_more: time[0], time_less: time[1], usd_more: usd[0], usd_less: usd[1], energy_more: joules[0], energy_less: joules[1] })), name: "assumptions", label: "What a tenth more or less of each assumption changes", columns: [["Assumption", (r) => r.key], ["A tenth more: time", (r) => k.signed(r.time_more, 2), "num"], ["a tenth less", (r) => k.signed(r.time_less, 2), "num"], ["A tenth more: rent", (r) => k.signed(r.usd_more, 2), "num"], ["A tenth more: energy", (r) => k.signed(r.energy_more, 2), "num"]], height: 430, layout: { barmode: "overlay", bargap: 0.3, xaxis: c.axis(small ? "change of time, or else cost" : "change of step time, or else of rent or energy", { tickformat: "+.0%", zeroline: true, zerolinecolor: c.colour("soft") }), yaxis: c.axis("", { showgrid: false, ticksuffix: " " }), margin: { l: 210, r: 12, t: 12, b: 44 } } });
}

function upgrades(el) {
  if (!el.querySelector("#upgrades")) return;
  fill(el.querySelector("#lead"), buys.lead || "");
  const rows = buys.rows.filter((r) => r.gain !== null).slice(0, 12).reverse();
  c.draw(el.querySelector("#upgrades"), { traces: [{ type: "bar", orientation: "h", y: rows.map((r) => (innerWidth > 640 ? `${r.name}, ${r.upgrade}`.slice(0, 44) : r.name.slice(0, 22))), x: rows.map((r) => r.gain), marker: { color: rows.map((r) => c.colour({ buy: "c-compute", set: "c-opt", build: "c-bubble" }[r.means])), pattern: { fillmode: "overlay", shape: rows.map((r) => ({ buy: "", set: "/", build: "." }[r.means])), fgcolor: c.colour("card"), solidity: 0.3 } }, text: rows.map((r) => ({ buy: "buy", set: "a switch", build: "to be built" }[r.means])), hovertemplate: "%{y}: %{x:+.1%} tokens/s (%{text})<extra></extra>", textposition: "none" }], rows: buys.rows, name: "upgrades", label: "Tokens per second gained by each upgrade", height: 400, columns: [["Change", (r) => r.name], ["To", (r) => r.upgrade], ["Tokens/s", (r) => k.signed(r.gain), "num"], ["Per joule", (r) => k.signed(r.energy_gain), "num"], ["How", (r) => r.means], ["Note", (r) => r.note || ""]], layout: { xaxis: c.axis("tokens/s gained", { tickformat: "+.0%", zeroline: true, zerolinecolor: c.colour("soft") }), yaxis: c.axis("", { showgrid: false, ticksuffix: " " }), margin: { l: 250, r: 12, t: 12, b: 44 } } });
}

function table(el, ctx) {
  const change = (row, value) => { setOverride(row.key, value); asked = ""; ctx.refresh(); };
  const effect = (pair) => pair.every((v) => v === null || Math.abs(v) < 0.00005) ? h("span", { class: "muted", text: "nothing" }) : pair.map((v) => v === null ? "\u2013" : k.signed(v, 2)).join(" / ");
  const groups = Object.groupBy ? Object.groupBy(told.rows, (r) => r.part) : told.rows.reduce((found, r) => { (found[r.part] ||= []).push(r); return found; }, {});
  const columns = [
    ["Constant", (r) => [h("b", { text: r.key.split(".").slice(1).join(".").replaceAll("_", " ") }), h("br"), h("span", { class: "muted small", text: r.words })], "words"],
    ["Value", (r) => [h("input", { type: "text", class: "edit", value: r.shown, "aria-label": `Value of ${r.key}`, onchange: (e) => change(r, e.target.value.trim() || null) }), r.changed ? [" ", h("button", { type: "button", class: "link", text: "undo", "aria-label": `Undo ${r.key}`, onclick: () => change(r, null) })] : null], "num"],
    ["Range", (r) => h("span", { class: "small nowrap", text: r.range || (r.undetermined ? "not determined" : "\u2013") })], ["+10 % / \u221210 %: time", (r) => effect(r.time), "num"], ["rent", (r) => effect(r.usd), "num"], ["energy", (r) => effect(r.joules), "num"],
    ["Source", (r) => h("details", { class: "source" }, h("summary", { text: r.source || "not stated" }), k.linked(r.source))],
  ];
  const lists = Object.entries(groups).map(([part, rows]) => {
    const moving = rows.filter((r) => r.changed || most(r) >= 0.00005).sort((a, b) => most(b) - most(a)), still = rows.filter((r) => !moving.includes(r)), options = { caption: NAMES[part] || part, selected: (r) => r.changed };
    return [h("h3", { text: NAMES[part] || part, style: "margin-top:18px" }), k.table(moving, columns, options), still.length ? h("details", { class: "muted small", style: "margin-top:6px" }, h("summary", { text: `${still.length} more that move nothing here` }), k.table(still, columns, { ...options, caption: `${options.caption}, without effect here` })) : null];
  });
  fill(el, h("div", { class: "row between" }, h("h2", { text: "Every assumption" }), told.rows.some((r) => r.changed) ? h("button", { type: "button", text: "Undo all changes", onclick: () => { for (const r of told.rows) if (r.changed) setOverride(r.key, null); asked = ""; ctx.refresh(); } }) : null), lists);
}
