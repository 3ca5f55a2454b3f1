// Timeline: one step, stream by stream, and the file for Perfetto.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { question } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;
const TINT = { forward: "c-compute", backward: "c-comm", weights: "c-opt", data: "c-bubble", other: "c-hidden", tensor: "c-recompute", pipeline: "ink", wait: "c-other" };
const SHORT = { "compute": "compute", "tensor parallel": "tensor", "context parallel": "context", "data parallel": "data", "pipeline send/recv": "sends", "host launches": "host" };
let told = null, asked = "";

export function show(el) {
  told = null;
  asked = "";
  fill(el, h("h1", { class: "question", text: "What happens within one step?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "Playing the step event by event \u2026" }), h("section", { class: "card", id: "panels" }), h("section", { class: "card", id: "facts" }));
}

export async function update(el, ctx) {
  const body = question(), key = JSON.stringify(body);
  if (key === asked && told) { paint(el, ctx); return; }
  asked = key;
  try {
    told = await ask("timeline", body, { kind: "timeline" });
    paint(el, ctx);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#says"), refusal(error));
  }
}

const width = (el) => Math.max(Math.min(el.clientWidth - 4, 1500), 320);

function ticks(low, high, most) {
  const span = high - low;
  let step = 10 ** Math.floor(Math.log10(span / most));
  step *= [1, 2, 5, 10].find((f) => span / (step * f) <= most) || 10;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

function panel(p, el, tip) {
  const wide = width(el), left = wide < 500 ? 66 : 128, right = 12, inner = wide - left - right;
  const row = p.rows.length > 12 ? Math.max(12, Math.floor(340 / p.rows.length)) : 26, gap = row > 14 ? 6 : 2, top = 6;
  const tall = top + p.rows.length * (row + gap), x = (t) => left + (t - p.low) / (p.high - p.low) * inner;
  const parts = p.rows.flatMap((each, i) => {
    const y = top + i * (row + gap);
    return [h("rect", { x: left, y, width: inner, height: row, fill: "var(--hair)" }), text(left - 8, y + row / 2 + 4, wide < 500 ? SHORT[each.name] || each.name : each.name, "end"),
      ...each.bars.map(([start, end, colour, words, mark]) => {
        const w = Math.max((end - start) / (p.high - p.low) * inner, 0.4);
        const bar = h("rect", { x: x(start).toFixed(2), y, width: w.toFixed(2), height: row, fill: `var(--${TINT[colour] || "c-other"})`, stroke: w > 4 ? "var(--card)" : null, "stroke-width": w > 4 ? 0.6 : null });
        bar.addEventListener("pointerenter", () => { tip.textContent = `${words}: ${k.seconds(end - start)}, from ${k.seconds(start)} to ${k.seconds(end)}`; });
        return mark && (told.stages > 1 || p.low > 0) && row >= 16 && w > 7 * mark.length + 6 ? [bar, text(x(start) + w / 2, y + row / 2 + 4, mark, "middle", colour)] : bar;
      })];
  }).flat();
  const axis = ticks(p.low, p.high, wide < 500 ? 4 : 9).flatMap((t) => [h("line", { x1: x(t), x2: x(t), y1: top, y2: tall, stroke: "var(--soft)", "stroke-width": 0.5, "stroke-dasharray": "2 4", "pointer-events": "none" }), text(x(t), tall + 15, k.seconds(t), "middle", null, true)]);
  return h("div", { class: "panel" }, h("h2", { text: p.name }), h("svg", { viewBox: `0 0 ${wide} ${tall + 22}`, width: wide, height: tall + 22, role: "img", "aria-label": `${p.name}: ${p.rows.map((r) => `${r.name}, ${r.bars.length} bars`).join("; ")}` }, parts, axis));
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
  return h("div", { class: "panel" }, h("h2", { text: "Memory meanwhile" }), h("svg", { viewBox: `0 0 ${wide} ${tall + 4}`, width: wide, height: tall + 4, role: "img", "aria-label": `Memory over the step: peak ${k.gib(peak)} of ${k.gib(told.capacity)}` },
    h("path", { d: path, fill: "var(--accent-soft)", stroke: "var(--accent)", "stroke-width": 1 }), h("line", { x1: left, x2: left + inner, y1: y(told.capacity), y2: y(told.capacity), stroke: "var(--bad)", "stroke-dasharray": "5 4" }), text(left - 8, y(told.capacity) + 4, wide < 500 ? "limit" : `of ${k.gib(told.capacity)}`, "end"), text(left - 8, y(peak) + 18, wide < 500 ? `${(peak / 2 ** 30).toFixed(0)} GiB` : `peak ${k.gib(peak)}`, "end")));
}

function paint(el) {
  const place = el.querySelector("#panels");
  if (!place) return;
  const same = Math.abs(told.difference) < 0.0005;
  fill(el.querySelector("#says"), h("b", { text: told.strategy }), `, played event by event: `, h("b", { text: k.seconds(told.step_seconds) }), same ? ", the same as the estimate to a thousandth." : `, ${k.signed(told.difference, 2)} against the estimate: two ways to one number.`, told.stages > 1 ? ` ${told.stages} stages.` : "");
  const tip = h("p", { class: "tip muted small", text: "Point at a bar to read it.", role: "status" });
  const used = new Set(told.panels.flatMap((p) => p.rows.flatMap((r) => r.bars.map((b) => b[2]))));
  fill(place, h("p", { class: "legend" }, told.legend.filter((l) => used.has(l.key)).map((l) => h("span", {}, h("i", { class: "swatch", style: `background:var(--${TINT[l.key]})` }), l.name))), told.panels.map((p) => panel(p, place, tip)), memory(place), tip,
    h("div", { class: "takeout" }, h("button", { type: "button", text: "Open in Perfetto", onclick: perfetto }), h("button", { type: "button", text: "Save trace", onclick: async () => { const b = await trace(); if (b) k.save("step.json.gz", b); } }), h("button", { type: "button", text: "SVG", "aria-label": "Save the timeline as SVG", onclick: () => picture(place) }), h("button", { type: "button", text: "JSON", "aria-label": "Save the timeline as JSON", onclick: () => k.save("timeline.json", JSON.stringify(told, null, 2), "application/json") })));
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
