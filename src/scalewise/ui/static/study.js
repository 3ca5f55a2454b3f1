// Study: shipped questions over many points, with verdicts on published claims.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { state, write } from "./state.js";
import { refusal } from "./estimate.js";

const { h, fill } = k;
let list = null, told = null, running = false;

export function show(el, ctx) {
  fill(el, h("h1", { class: "question", text: "What do published claims look like here?" }), h("p", { class: "says", text: "A study is a question over many points: its answer is a table, figures, and a verdict on every claim. These ship with scalewise; `scalewise study run` writes the full report." }), h("section", { class: "cards", id: "list", "aria-busy": "true" }, h("p", { class: "muted", text: "Reading the studies \u2026" })), h("div", { id: "answer-study" }));
  load(el, ctx);
}

export function update() {}
export const theme = (el) => told && paint(el);

async function load(el, ctx) {
  try {
    list ||= (await ask("studies", null, { kind: "studies" })).studies;
    choose(el);
    if (told && told.name === state.v.study) paint(el);
    else if (state.v.study) run(el, state.v.study, true);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#list"), refusal(error));
  }
}

function choose(el) {
  const place = el.querySelector("#list");
  place.removeAttribute("aria-busy");
  fill(place, list.map((s) => h("section", { class: `card${state.v.study === s.name ? " on" : ""}` }, h("h2", { text: s.title }), h("p", { class: "muted", text: s.question }), h("p", { class: "small", text: `${s.experiments} experiment${s.experiments > 1 ? "s" : ""}, ${k.count(s.points)} points${s.claims ? `, ${s.claims} claims` : ""}` }),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", disabled: running, text: "Quick look", "aria-label": `Quick look at ${s.name}`, onclick: () => run(el, s.name, true) }), h("button", { type: "button", disabled: running, text: "Run it all", "aria-label": `Run all of ${s.name}`, onclick: () => run(el, s.name, false) })))));
}

async function run(el, name, quick) {
  running = true;
  state.v.study = name;
  write();
  choose(el);
  const place = el.querySelector("#answer-study");
  const bar = h("progress", { max: 1, "aria-label": "Points computed" });
  fill(place, h("section", { class: "card row" }, bar, h("span", { class: "muted", text: `Computing ${quick ? "the ends of every axis" : "every point"} \u2026` })));
  try {
    told = await ask("study", { name, quick }, { kind: "study", progress: (p) => { bar.value = p; } });
    running = false;
    choose(el);
    paint(el);
  } catch (error) {
    running = false;
    choose(el);
    if (error.name !== "AbortError") fill(place, refusal(error));
  }
}

// The report's colours as those of the page, which are made for light and for dark.
const PALETTE = { "#0072b2": "c-compute", "#d55e00": "c-comm", "#009e73": "c-opt", "#cc79a7": "c-bubble", "#e69f00": "c-hidden", "#56b4e9": "c-recompute", "#000000": "ink" };
const themed = (data) => JSON.parse(JSON.stringify(data).replace(/#[0-9a-f]{6}(?=")/gi, (tint) => (PALETTE[tint.toLowerCase()] ? c.colour(PALETTE[tint.toLowerCase()]) : tint)));

// The points behind a figure as a table: axes, strategy, what is shown of them.
function columns(e) {
  const cell = (v) => (typeof v === "number" ? (Number.isInteger(v) ? k.count(v) : k.significant(v, 4)) : v ?? "\u2013");
  const number = (key) => (e.rows.some((r) => typeof (r.axes[key] ?? r.metrics[key]) === "number") ? "num" : null);
  return [...Object.keys(e.rows[0]?.axes || {}), ...e.metrics].map((key) => [key.replaceAll("_", " "), (r) => cell(r[key]), number(key)]);
}

function paint(el) {
  const place = el.querySelector("#answer-study");
  if (!place) return;
  const rows = told.experiments.flatMap((e) => e.rows.map((r) => ({ experiment: e.id, ...r.axes, strategy_used: r.strategy, ...r.metrics, infeasible: r.infeasible })));
  const keys = [...new Set(rows.flatMap(Object.keys))], full = rows.map((r) => Object.fromEntries(keys.map((key) => [key, r[key] ?? null])));
  const judged = told.verdicts.filter((v) => v.verdict !== "not judged"), holds = judged.filter((v) => v.verdict === "holds").length, open = told.verdicts.length - judged.length;
  const verdicts = [...judged, ...told.verdicts.filter((v) => v.verdict === "not judged")];
  fill(place, told.verdicts.length ? h("section", { class: "card" }, h("h2", { text: `${holds} of ${judged.length} judged claims hold${open ? `; ${open} need ${told.quick ? "all points: run it all" : "points that cannot run"}` : ""}` }), h("p", { class: "muted small", text: told.source }), k.table(verdicts, [["Claim", (v) => [v.statement, h("br"), h("span", { class: "muted small", text: v.why })]], ["Verdict", (v) => h("span", { class: `chip v-${v.verdict.split(" ").join("-")}`, text: v.verdict })], ["Ours", (v) => v.ours, "num"], ["Published", (v) => v.theirs, "num"]], { caption: "Claims" })) : null,
    told.experiments.map((e) => h("section", { class: "card" }, h("h2", { text: e.title }), e.about && h("p", { class: "muted", text: e.about }), e.figures.map((f, i) => [c.figure(`fig-${e.id}-${i}`), f.caption && h("p", { class: "muted small", text: f.caption })]), h("ul", { class: "plain small" }, e.findings.map((text) => h("li", { text }))))),
    h("section", { class: "card row between" }, h("span", { class: "muted", text: `${k.count(rows.length)} points in ${k.seconds(told.seconds)}` }), h("div", { class: "takeout" }, h("button", { type: "button", text: "CSV", "aria-label": "Save all points as CSV", onclick: () => k.save(`${told.name}.csv`, k.csv(full), "text/csv") }), h("button", { type: "button", text: "JSON", "aria-label": "Save the study as JSON", onclick: () => k.save(`${told.name}.json`, JSON.stringify(told, null, 2), "application/json") }))));
  for (const e of told.experiments) e.figures.forEach((f, i) => {
    const layout = structuredClone(f.layout), soft = c.colour("soft");
    for (const [key, value] of Object.entries(layout)) if (/^[xy]axis/.test(key)) Object.assign(value, { gridcolor: c.colour("grid"), linecolor: c.colour("line"), zerolinecolor: c.colour("line"), automargin: true, tickfont: { color: soft }, title: { ...(value.title || {}), font: { color: soft, size: 12 } } });
    for (const note of layout.annotations || []) note.font = { ...(note.font || {}), color: c.colour("ink") };
    delete layout.width;
    c.draw(el.querySelector(`#fig-${CSS.escape(e.id)}-${i}`), { traces: themed(f.data), layout: { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: c.colour("ink"), size: 12, family: getComputedStyle(document.body).fontFamily }, title: null, legend: { orientation: "h", y: -0.18, yanchor: "top", x: 0, font: { color: soft, size: 11 } } }, rows: e.rows.map((r) => ({ ...r.axes, strategy_used: r.strategy, ...r.metrics })), columns: columns(e), name: `${told.name}-${e.id}`, label: f.caption || e.title, height: Math.max(layout.height || 0, 400) });
  });
}
