// Estimate: the answer first, then where the time goes, what fits, what would help.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { query, question, questionOf, state, write } from "./state.js";

const { h, fill } = k;

export function show(el) {
  fill(el, h("h1", { class: "unseen", text: "What does a step cost, and where does it go?" }), h("section", { class: "answer", id: "answer", "aria-live": "polite" }),
    h("div", { class: "grid" },
      h("section", { class: "card wide", id: "where" }), h("div", { class: "column" }, h("section", { class: "card", id: "memory" }), h("section", { class: "card", id: "levers" }))),
    h("section", { class: "card", id: "power" }),
    h("section", { class: "card", id: "pins" }));
}

export function update(el, ctx) {
  const part = (id) => el.querySelector(`#${id}`);
  answer(part("answer"), ctx);
  const told = ctx.answer;
  if (!told) return;
  el.classList.toggle("stale", Boolean(ctx.refused));
  where(part("where"), told, ctx);
  memory(part("memory"), told);
  levers(part("levers"), told, ctx);
  power(part("power"), told);
  pins(part("pins"), told, ctx);
}

export function nearest(ctx) {
  const place = document.getElementById("grade");
  if (place) fill(place, grade(ctx));
}

function delta(now, before, better = "low") {
  if (!now || !before) return null;
  const share = now / before - 1;
  if (Math.abs(share) < 0.0005) return null;
  const good = better === "low" ? share < 0 : share > 0;
  const text = Math.abs(share) > 9.99 ? `\u00d7${k.significant(now / before, 2)}` : k.signed(share);
  return h("span", { class: `delta ${good ? "good" : "bad"}`, text, title: "against the answer before" });
}

function figure(name, format, value, before, better) {
  if (!value) return null;
  const [now, low, high] = Array.isArray(value) ? value : [value];
  const old = Array.isArray(before) ? before[0] : before;
  return h("div", { class: "figure" }, h("dt", { text: name }), h("dd", {}, h("strong", { text: format(now) }), delta(now, old, better)),
    h("dd", { class: "range", text: k.range(format, low, high) }));
}

export function refusal(error) {
  return h("div", { class: "refused", role: "alert" }, h("p", { text: error.message || error.error }), error.hint && h("p", { class: "hint", text: `Hint: ${error.hint}` }));
}

function answer(el, ctx) {
  const told = ctx.answer;
  if (ctx.refused) {
    fill(el, refusal(ctx.refused), told && h("p", { class: "muted", text: "Below is the last answer there was." }));
    return;
  }
  if (!told) return;
  const head = told.headline, old = ctx.before?.headline?.feasible ? ctx.before.headline : null;
  const parts = [];
  if (head.feasible) {
    parts.push(h("dl", { class: "figures" },
      figure("per step", k.seconds, head.step_seconds, old?.step_seconds),
      figure("for the whole run", k.days, head.days, old?.days),
      figure("rent", k.dollars, head.usd, old?.usd),
      figure("energy", k.energy, head.joules, old?.joules),
      figure("MFU", k.percent, head.mfu, old?.mfu, "high")));
    const slowed = told.waterfall.find((t) => t.key === "contention")?.share || 0;
    parts.push(h("p", { class: "spoken" }, `${k.percent(head.exposed_share)} of the time waits on the network${slowed > 0.0005 ? `, ${k.percent(slowed)} more is compute that it slows down` : ""}. `,
      h("span", { class: "muted" }, `${k.grouped(head.rate[0])} tokens/s per accelerator; ranges hold 80 % of cases. `)));
  } else {
    parts.push(h("div", { class: "refused", role: "alert" }, h("p", {}, h("b", { text: "Does not fit. " }), head.infeasible.replace(/^memory: /, "It ")),
      h("ul", { class: "plain" }, told.remedies.map((r) => h("li", {}, r.words, r.step_seconds && ` (${k.seconds(r.step_seconds)} per step)`, " ",
        r.change && h("button", { type: "button", text: "Do that", onclick: () => ctx.change({ ...("gpus" in r.change ? { n: r.change.gpus } : {}), strategy: r.change.strategy }) }))))));
  }
  const notes = [...told.moved.map((text) => ["moved", text]), ...(moves(ctx).length ? [["since before", moves(ctx).join("; ")]] : []), ...told.changed.map((text) => ["changed", text]), ...told.notes.map((text) => ["note", text])];
  const warnings = told.estimate.warnings;
  parts.push(h("div", { class: "under" }, h("span", { id: "grade" }, grade(ctx)),
    notes.map(([kind, text]) => h("span", { class: "note" }, h("b", { text: `${kind}: ` }), text)),
    h("details", { class: "inline" }, h("summary", { text: `${told.chosen.length} defaults${warnings.length ? `, ${warnings.length} ${warnings.length > 1 ? "warnings" : "warning"}` : ""}` }),
      h("ul", { class: "plain" }, warnings.map((t) => h("li", {}, h("b", { text: "warning: " }), t)), told.chosen.map((t) => h("li", { text: t }))))));
  fill(el, parts);
  k.mark("answer");
}

function moves(ctx) {
  const old = ctx.before?.question, now = ctx.answer.question;
  if (!old) return [];
  const names = { model: "model", on: "hardware", gpus: "accelerators", batch: "batch", seq: "sequence", precision: "precision", stack: "software", strategy: "strategy", tokens: "tokens" };
  return Object.keys(names).filter((key) => (old[key] || "") !== (now[key] || "") && key !== "tokens").map((key) => `${names[key]} ${old[key] || "default"} \u2192 ${now[key] || "default"}`);
}

function grade(ctx) {
  const near = ctx.near;
  if (!near) return h("span", { class: "grade wait", text: "Looking for measured runs nearby \u2026" });
  const words = { inside: "Inside the evidence", edge: "At the edge of the evidence", outside: "Outside the evidence" }[near.grade];
  return h("a", { class: `grade ${near.grade}`, href: `?${query({ view: "evidence" })}`, onclick: (event) => { event.preventDefault(); ctx.go("evidence"); } },
    h("i", { "aria-hidden": "true" }), h("b", { text: words }), `: ${near.words}`);
}

// Where the step goes: terms from left to right, each beginning where the last ended.
function where(el, told, ctx) {
  const step = told.headline.step_seconds[0];
  let from = 0;
  const rows = told.waterfall.map((term) => {
    const left = from;
    from += term.share;
    return h("li", {}, h("button", { type: "button", class: "term", onclick: () => explain(term.key, ctx), title: "Show formula, inputs and source" },
      h("span", { class: "label", text: term.label }),
      h("span", { class: "track" }, h("span", { class: `bar g-${term.group}`, style: `left:${(100 * left).toFixed(3)}%;width:max(${(100 * term.share).toFixed(3)}%,2px)` })),
      h("span", { class: "num", text: k.seconds(term.seconds) }), h("span", { class: "num pc", text: k.percent(term.share) })));
  });
  const groups = {};
  for (const term of told.waterfall) groups[term.group] = (groups[term.group] || 0) + term.share;
  const names = { compute: "compute", recompute: "recompute", communication: "communication", bubble: "bubble", optimizer: "optimizer", other: "other" };
  const beside = told.hidden.filter((each) => each.hidden > 0.0005 * step);
  fill(el, h("h2", { text: "Where the step goes" }),
    h("p", { class: "legend" }, Object.entries(groups).map(([g, share]) => h("span", {}, h("i", { class: `swatch g-${g}` }), `${names[g]} ${k.percent(share, 0)}`))),
    h("ol", { class: "fall" }, rows,
      h("li", { class: "total" }, h("span", { class: "term" }, h("span", { class: "label", text: "the step" }), h("span", { class: "track" }, h("span", { class: "bar sum", style: "left:0;width:100%" })), h("span", { class: "num", text: k.seconds(step) }), h("span", { class: "num pc", text: "100.0 %" })))),
    h("div", { class: "beside" }, h("h3", { text: beside.length ? "Hidden behind compute, not part of the sum" : "No communication is hidden behind compute" }),
      h("ol", { class: "fall thin" }, beside.map((each) => h("li", {}, h("span", { class: "term" }, h("span", { class: "label", text: each.label }),
        h("span", { class: "track" }, h("span", { class: "bar g-hidden", style: `left:0;width:min(${(100 * each.hidden / step).toFixed(2)}%,100%)` })),
        h("span", { class: "num", text: k.seconds(each.hidden) }), h("span", { class: "num pc", text: k.percent(each.hidden / step) })))))),
    h("div", { class: "takeout" }, h("button", { type: "button", text: "SVG", "aria-label": "Save the terms of the step as SVG", onclick: () => k.save("step.svg", picture(told), "image/svg+xml") }),
      h("button", { type: "button", text: "CSV", "aria-label": "Save the terms of the step as CSV", onclick: () => k.save("step.csv", k.csv(told.waterfall), "text/csv") }),
      h("button", { type: "button", text: "JSON", "aria-label": "Save the terms of the step as JSON", onclick: () => k.save("step.json", JSON.stringify({ question: told.question, waterfall: told.waterfall, hidden: told.hidden, memory: told.memory }, null, 2), "application/json") })));
}

// The terms as a drawing of its own, in the colours of the page.
function picture(told) {
  const style = getComputedStyle(document.documentElement), tint = (name) => style.getPropertyValue(`--${name}`).trim(), safe = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const names = { compute: "c-compute", recompute: "c-recompute", communication: "c-comm", bubble: "c-bubble", optimizer: "c-opt", other: "c-other" }, wide = 960, left = 240, right = 170, inner = wide - left - right, row = 26, top = 48;
  let from = 0;
  const rows = told.waterfall.map((t, i) => {
    const x = left + from * inner, y = top + i * row;
    from += t.share;
    return `<text x="${left - 10}" y="${y + 14}" text-anchor="end">${safe(t.label)}</text><rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(t.share * inner, 1).toFixed(1)}" height="18" fill="${tint(names[t.group])}"/><text x="${wide - 90}" y="${y + 14}" text-anchor="end">${safe(k.seconds(t.seconds))}</text><text x="${wide - 14}" y="${y + 14}" text-anchor="end">${k.percent(t.share)}</text>`;
  });
  const q = told.question, title = `${q.model} on ${q.gpus} ${q.on}, ${q.strategy}: ${k.seconds(told.headline.step_seconds[0])} per step`, tall = top + rows.length * row + 14;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${tall}" viewBox="0 0 ${wide} ${tall}" font-family="sans-serif" font-size="13" fill="${tint("ink")}"><rect width="100%" height="100%" fill="${tint("card")}"/><text x="14" y="26" font-size="15" font-weight="bold">${safe(title)}</text>${rows.join("")}</svg>`;
}

const PARTS = ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8"];

function memory(el, told) {
  const [now, low, high] = told.headline.memory_bytes, capacity = told.headline.memory_capacity;
  const full = Math.max(capacity, high) * 1.04, at = (v) => `${(100 * v / full).toFixed(2)}%`;
  const parts = told.memory.filter((m) => m.bytes > 0.001 * now).sort((a, b) => b.bytes - a.bytes);
  const left = capacity - now;
  fill(el, h("h2", { text: "Memory of the fullest accelerator" }),
    h("p", { class: "lead" }, h("strong", { text: k.gib(now) }), ` of ${k.gib(capacity)}, `, left >= 0 ? `${k.gib(left)} free` : h("b", { class: "bad", text: `${k.gib(-left)} too much` }), h("span", { class: "muted", text: `; 80 % of cases ${k.range(k.gib, low, high)}` })),
    h("div", { class: "stack", role: "img", "aria-label": `${k.gib(now)} of ${k.gib(capacity)}: ${parts.map((m) => `${m.label} ${k.gib(m.bytes)}`).join(", ")}` },
      h("div", { class: "pile" }, parts.map((m, i) => h("span", { class: PARTS[i % 8], style: `width:${at(m.bytes)}`, title: `${m.label}: ${k.gib(m.bytes)}` }))),
      h("span", { class: "whisker", style: `left:${at(low)};width:calc(${at(high)} - ${at(low)})` }),
      h("span", { class: "limit", style: `left:${at(capacity)}` }, h("em", { text: "capacity" }))),
    h("ul", { class: "parts" }, parts.map((m, i) => h("li", {}, h("i", { class: `swatch ${PARTS[i % 8]}` }), h("span", { text: m.label }), h("span", { class: "num", text: k.gib(m.bytes) })))),
    h("div", { id: "fits", class: "muted" }, fits.text || "\u00a0"));
  next(told);
}

const fits = { key: "", text: "" };
let waiting;
function next(told) {
  const key = JSON.stringify(told.question);
  if (fits.key === key) return;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    try {
      const found = await ask("fits", question(), { kind: "fits" });
      const parts = [];
      if (found.micro_batch) parts.push(found.micro_batch > found.current ? `A micro batch of up to ${found.micro_batch} would fit.` : `${found.current} is the largest micro batch that fits.`);
      if (found.accelerators) parts.push(`Fewest accelerators that hold this model and batch: ${k.count(found.accelerators)} (${found.strategy}, ${k.seconds(found.step_seconds)} per step).`);
      Object.assign(fits, { key, text: parts.join(" ") });
      const place = document.getElementById("fits");
      if (place) place.textContent = fits.text || "\u00a0";
    } catch { /* an addition */ }
  }, 350);
}

function levers(el, told, ctx) {
  const { found, tried, next: after } = told.levers;
  const gain = (lever) => [["step", k.seconds(lever.seconds)], ["rent", k.dollars(lever.usd)], ["energy", k.energy(lever.joules)]];
  fill(el, h("h2", { text: "What would help" }),
    told.headline.feasible && !found.length && h("p", { class: "lead" }, told.pinned ? "Already best: " : `The simplest of the best of ${k.count(told.tried)} strategies: `, `none of ${tried} single changes gains more than 2 %`, after && after.gain > -1 ? `; the next, ${after.why}, is ${k.signed(after.gain)}.` : "."),
    !told.headline.feasible && h("p", { class: "muted", text: "First make it fit." }),
    h("ol", { class: "plain levers" }, found.map((lever) => h("li", {},
      h("div", {}, h("b", { text: lever.why[0].toUpperCase() + lever.why.slice(1) }), h("code", { text: lever.strategy })),
      h("span", { class: "delta good", text: k.signed(lever.gain) + " tokens/s" }),
      h("span", { class: "muted saves" }, "saves ", gain(lever).map(([name, text], i) => [i ? ", " : "", `${text} ${name === "step" ? "per step" : name}`])),
      h("button", { type: "button", text: "Try", onclick: () => ctx.change({ strategy: lever.strategy }) })))),
    h("p", {}, h("button", { type: "button", class: "quiet", text: "Try every strategy", onclick: () => ctx.go("search") })));
}

function power(el, told) {
  const head = told.headline;
  const rows = [
    ["Tokens per second", k.grouped(head.tokens_per_second[0]), k.range(k.grouped, head.tokens_per_second[1], head.tokens_per_second[2])],
    ["Model FLOP/s per accelerator", `${k.significant(head.tflops, 4)} TFLOP/s`, `HFU ${k.percent(head.hfu)}`],
    ["Rent of a million tokens", k.dollars(head.usd_per_million_tokens?.[0]), head.usd_per_hour ? `${k.dollars(head.usd_per_hour)} per hour` : "no price known"],
    ["Energy of a token, at the site", k.joules(head.joules_per_token?.[0]), head.facility_watts ? `${k.watts(head.facility_watts)} in all` : "power not published"],
    ["Power of one accelerator", k.watts(head.watts_per_accelerator), ""],
    ["Tokens per accelerator and step", k.count(head.tokens_per_accelerator), `${k.count(head.micro_steps)} micro step${head.micro_steps > 1 ? "s" : ""}`],
  ];
  fill(el, h("h2", { text: "Rates, power and money" }),
    h("dl", { class: "facts" }, rows.map(([name, value, more]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }), h("dd", { class: "muted", text: more })))),
    takeaway(told.takeaway),
    h("p", { class: "muted small" }, `MFU counts ${told.convention.words}. Time and money are those of a run that never fails; real ones are higher.`));
}

// The plan's own inequality, to take along: enough tokens for kernels to outlast the network?
function takeaway(t) {
  if (!t) return null;
  const limit = t.limit === null ? null : k.count(Number(t.limit.toPrecision(2)));
  return h("p", { class: "takeaway", id: "takeaway" }, `You have ${k.count(t.tokens)} tokens per accelerator and ${t.per}: `,
    h("b", { text: limit === null ? "network-bound, whatever the batch." : t.tokens >= t.limit ? `compute-bound. Below about ${limit} this plan is network-bound.` : `network-bound. It takes about ${limit} for kernels to outlast the network.` }),
    h("span", { class: "muted", text: ` ${k.seconds(t.communication)} of communication, hidden or not, against ${k.seconds(t.compute)} of compute.` }));
}

async function explain(key, ctx) {
  const dialog = h("dialog", { class: "drawer", "aria-labelledby": "explain-title" }, h("p", { text: "Working it out \u2026" }));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
  try {
    const told = await ask("explain", question(), { kind: "explain" });
    const mine = told.explained.filter((e) => e.key === key), others = told.explained.filter((e) => e.key !== key);
    fill(dialog, h("div", { class: "head" }, h("h2", { id: "explain-title", text: mine[0]?.title || "Worked out" }), h("button", { type: "button", class: "close", "aria-label": "Close", text: "\u00d7", onclick: () => dialog.close() })),
      mine.map(worked), h("h3", { text: "Everything else" }), others.map((e) => h("details", {}, h("summary", {}, h("span", { text: e.title }), h("span", { class: "num", text: e.result })), worked(e))));
    dialog.querySelector(".close").focus();
  } catch (error) {
    fill(dialog, refusal(error), h("button", { type: "button", text: "Close", onclick: () => dialog.close() }));
  }
}

// The formula with its numbers put in, where it is made of its letters alone.
function numbers(e) {
  const values = new Map(e.letters.filter(([letter]) => letter).map(([letter, value]) => [letter, value])), words = new Set(["max", "min", "log2"]);
  const first = e.formula.split(",  ")[0], right = first.slice(first.indexOf("=") + 1).trim();
  if (!first.includes("=") || (right.match(/[A-Za-z]\w*/g) || []).some((word) => !values.has(word) && !words.has(word))) return null;
  const times = right.replace(/([\w)]) (?=[\w(])/g, "$1 \u00d7 ");
  return times.replace(/[A-Za-z]\w*/g, (word) => values.get(word) || word);
}

export function worked(e) {
  const put = numbers(e);
  return h("article", { class: "worked" }, h("p", { class: "formula" }, e.formula, put && [h("br"), h("span", { class: "muted", text: `= ${put}` })]),
    e.letters.length > 0 && h("table", {}, h("tbody", {}, e.letters.map(([letter, value, meaning]) => h("tr", {}, letter ? h("th", { scope: "row", text: letter }) : h("td"), h("td", { class: "num", text: value }), h("td", { text: meaning }))))),
    e.working.map((line) => h("p", { class: "line", text: line })), h("p", { class: "result", text: `= ${e.result}` }), e.source && h("p", { class: "muted small" }, "Source: ", k.linked(e.source)));
}

// Pinned plans side by side.
const kept = new Map(), asking = new Set();

function pins(el, told, ctx) {
  // With its strategy, chosen or not: a pinned plan stays what it was.
  const here = query({ views: false, pins: false }) + (state.q.strategy ? "" : `&strategy=${told.question.strategy}`);
  const mine = state.pins.includes(here), full = state.pins.length >= 4;
  const button = h("button", { type: "button", id: "pin-plan", disabled: mine || full, text: mine ? "This plan is pinned" : full ? "Four plans are pinned" : "Pin this plan", onclick: () => { state.pins.push(here); write(); pins(el, ctx.answer, ctx); } });
  if (!state.pins.length) {
    fill(el, h("div", { class: "row between" }, h("p", { class: "muted" }, "Pin up to four plans to compare them as columns."), button));
    el.classList.add("slim");
    return;
  }
  el.classList.remove("slim");
  const columns = state.pins.map((text) => ({ text, told: kept.get(text) }));
  for (const { text } of columns.filter((each) => !each.told && !asking.has(each.text))) {
    // Asked once each: a second question of the same kind would give up the first.
    asking.add(text);
    ask("estimate", questionOf(text), { kind: `pin ${text}` }).then((answer) => { kept.set(text, answer); pins(el, ctx.answer, ctx); }, () => { state.pins = state.pins.filter((p) => p !== text); write(); }).finally(() => asking.delete(text));
  }
  const all = [{ text: null, told }, ...columns.filter((c) => c.told)];
  const rows = [
    ["Model", (t) => t.question.model], ["Hardware", (t) => `${k.count(Number(t.question.gpus))} \u00d7 ${t.question.on}`], ["Strategy", (t) => h("code", { text: t.question.strategy })],
    ["Per step", (t) => k.seconds(t.headline.step_seconds[0]), (t) => t.headline.step_seconds[0]], ["Whole run", (t) => k.days(t.headline.days?.[0]), (t) => t.headline.days?.[0]],
    ["Rent", (t) => k.dollars(t.headline.usd?.[0]), (t) => t.headline.usd?.[0]], ["Energy", (t) => k.energy(t.headline.joules?.[0]), (t) => t.headline.joules?.[0]],
    ["MFU", (t) => k.percent(t.headline.mfu[0])], ["Exposed communication", (t) => k.percent(t.headline.exposed_share)], ["Memory", (t) => k.gib(t.headline.memory_bytes[0])],
  ];
  fill(el, h("div", { class: "row between" }, h("h2", { text: "Pinned plans" }), button),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Pinned plans" }, h("table", { class: "compare" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen", text: "Quantity" })), all.map((c, i) => h("th", { scope: "col" }, c.text === null ? "now" : [`plan ${i} `,
        h("button", { type: "button", class: "link", text: "open", onclick: () => open(c.text, ctx) }), " ", h("button", { type: "button", class: "link", text: "remove", "aria-label": `remove plan ${i}`, onclick: () => { state.pins = state.pins.filter((p) => p !== c.text); write(); pins(el, ctx.answer, ctx); } })])))),
      h("tbody", {}, rows.map(([name, cell, value]) => h("tr", {}, h("th", { scope: "row", text: name }), all.map((c, i) => h("td", {}, cell(c.told), i && value ? [" ", delta(value(c.told), value(told))] : null))))))));
}

function open(text, ctx) {
  const params = new URLSearchParams(text);
  state.q = Object.fromEntries([...params].filter(([key]) => key !== "set"));
  state.set = params.getAll("set");
  ctx.refresh();
}
