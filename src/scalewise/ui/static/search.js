// Search: every strategy, ranked; the front; the map; why the winner wins.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { question, state, write } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;
const BY = [["time", "Time"], ["cost", "Rent"], ["energy", "Energy"], ["memory", "Memory"]];
let told = null, asked = "", order = null;

export function show(el) {
  told = null;
  asked = "";
  fill(el, h("h1", { class: "question", text: "Which strategy is best, and why?" }), h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }), h("div", { class: "controls", id: "knobs" }),
    h("section", { class: "card pick", id: "ranking" }, h("p", { class: "muted", text: "Trying every strategy \u2026" })),
    h("div", { class: "halves" }, h("section", { class: "card" }, h("h2", { text: "Time against energy" }), c.figure("front")), h("section", { class: "card" }, h("h2", { text: "Best of each tensor and pipeline degree" }), c.figure("map"))),
    h("div", { class: "halves" }, h("section", { class: "card sayings", id: "why" }), h("section", { class: "card sayings", id: "reasons" })));
}

export async function update(el, ctx) {
  knobs(el.querySelector("#knobs"), el, ctx);
  const plan = ctx.answer?.question.strategy;
  const body = { question: question(plan ? { strategy: plan } : {}), by: state.v.rank, top: 100 }, key = JSON.stringify(body);
  if (key === asked && told) { paint(el, ctx); return; }
  asked = key;
  try {
    told = await ask("search", body, { kind: "search", progress: (p) => { const bar = el.querySelector("#progress"); if (bar) { bar.hidden = false; bar.value = p; } } });
    el.querySelector("#progress").hidden = true;
    paint(el, ctx);
  } catch (error) {
    if (error.name === "AbortError") return;
    el.querySelector("#progress").hidden = true;
    fill(el.querySelector("#says"), refusal(error));
  }
}

export const theme = (el, ctx) => told && paint(el, ctx);

function knobs(el, whole, ctx) {
  if (el.childElementCount) return;
  const set = (fields) => { Object.assign(state.v, fields); write(); order = null; update(whole, ctx); };
  fill(el, k.segmented("Rank by", BY, state.v.rank, (rank) => set({ rank })),
    h("label", { class: "field" }, "Filter", h("input", { type: "text", value: state.v.filter, placeholder: "tp2, pp1, fsdp", size: 16, oninput: (e) => { state.v.filter = e.target.value; write(); if (told) ranking(whole.querySelector("#ranking"), ctx); } })),
    h("progress", { id: "progress", hidden: true, max: 1, "aria-label": "Strategies tried" }),
    h("span", { class: "muted", text: "The batch is never changed." }));
}

function paint(el, ctx) {
  if (!told || !el.querySelector("#ranking")) return;
  const best = told.rows[0], says = el.querySelector("#says"), now = told.current;
  if (!best) {
    fill(says, h("b", { text: `None of ${k.count(told.examined)} strategies fits. ` }), told.nearest ? `The nearest, ${told.nearest.strategy}, needs ${k.gib(told.nearest.memory_bytes)} of ${k.gib(told.nearest.memory_capacity)}. Use more accelerators.` : "No strategy suits this size and batch.");
  } else {
    const second = told.rows.find((r) => !r.tie);
    const verdict = !now ? "" : now.tie ? `Your plan ${now.strategy} is already best: a tie with it.` : `Your plan ${now.strategy} is ${k.signed(now.gap)} behind.`;
    fill(says, h("b", {}, `${best.strategy}: ${k.seconds(best.step_seconds)} per step. `), verdict, ` ${told.ties >= 200 ? "200 or more" : k.count(told.ties)} strategies lie within a tie (${k.percent(told.near_tie)}); the simplest of them is `, h("button", { type: "button", class: "link", text: told.simplest, onclick: () => ctx.change({ strategy: told.simplest }) }), second ? `; the best that is none is ${k.signed(second.gap)}.` : ".",
      now?.changes?.length && !now.tie ? [h("br"), "To get there: ", now.changes.map(([field, a, b], i) => `${i ? ", " : ""}${field.replaceAll("_", " ")} ${a} \u2192 ${b}`).join(""), ". "] : null);
  }
  ranking(el.querySelector("#ranking"), ctx);
  fill(el.querySelector("#why"), h("h2", { text: "Why the winner wins" }), told.why.length ? h("ul", {}, told.why.map((text) => h("li", { text })), now?.why && !now.tie ? h("li", { text: now.why }) : null) : h("p", { class: "muted", text: "Nothing won." }));
  const lost = Object.entries(told.infeasible);
  fill(el.querySelector("#reasons"), h("h2", { text: "What was tried" }), h("ul", {}, h("li", {}, h("b", { text: k.count(told.examined) }), " strategies tried, ", h("b", { text: k.count(told.feasible) }), " can run"), lost.sort((a, b) => b[1] - a[1]).map(([reason, n]) => h("li", {}, h("b", { text: k.count(n) }), ` ${reason}`))));
  front(el.querySelector("#front"), ctx);
  map(el.querySelector("#map"), ctx);
}

const COLUMNS = {
  step_seconds: ["Step", (r) => k.seconds(r.step_seconds)], gap: ["Behind best", (r) => r.gap < 0.0005 ? "best" : k.signed(r.gap)], mfu: ["MFU", (r) => k.percent(r.mfu)], exposed_share: ["Exposed", (r) => k.percent(r.exposed_share)],
  memory_bytes: ["Memory", (r) => k.gib(r.memory_bytes)], usd: ["Rent", (r) => k.dollars(r.usd)], joules: ["Energy", (r) => k.energy(r.joules)],
};

function ranking(el, ctx) {
  const wanted = state.v.filter.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const has = (r, word) => { const parts = r.strategy.split("-"), m = word.match(/^(tp|pp|cp|v|mb)(\d+)$/); if (m) return r.degrees[{ v: "virtual_stages", mb: "micro_batch" }[m[1]] || m[1]] === Number(m[2]); return parts.some((p) => p.startsWith(word)); };
  let rows = told.rows.filter((r) => wanted.every((word) => has(r, word)));
  if (order) rows = rows.toSorted((a, b) => (order.up ? 1 : -1) * ((a[order.key] ?? 0) - (b[order.key] ?? 0)));
  const sort = (key) => ({ state: order?.key === key ? (order.up ? "ascending" : "descending") : undefined, click: () => { order = { key, up: order?.key === key ? !order.up : true }; ranking(el, ctx); } });
  fill(el, h("div", { class: "row between" }, h("h2", { text: `The best ${k.count(rows.length)} of ${k.count(told.feasible)} that can run` }), h("div", { class: "takeout" }, h("button", { type: "button", text: "CSV", "aria-label": "Save the ranking as CSV", onclick: () => k.save("search.csv", k.csv(told.rows.map(({ degrees, rate, ...r }) => ({ ...r, low: rate[1], high: rate[2], ...degrees }))), "text/csv") }), h("button", { type: "button", text: "JSON", "aria-label": "Save the ranking as JSON", onclick: () => k.save("search.json", JSON.stringify(told, null, 2), "application/json") }))),
    rows.length ? h("div", { class: "tall" }, k.table(rows.slice(0, 60), [
      ["Strategy", (r) => [h("button", { type: "button", class: "link", onclick: () => ctx.change({ strategy: r.strategy }) }, h("code", { text: r.strategy })), " ", r.tie ? h("span", { class: "chip", text: "tie" }) : null]],
      ...Object.entries(COLUMNS).map(([key, [title, cell]]) => [title, cell, "num", sort(key)]),
    ], { caption: "Strategies, best first", selected: (r) => r.strategy === ctx.answer?.question.strategy }))
      : h("p", { class: "muted" }, "No strategy of the list has all of this. ", h("button", { type: "button", class: "link", text: "Clear the filter", onclick: () => { state.v.filter = ""; write(); const input = document.querySelector("#knobs input[type=text]"); if (input) input.value = ""; ranking(el, ctx); } })));
}

function front(el, ctx) {
  const other = told.front_by, y = (r) => other === "energy" ? r.joules_per_token : r.memory_bytes / 2 ** 30, unit = other === "energy" ? "joules per token, at the site" : "GiB on the fullest accelerator";
  const all = [...new Map([...told.rows, ...told.map, ...told.front].map((r) => [r.strategy, r])).values()];
  const edge = told.front.toSorted((a, b) => a.step_seconds - b.step_seconds);
  const tip = (r) => `<b>${r.strategy}</b><br>${k.seconds(r.step_seconds)} per step, MFU ${k.percent(r.mfu)}<br>${other === "energy" ? k.joules(r.joules_per_token) + " per token" : k.gib(r.memory_bytes)}`;
  const dots = (rows, name, marker) => ({ x: rows.map((r) => r.step_seconds), y: rows.map(y), mode: "markers", name, marker, text: rows.map(tip), hovertemplate: "%{text}<extra></extra>", customdata: rows.map((r) => r.strategy) });
  const traces = [dots(all.filter((r) => !r.tie), "others", { size: 7, color: c.translucent("c-other", 0.55) }), dots(all.filter((r) => r.tie), "ties with the best", { size: 9, color: c.colour("c-compute"), symbol: "diamond" }), { ...dots(edge, "front: nothing beats it in both", { size: 12, color: "rgba(0,0,0,0)", line: { color: c.colour("c-comm"), width: 2 } }), mode: edge.length > 1 ? "markers+lines" : "markers", line: { color: c.colour("c-comm"), width: 1, dash: "dot" } }];
  if (told.current) traces.push(dots([told.current], "your plan", { size: 14, symbol: "cross", color: c.colour("ink") }));
  c.draw(el, { traces, rows: all.map(({ degrees, ...r }) => r), name: "search-front", label: `Seconds per step against ${unit}`, height: 400, columns: [["Strategy", (r) => r.strategy], ["Step", (r) => k.seconds(r.step_seconds), "num"], ["Energy", (r) => k.joules(r.joules_per_token), "num"], ["Memory", (r) => k.gib(r.memory_bytes), "num"]],
    layout: { xaxis: c.axis("seconds per step"), yaxis: c.axis(unit), legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } } },
  { plotly_click: (event) => { const s = event.points[0]?.customdata; if (s) ctx.change({ strategy: s }); } });
}

// Between two colours, so that the best is the strongest in light and in dark.
const mixed = (a, b, share) => "#" + [1, 3, 5].map((i) => Math.round(parseInt(a.slice(i, i + 2), 16) * share + parseInt(b.slice(i, i + 2), 16) * (1 - share)).toString(16).padStart(2, "0")).join("");

function map(el, ctx) {
  const tps = [...new Set(told.map.map((r) => r.tp))].sort((a, b) => a - b), pps = [...new Set(told.map.map((r) => r.pp))].sort((a, b) => a - b);
  const at = (tp, pp) => told.map.find((r) => r.tp === tp && r.pp === pp), z = pps.map((pp) => tps.map((tp) => at(tp, pp)?.gap ?? null));
  const cells = pps.flatMap((pp, j) => tps.map((tp, i) => z[j][i] === null ? null : { x: i, y: j, text: z[j][i] < 0.0005 ? "best" : z[j][i] > 9.99 ? `\u00d7${k.significant(1 + z[j][i], 2)}` : `+${(100 * z[j][i]).toFixed(z[j][i] < 0.1 ? 1 : 0)}%`, showarrow: false, font: { size: 12, color: z[j][i] < (c.colour("accent-ink") === "#ffffff" ? 0.1 : 0.2) ? c.colour("accent-ink") : c.colour("ink") } })).filter(Boolean);
  const best = c.colour("c-compute"), none = c.colour("hair");
  c.draw(el, {
    traces: [{ type: "heatmap", x: tps.map((_, i) => i), y: pps.map((_, j) => j), z: z.map((line) => line.map((v) => v === null ? null : Math.min(v, 1))), colorscale: [[0, best], [0.5, mixed(best, none, 0.35)], [1, none]], zmin: 0, zmax: 1, showscale: false, xgap: 3, ygap: 3, hoverongaps: false, text: pps.map((pp) => tps.map((tp) => { const r = at(tp, pp); return r ? `<b>${r.strategy}</b><br>${k.seconds(r.step_seconds)} per step, ${k.gib(r.memory_bytes)}` : "nothing fits"; })), hovertemplate: "%{text}<extra></extra>", customdata: pps.map((pp) => tps.map((tp) => at(tp, pp)?.strategy)) }],
    rows: told.map.map(({ degrees, ...r }) => r), name: "search-map", label: "How far the best strategy of each tensor and pipeline degree is behind the best of all", height: 400, columns: [["tp", (r) => r.tp, "num"], ["pp", (r) => r.pp, "num"], ["Best strategy", (r) => r.strategy], ["Behind best", (r) => k.signed(r.gap), "num"]],
    layout: { xaxis: c.axis("tensor parallel", { tickvals: tps.map((_, i) => i), ticktext: tps.map(String), showgrid: false }), yaxis: c.axis("pipeline stages", { tickvals: pps.map((_, j) => j), ticktext: pps.map(String), showgrid: false }), annotations: cells },
  }, { plotly_click: (event) => { const s = event.points[0]?.customdata; if (s) ctx.change({ strategy: s }); } });
}
