// Scale: what does the next accelerator buy?

import { ask, giveUp } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { question, state, write } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;

const METRICS = {
  tokens_per_second: ["Tokens/s", "tokens per second, all accelerators", (p) => p.tokens_per_second, k.short, (p, f) => p.tokens_per_second * f],
  rate: ["Per accelerator", "tokens per second and accelerator", (p) => p.tokens_per_second_per_accelerator, k.grouped, (p, f) => p.tokens_per_second_per_accelerator * f],
  mfu: ["MFU", "model FLOP/s over peak", (p) => p.mfu, k.percent, (p, f) => p.mfu * f],
  days: ["Days", "days for the whole run", (p) => p.days, k.days, (p, f) => p.days / f],
  usd: ["Rent", "dollars for the whole run", (p) => p.usd, k.dollars, (p, f) => p.usd / f],
  joules: ["Energy", "MWh for the whole run", (p) => p.joules && p.joules / 3.6e9, (v) => k.energy(v * 3.6e9), (p, f) => p.joules && p.joules / 3.6e9 / f],
  returned: ["Next accelerator", "return of each added accelerator", (p) => p.returned, k.percent, null],
};

const TIE = 0.015;

let told = null, asked = "", measured = { runs: [], own: [] }, timer;

export function show(el) {
  told = null;
  asked = "";
  fill(el, h("h1", { class: "question", text: "What does the next accelerator buy?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("div", { class: "controls", id: "knobs" }), h("section", { class: "card" }, c.figure("curve"), h("p", { class: "muted small", id: "bias" })), h("section", { class: "card sayings flow", id: "sayings", "aria-label": "What the curves say" }),
    h("section", { class: "card", id: "points" }));
}

function sizes() {
  if (state.v.sizes) return state.v.sizes;
  const n = k.read(state.q.n) || 256, low = Math.max(Math.min(n, 2 ** Math.floor(Math.log2(n) - 5)), 8);
  const first = n <= 2048 ? 8 : low;
  return `${first}..${Math.max(first * 256, 8)}`;
}

function request(every) {
  const { kind, curves, also, knee } = state.v;
  const list = (text) => text.split(",").map((t) => t.trim()).filter(Boolean);
  const { strategy, ...rest } = question();
  return { question: rest, sizes: sizes(), kind, templates: list(curves), also: list(also), knee: Number(knee) || 0.5, every };
}

export async function update(el, ctx) {
  knobs(el.querySelector("#knobs"), el, ctx);
  const body = request(false), key = JSON.stringify(body);
  if (key === asked && told) { paint(el, ctx); return; }
  asked = key;
  clearTimeout(timer);
  giveUp("every");
  try {
    told = await ask("scale", body, { kind: "scale" });
    enrich(told);
    paint(el, ctx);
    overlay(el, ctx);
    timer = setTimeout(() => refine(el, ctx), 900);
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(el.querySelector("#says"), refusal(error));
  }
}

export const theme = (el, ctx) => told && paint(el, ctx);

// The same curve with every strategy there is, in the background.
async function refine(el, ctx) {
  const body = request(true), mine = asked;
  const status = el.querySelector("#every");
  try {
    const all = await ask("scale", body, { kind: "every", progress: (p) => { const bar = el.querySelector("#every"); if (bar) bar.textContent = `Checking against every strategy: ${k.percent(p, 0)}`; } });
    if (mine !== asked) return;
    const before = told;
    enrich(all);
    all.checked = all.curves.flatMap((curve) => curve.points).reduce((sum, p) => sum + (p.examined || 0), 0);
    all.gain = Math.max(0, ...all.curves.flatMap((curve, i) => curve.points.map((p) => { const old = before.curves[i]?.points.find((o) => o.accelerators === p.accelerators); return old ? p.tokens_per_second / old.tokens_per_second - 1 : 0; })));
    // Ties are not worth a more complicated plan: the usual strategies stay.
    if (all.gain > TIE) told = all; else Object.assign(told, { every: true, checked: all.checked, gain: all.gain });
    paint(el, ctx);
  } catch { if (status) status.textContent = ""; }
}

async function overlay(el, ctx) {
  try {
    measured = await ask("overlay", question(), { kind: "overlay" });
    if (told) paint(el, ctx);
  } catch { measured = { runs: [], own: [] }; }
}

function enrich(answer) {
  for (const curve of answer.curves) for (const p of curve.points) {
    p.usd = p.usd_per_million_tokens && answer.tokens ? p.usd_per_million_tokens * answer.tokens / 1e6 : null;
    p.joules = p.tokens_per_joule && answer.tokens ? answer.tokens / p.tokens_per_joule : null;
  }
}

function set(fields, el, ctx) {
  Object.assign(state.v, fields);
  write();
  update(el, ctx);
}

function knobs(el, whole, ctx) {
  if (el.contains(document.activeElement) && el.childElementCount) return;
  const v = state.v, field = (label, key, value, more = {}) => h("label", { class: "field" }, label, h("input", { type: "text", value, size: 9, "data-field": key, onchange: (e) => set({ [key]: e.target.value.trim() }, whole, ctx), ...more }));
  const more = [
    field("Sizes", "sizes", sizes(), { title: "8..2048 doubles; or 8,64,512" }), field("Curves", "curves", v.curves, { size: 14, title: "best, fsdp, hsdp64, ddp, zero1, tp8-pp8-zero1, best-tp2; joined by commas" }),
    field("Compare with", "also", v.also, { size: 12, placeholder: "dgx-a100", title: "Other clusters, joined by commas" }),
    h("label", { class: "field" }, "Stop below", h("input", { type: "range", min: 5, max: 95, step: 5, value: 100 * v.knee, "aria-label": "Knee: share of the first return that is still enough", oninput: (e) => { e.target.nextSibling.textContent = `${e.target.value} %`; }, onchange: (e) => set({ knee: String(e.target.value / 100) }, whole, ctx) }), h("span", { text: `${Math.round(100 * v.knee)} %` })),
    field("Deadline", "deadline", v.deadline, { size: 5, placeholder: "days", inputmode: "decimal" }), field("Budget", "budget", v.budget, { size: 6, placeholder: "$" }),
  ];
  fill(el, k.segmented("Scaling", [["strong", "Strong: same batch", "The batch stays: what a deadline asks"], ["weak", "Weak: batch grows", "The batch grows with the cluster: what a larger run asks"]], v.kind, (kind) => set({ kind }, whole, ctx)),
    k.segmented("Metric", Object.entries(METRICS).map(([key, [label]]) => [key, label]), v.metric, (metric) => set({ metric }, whole, ctx)),
    innerWidth > 640 ? more : h("details", {}, h("summary", { text: "Sizes, curves, knee, deadline, budget" }), h("div", { class: "controls", style: "margin:10px 0 0" }, more)));
}

function paint(el, ctx) {
  if (!told || !el.querySelector("#curve")) return;
  const metric = METRICS[state.v.metric] || METRICS.rate;
  says(el.querySelector("#says"));
  sayings(el.querySelector("#sayings"));
  points(el.querySelector("#points"));
  bias(el.querySelector("#bias"));
  k.mark("answer");
  chart(el.querySelector("#curve"), metric, el, ctx);
}

const name = (curve) => new Set(told.curves.map((x) => x.cluster)).size > 1 ? `${curve.cluster}, ${curve.label}` : curve.label;

function says(el) {
  const first = told.curves[0], runs = first.points.filter((p) => !p.infeasible), n = Number(told.question.gpus);
  if (runs.length < 2) { fill(el, told.words.missing[0] || "Fewer than two sizes can run."); return; }
  const at = Math.max(runs.findIndex((p) => p.accelerators > n), 1), a = runs[Math.min(at, runs.length - 1) - 1], b = runs[Math.min(at, runs.length - 1)];
  const batch = told.kind === "strong" ? `Every step trains the same ${k.count(told.batch)} sequences` : `Every accelerator trains ${k.significant(told.batch)} sequences per step`;
  const money = a.usd && b.usd ? ` for ${k.significant(b.usd / a.usd, 3)} \u00d7 the money` : "";
  const knee = told.knees.find((x) => x.label === first.label && x.cluster === first.cluster);
  fill(el, `${batch}. `, h("b", { text: `${k.count(a.accelerators)} \u2192 ${k.count(b.accelerators)} buys ${k.significant(b.tokens_per_second / a.tokens_per_second, 3)} \u00d7 the speed${money}.` }),
    knee ? ` Beyond ${k.count(knee.previous)}, an added accelerator brings ${k.percent(knee.returned, 0)} of what each of the first brings: the knee.` : ` Up to ${k.count(runs.at(-1).accelerators)} there is no knee.`, " ", window_(first));
}

const limits = () => ({ deadline: k.read(state.v.deadline) || null, budget: k.read(String(state.v.budget).replace("$", "")) || null });

// Which sizes meet deadline and budget? { fine, why }: sizes, or the reason why there is none.
export function meets(points, { deadline, budget }) {
  const runs = points.filter((p) => !p.infeasible), soon = runs.filter((p) => !deadline || p.days <= deadline), cheap = runs.filter((p) => !budget || (p.usd !== null && p.usd <= budget));
  const fine = soon.filter((p) => cheap.includes(p)).map((p) => p.accelerators);
  if (fine.length || !runs.length) return { fine };
  const least = (key) => runs.reduce((x, p) => (p[key] !== null && p[key] < x[key] ? p : x)), fastest = least("days"), cheapest = least("usd"), reasons = [];
  if (!soon.length) reasons.push(`the fastest, ${k.count(fastest.accelerators)}, takes ${k.days(fastest.days)}`);
  if (!cheap.length) reasons.push(cheapest.usd === null ? "no price is known" : `the cheapest, ${k.count(cheapest.accelerators)}, costs ${k.dollars(cheapest.usd)}`);
  if (soon.length && cheap.length) reasons.push(`the deadline takes ${k.count(soon[0].accelerators)} or more, for ${k.dollars(soon[0].usd)}; the budget allows up to ${k.count(cheap.at(-1).accelerators)}, for ${k.days(cheap.at(-1).days)}`);
  return { fine, why: reasons.join("; ") };
}

function window_(curve) {
  const { deadline, budget } = limits();
  if (!deadline && !budget) return null;
  const { fine, why } = meets(curve.points, { deadline, budget }), both = [deadline && `${k.days(deadline)}`, budget && k.dollars(budget)].filter(Boolean).join(" and ");
  return h("b", { id: "window", text: fine.length ? `${k.count(fine[0])}${fine.length > 1 ? ` to ${k.count(fine.at(-1))}` : ""} accelerators stay within ${both}.` : `No size stays within ${both}: ${why}.` });
}

// How far off, and to which side: beside the curve, not in a drawer.
function bias(el) {
  const b = measured.bias, own = measured.own || [], parts = [];
  if (b?.count) parts.push(`On the ${k.count(b.count)} published runs of this size and chip, predictions are ${k.signed(b.median)} off (median; plus is too fast), 80 % of them between ${k.signed(b.low, 0)} and ${k.signed(b.high, 0)}. `);
  else if (measured.bias) parts.push("No published run has this size, chip and precision. ");
  if (measured.own_count) parts.push(`${own.length} of ${measured.own_count} runs measured here ${own.length === 1 ? "belongs" : "belong"} on this curve. `);
  fill(el, parts, "Failures, restarts and other jobs' traffic are not modelled: real curves lie lower, the more so at scale.");
}

function sayings(el) {
  const parts = [["Where it stops paying", told.words.knees], ["What eats the gain", told.words.causes], ["Which strategy wins where", told.words.best], ["Overtaking", told.words.crossovers], ["Sizes without a point", told.words.missing], ["Keep in mind", told.warnings]];
  const status = told.every ? `Checked against all ${k.count(told.checked)} strategies: ${told.gain > TIE ? `up to ${k.percent(told.gain)} was gained.` : "none is better by more than a tie."}` : "";
  fill(el, h("p", { class: "muted small", id: "every", role: "status", text: status }), parts.filter(([, list]) => list.length).map(([title, list]) => h("div", {}, h("h2", { text: title }), h("ul", {}, list.map((text) => h("li", {}, spread(text)))))));
}

// "best: 8 to 16 this; 16 to 32 that" reads better as a list.
function spread(text) {
  const at = text.indexOf(": "), parts = text.slice(at + 2).split("; ");
  return at < 0 || parts.length < 2 ? text : [h("b", { text: text.slice(0, at) }), h("ul", { class: "steps" }, parts.map((part) => h("li", { text: part })))];
}

function points(el) {
  const rows = told.curves.flatMap((curve) => curve.points.map((p) => ({ curve: name(curve), ...p })));
  const many = told.curves.length > 1;
  fill(el, h("h2", { text: "Every size" }), k.table(rows, [
    ...(many ? [["Curve", (r) => r.curve, "nowrap"]] : []), ["Accelerators", (r) => k.count(r.accelerators), "num"], ["Strategy", (r) => h("code", { text: r.strategy })], ["Step", (r) => k.seconds(r.step_seconds), "num"],
    ["Tokens/s (80 %)", (r) => [k.grouped(r.tokens_per_second), h("br"), h("span", { class: "muted small", text: k.range(k.short, r.low * r.accelerators, r.high * r.accelerators) })], "num"], ["MFU", (r) => k.percent(r.mfu), "num"], ["Next one", (r) => k.percent(r.returned, 0), "num"],
    ["Days", (r) => k.days(r.days), "num"], ["Rent", (r) => k.dollars(r.usd), "num"], ["Energy", (r) => k.energy(r.joules), "num"], ["What grew", (r) => r.infeasible ? h("span", { class: "bad", text: r.infeasible.slice(0, 60) }) : r.cause ? `${r.cause.name} (${k.percent(r.cause.share, 0)})` : "", "words"],
  ], { caption: "Every size", selected: (r) => r.accelerators === Number(told.question.gpus) }));
}

function chart(el, [label, title, value, format, bound], whole, ctx) {
  const traces = [], all = told.sizes;
  told.curves.forEach((curve, i) => {
    const run = curve.points.filter((p) => !p.infeasible && value(p) !== null && value(p) !== undefined);
    if (!run.length) return;
    const tint = c.SERIES[i % c.SERIES.length], x = run.map((p) => p.accelerators);
    if (bound && i < 3) {
      const f = (p, side) => bound(p, p[side] / p.tokens_per_second_per_accelerator);
      traces.push({ x: [...x, ...x.toReversed()], y: [...run.map((p) => f(p, "low")), ...run.toReversed().map((p) => f(p, "high"))], fill: "toself", fillcolor: c.translucent(tint, i ? 0.07 : 0.14), line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines" });
    }
    const ideal = { tokens_per_second: all.at(-1) / x[0], days: x[0] / all.at(-1), rate: 1, mfu: 1, returned: 1, usd: 1, joules: 1 }[state.v.metric];
    if (i === 0 && ideal) {
      const first = state.v.metric === "returned" ? 1 : value(run[0]);
      traces.push({ x: [x[0], all.at(-1)], y: [first, first * ideal], mode: "lines", name: "ideal", line: { color: c.colour("soft"), width: 1, dash: "dash" }, hoverinfo: "skip" });
    }
    traces.push({
      x, y: run.map(value), mode: "lines+markers", name: name(curve), line: { color: c.colour(tint), width: 2.4, dash: c.DASHES[i % 7] }, marker: { size: 8, symbol: c.SYMBOLS[i % 7], color: c.colour(tint) },
      text: run.map((p) => `<b>${k.count(p.accelerators)} accelerators</b>, ${p.strategy}<br>${label}: ${format(value(p))}<br>step ${k.seconds(p.step_seconds)}, MFU ${k.percent(p.mfu)}${p.cause ? `<br>lost ${k.percent(p.cause.loss)} to ${p.cause.name}` : ""}`), hovertemplate: "%{text}<extra></extra>",
      customdata: run.map((p) => p.accelerators),
    });
  });
  const level = { tokens_per_second: (m) => m.measured * m.accelerators, rate: (m) => m.measured, mfu: (m) => m.mfu, days: (m) => told.tokens && told.tokens / (m.measured * m.accelerators) / 86400 }[state.v.metric];
  const dots = (runs, words, marker) => {
    const here = level ? runs.filter((m) => m.accelerators >= all[0] && m.accelerators <= all.at(-1)) : [];
    if (here.length) traces.push({ x: here.map((m) => m.accelerators), y: here.map(level), mode: "markers", name: `${words} (${here.length})`, marker, text: here.map((m) => `<b>${words}</b>: ${m.model}, ${m.strategy || ""}<br>${m.source}, ${k.count(m.accelerators)} accelerators, sequence ${k.count(m.sequence)}<br>${k.grouped(m.measured)} tokens/s per accelerator${m.error === null || m.error === undefined ? "" : `, predicted ${k.signed(m.error)}`}`), hovertemplate: "%{text}<extra></extra>" });
  };
  dots(measured.runs, "measured, published", { size: 7, color: "rgba(0,0,0,0)", line: { color: c.colour("ink"), width: 1.2 }, symbol: "circle" });
  dots(measured.own || [], "measured here", { size: 13, color: c.colour("c-bubble"), line: { color: c.colour("ink"), width: 1.2 }, symbol: "star" });
  const best = told.curves[0], shapesOf = [...new Set(best.points.filter((p) => !p.infeasible).map((p) => p.shape))];
  const edge = (i, side) => { const p = best.points, here = p[i].accelerators, other = p[i + side]?.accelerators || here * (side > 0 ? 2 : 0.5); return Math.sqrt(here * other); };
  best.points.forEach((p, i) => {
    if (p.infeasible) return;
    const tint = c.SERIES[shapesOf.indexOf(p.shape) % 7], a = edge(i, -1), b = edge(i, 1);
    traces.push({ x: [a, b, b, a], y: [0, 0, 1, 1], yaxis: "y2", fill: "toself", fillcolor: c.translucent(tint, 0.55), line: { width: 1, color: c.colour("card") }, mode: "lines", hoverinfo: "text", text: p.strategy, hoveron: "fills", name: p.strategy, showlegend: false });
  });
  const notes = [], runs = [];
  best.points.forEach((p, i) => { if (!p.infeasible) { const last = runs.at(-1); if (last && last.shape === p.shape) last.b = edge(i, 1); else runs.push({ shape: p.shape, a: edge(i, -1), b: edge(i, 1) }); } });
  const span = Math.log10(all.at(-1) / all[0] * 2), room = (el.clientWidth - 90) || 600;
  for (const run of runs) { const wide = Math.log10(run.b / run.a) / span * room; if (wide > 7.2 * run.shape.length) notes.push({ x: (Math.log10(run.a) + Math.log10(run.b)) / 2, xref: "x", y: 0.5, yref: "y2", text: run.shape, showarrow: false, font: { size: 11, color: c.colour("ink") } }); }
  const shapes = [], line = (x, dash, text, top) => { shapes.push({ type: "line", xref: "x", x0: x, x1: x, yref: "paper", y0: 0.13, y1: 1, line: { color: c.colour("soft"), width: 1, dash }, editable: false }); notes.push({ x: Math.log10(x), xref: "x", y: top, yref: "paper", yanchor: "top", text, showarrow: false, xanchor: "left", xshift: 5, font: { size: 11.5, color: c.colour("soft") } }); };
  const n = Number(told.question.gpus);
  if (n >= all[0] && n <= all.at(-1)) line(n, "solid", "this plan", 1);
  const knee = told.knees.find((x) => x.label === best.label && x.cluster === best.cluster);
  if (knee) line(knee.accelerators, "dot", "knee", 0.93);
  for (const x of told.crossovers.slice(0, 4)) line(x.accelerators, "dashdot", `${x.winner} overtakes ${x.loser}`, 0.2);
  const logs = ["tokens_per_second", "days"].includes(state.v.metric), { deadline, budget } = limits();
  if (deadline || budget) {
    const { fine } = meets(best.points, { deadline, budget });
    if (fine.length) {
      shapes.push({ type: "rect", xref: "x", x0: fine[0] / 1.12, x1: fine.at(-1) * 1.12, yref: "paper", y0: 0.13, y1: 1, fillcolor: c.translucent("c-opt", 0.13), line: { width: 0 }, layer: "below" });
      notes.push({ x: Math.log10(fine[0] / 1.12), xref: "x", xanchor: "left", xshift: 4, y: 0.14, yref: "paper", yanchor: "bottom", text: deadline && budget ? "within both" : deadline ? "in time" : "within budget", showarrow: false, font: { size: 11.5, color: c.colour("good") } });
    }
  }
  const lines = moving(best, whole, ctx);
  const rows = told.curves.flatMap((curve) => curve.points.map((p) => ({ curve: name(curve), accelerators: p.accelerators, strategy: p.strategy, value: value(p), low: bound && p.low ? bound(p, p.low / p.tokens_per_second_per_accelerator) : null, high: bound && p.high ? bound(p, p.high / p.tokens_per_second_per_accelerator) : null, step_seconds: p.step_seconds, tokens_per_second: p.tokens_per_second, mfu: p.mfu, returned: p.returned, days: p.days, usd: p.usd, joules: p.joules, infeasible: p.infeasible })));
  const percent = ["mfu", "returned"].includes(state.v.metric);
  c.draw(el, {
    traces, rows, name: `scale-${state.q.model}-${state.v.metric}`, label: `${title} against accelerators, for ${told.curves.map(name).join(", ")}`, height: 500, lines,
    columns: [["Curve", (r) => r.curve], ["Accelerators", (r) => k.count(r.accelerators), "num"], ["Strategy", (r) => h("code", { text: r.strategy })], [label, (r) => r.value === null || r.value === undefined ? "\u2013" : format(r.value), "num"]],
    layout: {
      xaxis: c.axis("accelerators", { ...c.powers(all), range: [Math.log10(all[0]) - 0.12, Math.log10(all.at(-1)) + 0.12], anchor: "y2" }),
      yaxis: c.axis(title, { type: logs ? "log" : "linear", domain: [0.13, 1], rangemode: "tozero", tickformat: percent ? ".0%" : state.v.metric === "days" ? "~g" : "~s", dtick: logs ? 1 : null }),
      yaxis2: { domain: [0, 0.07], range: [0, 1], visible: false, fixedrange: true }, shapes, annotations: notes,
    },
  }, {
    plotly_click: (event) => { const here = event.points[0]?.customdata; if (here) ctx.change({ n: here }); },
  });
}

// The line that belongs to this metric: deadline over days, budget over rent, the knee's rule over returns.
function moving(curve, whole, ctx) {
  const { deadline, budget } = limits(), n = Number(told.question.gpus), here = curve.points.find((p) => p.accelerators === n && !p.infeasible) || curve.points.find((p) => !p.infeasible);
  const round = { deadline: (v) => k.significant(v), budget: (v) => Number(v.toPrecision(3)).toFixed(0), knee: (v) => String(Math.min(Math.max(Math.round(v * 20) / 20, 0.05), 0.95)) };
  const line = (key, name, value, first, words, step) => {
    if (!value && !first) return [];
    const keep = (v) => { state.v[key] = round[key](v); for (const input of whole.querySelectorAll(`[data-field=${key}]`)) input.value = state.v[key]; };
    return [{ key, name, value: value || first, set: Boolean(value), words: (v) => value || state.v[key] ? words(v) : `set a ${key}`, step,
      live: (v) => { keep(v); says(whole.querySelector("#says")); }, done: (v) => { keep(v); set({}, whole, ctx); } }];
  };
  const share = (v, way) => v * 1.05 ** way;
  if (state.v.metric === "days") return line("deadline", "Deadline", deadline, here?.days, (v) => `deadline ${k.days(v)}`, share);
  if (state.v.metric === "usd") return line("budget", "Budget", budget, here?.usd, (v) => `budget ${k.dollars(v)}`, share);
  if (state.v.metric === "returned") return line("knee", "Stop below", Number(state.v.knee), 0.5, (v) => `stop below ${k.percent(v, 0)}`, (v, way) => v + 0.05 * way);
  return [];
}
