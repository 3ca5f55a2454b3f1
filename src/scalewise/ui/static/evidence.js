// Evidence: predicted against measured, for every run we hold, misses included.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { state, write } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;
const SPLITS = ["data only", "tensor", "context", "pipeline"];
let all = null, own = [];

export function show(el, ctx) {
  fill(el, h("h1", { class: "question", text: "How far can this be trusted?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("section", { class: "card", id: "near" }), h("div", { class: "controls", id: "knobs", style: "margin-top:18px" }),
    h("div", { class: "split" }, h("section", { class: "card" }, c.figure("scatter"), h("p", { class: "muted small", id: "caption" })), h("section", { class: "card", id: "stats" }, h("p", { class: "muted", role: "status", text: "Predicting every measured run \u2026" }))), h("section", { class: "card", id: "own", hidden: true }), h("section", { class: "card", id: "worst" }));
  load(el, ctx);
}

async function load(el, ctx) {
  try {
    if (!all) {
      const found = await ask("evidence", null, { kind: "evidence", progress: (p) => { const place = el.querySelector("#stats p"); if (place && p) place.textContent = `Predicting every measured run: ${k.percent(p, 0)}`; } });
      all = found.rows;
      own = found.own;
    }
    knobs(el.querySelector("#knobs"), el);
    paint(el);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#stats"), refusal(error));
  }
}

export function update(el, ctx) { near(el, ctx); }
export function nearest(ctx) { near(document.getElementById("view"), ctx); }
export const theme = (el) => all && paint(el);

function near(el, ctx) {
  const place = el.querySelector("#near"), told = ctx.near;
  if (!place) return;
  if (!told) { fill(place, h("p", { class: "muted", text: "Looking for the nearest measured runs \u2026" })); return; }
  const words = { inside: "inside the evidence", edge: "at the edge of the evidence", outside: "outside the evidence" }[told.grade];
  fill(el.querySelector("#says"), "This plan lies ", h("b", { text: words }), `: ${told.words}. Distance counts doublings of model size, accelerators, sequence and degrees, with additions for another chip, precision or software; inside is up to 2, the edge up to 4.`);
  fill(place, h("h2", { text: "The nearest measured runs" }), k.table(told.runs, [
    ["Run", (r) => [h("b", { text: r.model }), ` on ${k.count(r.accelerators)} ${r.accelerator}`], "name"], ["Strategy", (r) => h("code", { text: r.strategy || "" })], ["Framework", (r) => r.framework || ""], ["Distance", (r) => r.distance.toFixed(1), "num"], ["Measured, tokens/s", (r) => k.grouped(r.measured), "num"], ["Predicted", (r) => k.grouped(r.predicted), "num"], ["Error", (r) => k.signed(r.error), "num"], ["Source", (r) => h("span", { class: "muted small" }, k.linked(r.reference || r.source)), "wraps"],
  ], { caption: "The nearest measured runs" }));
}

function chosen(list = all) {
  const v = state.v, [low, high] = { small: [0, 16], middle: [17, 256], large: [257, 1e9] }[v.each] || [0, 1e9], [from, to] = { "3": [0, 3e9], "20": [3e9, 20e9], "inf": [20e9, 1e15] }[v.model_size] || [0, 1e15];
  return list.filter((r) => (!v.source || r.source === v.source) && (!v.split || r.split === v.split) && (!v.chip || r.accelerator === v.chip) && (!v.framework || r.framework === v.framework) && (!v.each || (r.accelerators >= low && r.accelerators <= high)) && (!v.model_size || ((r.parameters || 0) > from && (r.parameters || 0) <= to)));
}

function knobs(el, whole) {
  const pick = (label, key, options) => h("label", { class: "field" }, label, h("select", { onchange: (e) => { state.v[key] = e.target.value; write(); paint(whole); } }, h("option", { value: "", text: "all" }), options.map(([value, text]) => h("option", { value, text, selected: state.v[key] === value }))));
  const counted = (key) => Object.entries(all.reduce((found, r) => { if (r[key]) found[r[key]] = (found[r[key]] || 0) + 1; return found; }, {})).sort((a, b) => b[1] - a[1]).map(([value, n]) => [value, `${value} (${n})`]);
  fill(el, pick("Accelerator", "chip", counted("accelerator")), pick("Framework", "framework", counted("framework")), pick("Source", "source", counted("source")), pick("Strategy", "split", SPLITS.map((s) => [s, `${s === "data only" ? s : `with ${s}`} (${all.filter((r) => r.split === s).length})`])), pick("Size of the run", "each", [["small", "up to 16"], ["middle", "17 to 256"], ["large", "more than 256"]]), pick("Model", "model_size", [["3", "up to 3 B"], ["20", "3 to 20 B"], ["inf", "more than 20 B"]]));
}

const quantile = (sorted, q) => { if (!sorted.length) return null; const at = q * (sorted.length - 1), low = Math.floor(at); return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low); };

// Errors of some runs: median, 90 %, bias with its sign, share inside the range.
function errorsOf(list) {
  const sizes = list.map((r) => Math.abs(r.error)).sort((a, b) => a - b), signs = list.map((r) => r.error).sort((a, b) => a - b), inside = list.filter((r) => r.measured >= r.low && r.measured <= r.high).length;
  return { median: k.percent(quantile(sizes, 0.5)), most: k.percent(quantile(sizes, 0.9)), bias: k.signed(quantile(signs, 0.5)), inside: list.length ? k.percent(inside / list.length, 0) : "\u2013" };
}

const predicted = (r) => r.measured && r.predicted;
const tipOf = (r) => `<b>${r.model}</b>, ${k.count(r.accelerators)} ${r.accelerator}, ${r.framework || ""}<br>${r.strategy}<br>measured ${k.grouped(r.measured)}, predicted ${k.grouped(r.predicted)}: ${k.signed(r.error)}`;

function paint(el) {
  if (!el.querySelector("#scatter")) return;
  const rows = chosen(), judged = rows.filter((r) => r.judged && predicted(r)), held = rows.filter((r) => r.held_out && predicted(r)), mine = chosen(own).filter(predicted);
  const left = rows.length - judged.length - held.length, fit = errorsOf(judged), out = errorsOf(held);
  const reasons = Object.entries(rows.filter((r) => !r.judged && !r.held_out).reduce((found, r) => { const why = r.reason ? r.reason.split(":")[0].slice(0, 70) : r.status === "unmeasured" ? "no throughput was published" : "not graded as complete and consistent"; found[why] = (found[why] || 0) + 1; return found; }, {})).sort((a, b) => b[1] - a[1]);
  const facts = [["", "in a fit", "in none"], ["predicted and judged", k.count(judged.length), k.count(held.length)], ["median error", fit.median, out.median], ["90 % have less than", fit.most, out.most], ["bias (median, signed)", fit.bias, out.bias], ["inside their 80 % range", fit.inside, out.inside]];
  fill(el.querySelector("#stats"), h("h2", { text: "Errors of this selection" }), judged.length + held.length ? null : h("p", { class: "muted", text: "No run has all of these properties. Choose fewer." }),
    h("table", { class: "errors" }, h("caption", { class: "unseen", text: "Errors of this selection" }), h("thead", {}, h("tr", {}, facts[0].map((name, i) => h("th", { scope: "col", class: i ? "num" : null }, name || h("span", { class: "unseen", text: "Quantity" }))))), h("tbody", {}, facts.slice(1).map(([name, a, b]) => h("tr", {}, h("th", { scope: "row", text: name }), h("td", { class: "num", text: a }), h("td", { class: "num", text: b }))))),
    left > 0 && h("details", { class: "small" }, h("summary", { text: `${k.count(left)} runs are not judged` }), h("ul", { class: "plain small muted" }, reasons.slice(0, 12).map(([why, n]) => h("li", {}, h("b", { text: n }), ` ${why}`)))),
    h("p", { class: "muted small", text: "Runs in a fit were calibrated on: their errors are in sample. `scalewise validate --leave-one-source-out` predicts every source by a fit that has not seen it. Runs in none were left aside by every fit, because what was published of them is incomplete, second hand or at odds with itself. Runs that were predicted badly stay in." }),
    judged.some((r) => r.source === "nanotron") && h("p", { class: "muted small", text: "The nanotron sweep has runs 2 to 40 times slower than their neighbours, which no published column explains: they make up the tail." }));
  const sources = Object.entries(judged.reduce((found, r) => { (found[r.source] ||= []).push(r); return found; }, {})).sort((a, b) => b[1].length - a[1].length);
  const values = [...judged, ...held, ...mine].flatMap((r) => [r.measured, r.predicted]), low = Math.min(...values, 1e9) * 0.8, high = Math.max(...values, 1) * 1.25;
  const band = (share, alpha) => ({ x: [low, high, high, low], y: [low * (1 + share), high * (1 + share), high * (1 - share), low * (1 - share)], fill: "toself", fillcolor: c.translucent("c-other", alpha), line: { width: 0 }, mode: "lines", hoverinfo: "skip", name: `within ${100 * share} %` });
  // On a phone only the largest sources are named: the points tell the others.
  const named = innerWidth > 640 ? 99 : 3;
  const some = (list, name, marker, showlegend = true) => (list.length ? [{ showlegend, x: list.map((r) => r.measured), y: list.map((r) => r.predicted), mode: "markers", name: `${name} (${list.length})`, marker, text: list.map(tipOf), hovertemplate: "%{text}<extra></extra>" }] : []);
  const traces = values.length ? [band(0.25, 0.1), band(0.1, 0.16), { x: [low, high], y: [low, high], mode: "lines", line: { color: c.colour("soft"), width: 1 }, name: "equal", hoverinfo: "skip", showlegend: false },
    ...sources.flatMap(([source, list], i) => some(list, source, { size: 6, opacity: 0.75, color: c.colour(c.SERIES[i % 7]), symbol: c.SYMBOLS[(i + Math.floor(i / 7)) % 7] }, i < named)),
    ...some(held, "in no fit", { size: 10, color: c.colour("ink"), symbol: "diamond-open", line: { width: 1.6 } }), ...some(mine, "measured here", { size: 14, color: c.colour("c-bubble"), line: { color: c.colour("ink"), width: 1.2 }, symbol: "star" })] : [];
  const told = (words, list, e) => (list.length ? `${words}: ${k.count(list.length)} run${list.length > 1 ? "s" : ""}, median error ${e.median}, 90 % below ${e.most}, bias ${e.bias}. ` : "");
  fill(el.querySelector("#caption"), told("Filled, used in a fit", judged, fit), told("Open diamonds, in no fit", held, out), told("Stars, measured here", mine, errorsOf(mine)));
  measuredHere(el.querySelector("#own"));
  const log = (title) => c.axis(title, { type: "log", range: [Math.log10(low), Math.log10(high)], dtick: 1, tickformat: "~s" });
  c.draw(el.querySelector("#scatter"), { traces, rows, name: "evidence", label: "Predicted against measured tokens per second and accelerator", height: 560, columns: [["Run", (r) => r.id], ["Measured", (r) => k.grouped(r.measured), "num"], ["Predicted", (r) => k.grouped(r.predicted), "num"], ["Error", (r) => k.signed(r.error), "num"]], layout: { xaxis: log("measured, tokens/s per accelerator"), yaxis: log("predicted, tokens/s per accelerator"), legend: { font: { size: 11 }, orientation: "h", y: -0.14, yanchor: "top", x: 0 } } });
  const worst = judged.toSorted((a, b) => Math.abs(b.error) - Math.abs(a.error)).slice(0, 8);
  fill(el.querySelector("#worst"), h("h2", { text: "The worst misses" }), k.table(worst, [["Run", (r) => r.id], ["Strategy", (r) => h("code", { text: r.strategy || "" })], ["Measured", (r) => k.grouped(r.measured), "num"], ["Predicted", (r) => k.grouped(r.predicted), "num"], ["Error", (r) => k.signed(r.error), "num"], ["Source", (r) => h("span", { class: "muted small", text: r.source })]], { caption: "The worst misses" }));
}

// The user's own runs: a table of their own, predicted or not.
function measuredHere(el) {
  const rows = chosen(own);
  el.hidden = !own.length;
  fill(el, h("h2", { text: `Measured here: ${k.count(rows.length)}${rows.length < own.length ? ` of ${k.count(own.length)}` : ""} runs` }), h("p", { class: "muted small", text: "From --records. They are in no number of the published runs." }), k.table(rows, [["Run", (r) => [h("b", { text: r.model || r.id }), ` on ${k.count(r.accelerators)} ${r.accelerator}`], "name"], ["Strategy", (r) => h("code", { text: r.strategy || "" })], ["Measured, tokens/s", (r) => k.grouped(r.measured), "num"], ["Predicted", (r) => k.grouped(r.predicted), "num"], ["Error", (r) => k.signed(r.error), "num"], ["Why not predicted", (r) => h("span", { class: "muted small", text: r.predicted ? "" : r.reason || "" }), "wraps"]], { caption: "Runs measured here" }));
}
