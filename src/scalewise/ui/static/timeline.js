// Timeline: one step, stream by stream, each bar tied to the terms of the estimate that count it; and the file for Perfetto.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { question } from "./state.js";
import { refusal, worked } from "./estimate.js";

const { h, fill } = k;
const TINT = { forward: "c-compute", backward: "c-comm", weights: "c-opt", data: "c-bubble", other: "c-hidden", tensor: "c-recompute", pipeline: "ink", wait: "c-other" };
const SHORT = { "compute": "compute", "tensor parallel": "tensor", "context parallel": "context", "data parallel": "data", "pipeline send/recv": "sends", "host launches": "host" };
const HOW = "Point at a bar, or Tab to a panel and use the arrow keys: the term that counts it lights up, with its formula.";
let told = null, asked = "", explained = null, terms = [];

export function show(el) {
  told = null;
  asked = "";
  fill(el, h("h1", { class: "question", text: "What happens within one step?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "Playing the step event by event \u2026" }), 
    h("div", { class: "split" }, h("div", { class: "column" }, h("section", { class: "card", id: "panels" }), h("section", { class: "card", id: "facts" })), h("aside", { class: "card", id: "counted", "aria-label": "The term that counts it" }, h("div", { id: "terms" }), h("div", { id: "formula", "aria-live": "polite" }))));
}

export async function update(el, ctx) {
  const body = question(), key = JSON.stringify(body);
  if (key === asked && told) { paint(el, ctx); return; }
  asked = key;
  try {
    explained = null;
    told = await ask("timeline", body, { kind: "timeline" });
    k.mark("answer");
    paint(el, ctx);
    explained = (await ask("explain", body, { kind: "explain-step" })).explained;
    formula(el, terms);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#says"), refusal(error));
  }
}

const width = (el) => { const style = getComputedStyle(el); return Math.max(Math.min(el.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight), 1500), 300); };

function ticks(low, high, most) {
  const span = high - low;
  let step = 10 ** Math.floor(Math.log10(span / most));
  step *= [1, 2, 5, 10].find((f) => span / (step * f) <= most) || 10;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

// A panel: bars by row, reachable by pointer and by arrow keys.
function panel(p, el, tip) {
  const wide = width(el), left = wide < 500 ? 66 : 128, right = 12, inner = wide - left - right;
  const row = p.rows.length > 12 ? Math.max(12, Math.floor(340 / p.rows.length)) : 26, gap = row > 14 ? 6 : 2, top = 6;
  const tall = top + p.rows.length * (row + gap), x = (t) => left + (t - p.low) / (p.high - p.low) * inner;
  const bars = p.rows.map(() => []);
  const parts = p.rows.flatMap((each, i) => {
    const y = top + i * (row + gap);
    const idle = h("rect", { x: left, y, width: inner, height: row, fill: "var(--hair)" });
    if (each.name.startsWith("stage ")) Object.assign(idle, { idle: each.name, link: 0 });
    return [idle, text(left - 8, y + row / 2 + 4, wide < 500 ? SHORT[each.name] || each.name : each.name, "end"),
      ...each.bars.map(([start, end, colour, , mark, link]) => {
        const w = Math.max((end - start) / (p.high - p.low) * inner, 0.4);
        const bar = h("rect", { class: "bar-of", x: x(start).toFixed(2), y, width: w.toFixed(2), height: row, fill: `var(--${TINT[colour] || "c-other"})`, stroke: w > 4 ? "var(--card)" : null, "stroke-width": w > 4 ? 0.6 : null });
        bars[i].push(bar);
        Object.assign(bar, { place: [i, bars[i].length - 1], link });
        return mark && (told.stages > 1 || p.low > 0) && row >= 16 && w > 7 * mark.length + 6 ? [bar, text(x(start) + w / 2, y + row / 2 + 4, mark, "middle", colour)] : bar;
      })];
  }).flat();
  // The axis ends where the step does, and says when.
  const room = (p.high - p.low) * (wide < 500 ? 106 : 112) / inner;
  const axis = [...ticks(p.low, p.high, wide < 500 ? 3 : 9).filter((t) => t < p.high - room), p.high].flatMap((t) => [h("line", { x1: x(t), x2: x(t), y1: top, y2: tall, stroke: "var(--soft)", "stroke-width": 0.5, "stroke-dasharray": "2 4", "pointer-events": "none" }), text(x(t), tall + 15, t === p.high && !p.low ? `ends at ${k.seconds(t)}` : k.seconds(t), t === p.high ? "end" : t === p.low ? "start" : "middle", null, true)]);
  let at = null;
  const show = (row, place) => {
    at?.classList.remove("at");
    at = bars[row][place];
    at.classList.add("at");
    const [start, end, , words, , link] = p.rows[row].bars[place];
    say(tip, `${p.rows[row].name}, ${words}: ${k.seconds(end - start)}, from ${k.seconds(start)} to ${k.seconds(end)}`, told.links[link], el);
  };
  const drawn = h("svg", { viewBox: `0 0 ${wide} ${tall + 22}`, width: wide, height: tall + 22, role: "img", "aria-label": `${p.name}: ${p.rows.map((r) => `${r.name}, ${r.bars.length} bars`).join("; ")}` }, parts, axis);
  drawn.addEventListener("pointerover", ({ target }) => {
    if (target.place) show(...target.place);
    else if (target.idle) { at?.classList.remove("at"); say(tip, `${target.idle}: idle`, told.links[0], el); }
  });
  const keys = (event) => {
    const [row, place] = at?.place || [0, -1], middle = (bar) => bar[0] + bar[1];
    let next = null;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") next = [row, Math.min(Math.max(place + (event.key === "ArrowRight" ? 1 : -1), 0), bars[row].length - 1)];
    else if (event.key === "Home" || event.key === "End") next = [row, event.key === "Home" ? 0 : bars[row].length - 1];
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const other = Math.min(Math.max(row + (event.key === "ArrowDown" ? 1 : -1), 0), bars.length - 1), now = place < 0 ? 2 * p.low : middle(p.rows[row].bars[place]);
      // The bar of that lane which is nearest in time.
      next = [other, p.rows[other].bars.reduce((best, bar, i, list) => (Math.abs(middle(bar) - now) < Math.abs(middle(list[best]) - now) ? i : best), 0)];
    }
    if (!next || !bars[next[0]].length) return;
    event.preventDefault();
    show(...next);
    at.scrollIntoView({ block: "nearest" });
  };
  return h("div", { class: "panel lanes", tabindex: 0, role: "group", "aria-label": `${p.name}. Arrow keys go through bars and lanes.`, onkeydown: keys }, h("h2", { text: p.name }), drawn);
}

// Say what a bar is, and light up the terms that count it.
function say(tip, words, keys, el) {
  const whole = el.closest("main"), counted = keys.filter((key) => whole.querySelector(`#terms [data-key=${key}]`));
  tip.textContent = `${words}. ${counted.length ? "" : keys.length ? "Hidden behind compute: no term of the sum counts it." : ""}`;
  light(whole, counted);
  if (counted.length) formula(whole, counted);
}

function light(whole, keys) {
  for (const button of whole.querySelectorAll("#terms [data-key]")) button.classList.toggle("lit", keys.includes(button.dataset.key));
}

// From a term to its bars: the others step back.
function pick(whole, key) {
  const places = whole.querySelector("#panels");
  places.classList.toggle("picking", Boolean(key));
  for (const bar of places.querySelectorAll(".bar-of")) bar.classList.toggle("lit", Boolean(key) && told.links[bar.link].includes(key));
  if (key) { light(whole, [key]); formula(whole, [key]); }
}

function waterfall(el, whole, ctx) {
  let from = 0;
  const list = ctx.answer?.waterfall || [];
  fill(el, h("h2", { text: "The term that counts it" }), h("p", { class: "muted small", text: "Point at a term, or Tab to it: its bars light up." }), h("ol", { class: "fall" }, list.map((t) => {
    const left = from;
    from += t.share;
    return h("li", {}, h("button", { type: "button", class: "term", "data-key": t.key, onpointerenter: () => pick(whole, t.key), onpointerleave: () => pick(whole, null), onfocus: () => pick(whole, t.key), onblur: () => pick(whole, null) },
      h("span", { class: "label", text: t.label }), h("span", { class: "track" }, h("span", { class: `bar g-${t.group}`, style: `left:${(100 * left).toFixed(3)}%;width:max(${(100 * t.share).toFixed(3)}%,2px)` })), h("span", { class: "num", text: k.seconds(t.seconds) }), h("span", { class: "num pc", text: k.percent(t.share) })));
  })));
  const largest = list.reduce((a, b) => (b.share > a.share ? b : a), list[0]);
  terms = largest ? [largest.key] : [];
  light(whole, terms);
  formula(whole, terms);
}

// The first of the terms in full, the others by name.
function formula(whole, keys) {
  const el = whole.querySelector("#formula");
  if (!el) return;
  terms = keys;
  const [first, ...others] = keys.map((key) => explained?.find((e) => e.key === key)).filter(Boolean);
  fill(el, h("h2", { text: first ? first.title : "Its formula" }), first ? worked(first) : h("p", { class: "muted", text: explained ? HOW : "Working it out \u2026" }),
    others.length ? h("p", { class: "muted small", text: `The same bar is counted in ${others.map((e) => `${e.title.toLowerCase()} (${e.result})`).join(", ")}.` }) : null);
}

// What each lane did, as a table.
function lanes() {
  const rows = told.panels[0].rows.flatMap((row) => { const kinds = {}; for (const [start, end, colour] of row.bars) { const found = (kinds[colour] ||= { lane: row.name, kind: told.legend.find((l) => l.key === colour)?.name || colour, bars: 0, seconds: 0 }); found.bars += 1; found.seconds += end - start; } return Object.values(kinds); });
  return h("details", { class: "small muted" }, h("summary", { text: "The same as a table" }), k.table(rows, [["Lane", (r) => r.lane], ["What", (r) => r.kind], ["Bars", (r) => k.count(r.bars), "num"], ["Time", (r) => k.seconds(r.seconds), "num"]], { caption: "Time of each lane by kind" }));
}

function text(x, y, words, anchor, colour, soft) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", "text");
  for (const [key, value] of Object.entries({ x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, "font-size": 11.5, fill: colour === null || colour === undefined ? (soft ? "var(--soft)" : "var(--ink)") : ["wait", "tensor", "other", "data"].includes(colour) ? "#111" : "var(--card)", "pointer-events": "none" })) el.setAttribute(key, value);
  el.textContent = words;
  return el;
}

function memory(el) {
  if (told.memory.length < 2) return null;
  const p = told.panels[0], wide = width(el), left = wide < 500 ? 66 : 128, right = 12, inner = wide - left - right, tall = 96;
  const most = Math.max(told.capacity, ...told.memory.map((m) => m[1])) * 1.05, x = (t) => left + (t - p.low) / (p.high - p.low) * inner, y = (v) => tall - v / most * (tall - 14);
  let path = `M${left},${tall}`, last = tall;
  for (const [t, v] of told.memory) { path += `L${x(t).toFixed(1)},${last.toFixed(1)}L${x(t).toFixed(1)},${y(v).toFixed(1)}`; last = y(v); }
  path += `L${left + inner},${last}L${left + inner},${tall}Z`;
  const peak = Math.max(...told.memory.map((m) => m[1]));
  return h("div", { class: "panel" }, h("h2", { text: told.stages > 1 ? `Memory meanwhile, stage ${told.pace}` : "Memory meanwhile" }), h("svg", { viewBox: `0 0 ${wide} ${tall + 4}`, width: wide, height: tall + 4, role: "img", "aria-label": `Memory over the step: peak ${k.gib(peak)} of ${k.gib(told.capacity)}` },
    h("path", { d: path, fill: "var(--accent-soft)", stroke: "var(--accent)", "stroke-width": 1 }), h("line", { x1: left, x2: left + inner, y1: y(told.capacity), y2: y(told.capacity), stroke: "var(--bad)", "stroke-dasharray": "5 4" }), text(left - 8, y(told.capacity) + 4, wide < 500 ? "limit" : `of ${k.gib(told.capacity)}`, "end"), text(left - 8, Math.min(y(peak) + 18, tall - 1), wide < 500 ? `${(peak / 2 ** 30).toFixed(0)} GiB` : `peak ${k.gib(peak)}`, "end")));
}

function paint(el, ctx) {
  const place = el.querySelector("#panels");
  if (!place) return;
  const same = Math.abs(told.difference) < 0.0005;
  fill(el.querySelector("#says"), h("b", { text: told.strategy }), `, played event by event: `, h("b", { text: k.seconds(told.step_seconds) }), same ? ", the same as the estimate to a thousandth." : `, ${k.signed(told.difference, 2)} against the estimate: two ways to one number.`, told.stages > 1 ? ` ${told.stages_shown < told.stages ? `${told.stages_shown} of ${told.stages} stages are shown.` : `All ${told.stages} stages are shown.`}` : "");
  const tip = h("p", { class: "tip muted small", text: HOW, role: "status" });
  const used = new Set(told.panels.flatMap((p) => p.rows.flatMap((r) => r.bars.map((b) => b[2]))));
  fill(place, h("p", { class: "legend" }, told.legend.filter((l) => used.has(l.key)).map((l) => h("span", {}, h("i", { class: "swatch", style: `background:var(--${TINT[l.key]})` }), l.name))), tip, told.panels.map((p) => panel(p, place, tip)), memory(place), lanes(),
    h("div", { class: "takeout" }, h("button", { type: "button", text: "Open in Perfetto", onclick: perfetto }), h("button", { type: "button", text: "Save trace", onclick: async () => { const b = await trace(); if (b) k.save("step.json.gz", b); } }), h("button", { type: "button", text: "SVG", "aria-label": "Save the timeline as SVG", onclick: () => picture(place) }), h("button", { type: "button", text: "JSON", "aria-label": "Save the timeline as JSON", onclick: () => k.save("timeline.json", JSON.stringify(told, null, 2), "application/json") })));
  waterfall(el.querySelector("#terms"), el, ctx);
  fill(el.querySelector("#facts"), h("h2", { text: "Played against closed forms" }), k.table(told.summary, [["Quantity", (r) => r[0].trim()], ["By events", (r) => r[1], "num"], ["How the estimate sees it", (r) => r[2]]], { caption: "Played against closed forms" }), told.notes.map((text_) => h("p", { class: "muted small", text: text_ })));
}

export const theme = () => {};

function picture(place) {
  const drawn = [...place.querySelectorAll("svg")], style = getComputedStyle(document.documentElement);
  let y = 0;
  const body = drawn.map((svg) => { const inner = `<g transform="translate(0 ${y})">${svg.innerHTML}</g>`; y += svg.height.baseVal.value + 20; return inner; }).join("").replace(/var\(--([a-z-]+)\)/g, (_, name) => style.getPropertyValue(`--${name}`).trim());
  k.save("timeline.svg", `<svg xmlns="http://www.w3.org/2000/svg" width="${drawn[0].width.baseVal.value}" height="${y}" font-family="sans-serif"><rect width="100%" height="100%" fill="${style.getPropertyValue("--card")}"/>${body}</svg>`, "image/svg+xml");
}

async function trace() {
  const response = await fetch("/api/trace", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(question()) });
  if (response.ok) return response.blob();
  k.toast((await response.json()).error);
  return null;
}

// Perfetto's page runs in this browser and is handed the file; nothing is uploaded.
async function perfetto() {
  const origin = "https://ui.perfetto.dev", other = window.open(origin), file = await trace();
  if (!other || !file) return;
  const buffer = await file.arrayBuffer();
  const ping = setInterval(() => other.postMessage("PING", origin), 200);
  const hear = (event) => {
    if (event.origin !== origin || event.data !== "PONG") return;
    clearInterval(ping);
    removeEventListener("message", hear);
    other.postMessage({ perfetto: { buffer, title: `${told.strategy}, predicted`, fileName: "step.json.gz" } }, origin);
  };
  addEventListener("message", hear);
  setTimeout(() => clearInterval(ping), 20000);
}
