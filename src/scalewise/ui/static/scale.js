// Scale view: throughput, time and cost over numbers of GPUs, with knees, crossovers and causes.

import { ask, giveUp } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { limits, limitSentence, movingLine } from "./limits.js";
import { addTotals, SCALE_METRICS } from "./metrics.js";
import { chart, curveName } from "./scale_chart.js";
import * as over from "./scale_over.js";
import { question, state, write } from "./state.js";
import { NEAR_TIE } from "./tables.js";

const { h, fill } = k;

let answer = null,
  asked = "",
  measured = { runs: [], own: [] },
  timer;

export function show(el) {
  answer = null;
  asked = "";
  fill(
    el,
    h("h1", { class: "question", text: title() }),
    h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("div", { class: "controls", id: "knobs" }),
    h(
      "section",
      { class: "card" },
      c.figure("curve"),
      h("p", { class: "muted small", id: "bias" }),
    ),
    h("section", {
      class: "card sayings flow",
      id: "sayings",
      "aria-label": "Knees, causes and crossovers",
    }),
    h("section", { class: "card", id: "points" }),
  );
}

function title() {
  const names = state.v.over.split(";").map((each) => each.split("=")[0].trim());
  return `Throughput, time and cost over ${state.v.over ? names.join(" and ") : "numbers of GPUs"}`;
}

function sizes() {
  if (state.v.sizes) return state.v.sizes;
  const n = k.read(state.q.n) || 256,
    low = Math.max(Math.min(n, 2 ** Math.floor(Math.log2(n) - 5)), 8);
  const first = n <= 2048 ? 8 : low;
  return `${first}..${Math.max(first * 256, 8)}`;
}

function request(every) {
  const { kind, curves, also, knee } = state.v;
  const list = (text) =>
    text
      .split(",")
      .map((t) => t.trim())
      .filter(Boolean);
  return {
    question: question({ strategy: null }),
    sizes: sizes(),
    kind,
    templates: list(curves),
    also: list(also),
    knee: Number(knee) || 0.5,
    every,
  };
}

export async function update(el, ctx) {
  knobs(el.querySelector("#knobs"), el, ctx);
  el.querySelector("h1").textContent = title();
  if (state.v.over) {
    asked = "";
    clearTimeout(timer);
    giveUp("every");
    await over.update(el);
    return;
  }
  const body = request(false),
    key = JSON.stringify(body);
  if (key === asked && answer) {
    paint(el, ctx);
    return;
  }
  asked = key;
  clearTimeout(timer);
  giveUp("every");
  try {
    answer = await ask("scale", body, { kind: "scale" });
    addTotals(answer);
    paint(el, ctx);
    overlay(el, ctx);
    timer = setTimeout(() => refine(el, ctx), 900);
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(el.querySelector("#says"), k.refusal(error));
  }
}

export const theme = (el, ctx) => (state.v.over ? over.paint(el) : answer && paint(el, ctx));

// Evaluate every strategy in the background.
async function refine(el, ctx) {
  const body = request(true),
    mine = asked;
  const status = el.querySelector("#every");
  try {
    const all = await ask("scale", body, {
      kind: "every",
      progress: (p) => {
        const bar = el.querySelector("#every");
        if (bar) bar.textContent = `Evaluating every strategy: ${k.percent(p, 0)}`;
      },
    });
    if (mine !== asked) return;
    const before = answer;
    addTotals(all);
    all.checked = all.curves
      .flatMap((curve) => curve.points)
      .reduce((sum, p) => sum + (p.evaluated || 0), 0);
    all.gain = Math.max(
      0,
      ...all.curves.flatMap((curve, i) =>
        curve.points.map((p) => {
          const old = before.curves[i]?.points.find((o) => o.accelerators === p.accelerators);
          return old ? p.tokens_per_second / old.tokens_per_second - 1 : 0;
        }),
      ),
    );
    // Within a tie the simpler strategies stay.
    if (all.gain > NEAR_TIE) answer = all;
    else Object.assign(answer, { every: true, checked: all.checked, gain: all.gain });
    paint(el, ctx);
  } catch {
    if (status) status.textContent = "";
  }
}

async function overlay(el, ctx) {
  try {
    measured = await ask("overlay", question(), { kind: "overlay" });
    if (answer) paint(el, ctx);
  } catch {
    measured = { runs: [], own: [] };
  }
}

function set(fields, el, ctx) {
  Object.assign(state.v, fields);
  write();
  update(el, ctx);
}

function knobs(el, whole, ctx) {
  if (el.contains(document.activeElement) && el.childElementCount) return;
  const v = state.v,
    field = (label, key, value, more = {}) =>
      h(
        "label",
        { class: "field" },
        label,
        h("input", {
          type: "text",
          value,
          size: 9,
          "data-field": key,
          onchange: (e) => set({ [key]: e.target.value.trim() }, whole, ctx),
          ...more,
        }),
      );
  const more = [
    field("GPUs", "sizes", sizes(), { title: "8..2048 doubles; or a list: 8,64,512" }),
    field("Strategies", "curves", v.curves, {
      size: 14,
      title: "best, fsdp, hsdp64, ddp, zero1, tp8-pp8-zero1, best-tp2; separated by commas",
    }),
    field("Over", "over", v.over, {
      size: 22,
      placeholder: "network=100..3200Gbit/s",
      title:
        "Another quantity on the axis, such as seq=4096..65536, ga=1..16 or cluster.pue=1.1,1.3; " +
        "two of them, separated by a semicolon, give a map",
    }),
    field("Compare with", "also", v.also, {
      size: 12,
      placeholder: "dgx-a100",
      title: "Other clusters, separated by commas",
    }),
    h(
      "label",
      { class: "field" },
      "Knee below",
      h("input", {
        type: "range",
        min: 5,
        max: 95,
        step: 5,
        value: 100 * v.knee,
        "aria-label": "Knee: marginal efficiency below which adding GPUs is not worth it",
        oninput: (e) => {
          e.target.nextSibling.textContent = `${e.target.value}%`;
        },
        onchange: (e) => set({ knee: String(e.target.value / 100) }, whole, ctx),
      }),
      h("span", { text: `${Math.round(100 * v.knee)}%` }),
    ),
    field("Deadline", "deadline", v.deadline, {
      size: 5,
      placeholder: "days",
      inputmode: "decimal",
    }),
    field("Budget", "budget", v.budget, { size: 6, placeholder: "$" }),
  ];
  fill(
    el,
    k.segmented(
      "Scaling",
      [
        ["strong", "Strong: fixed batch", "The global batch is the same at every number of GPUs"],
        ["weak", "Weak: batch per GPU", "The global batch grows with the number of GPUs"],
      ],
      v.kind,
      (kind) => set({ kind }, whole, ctx),
    ),
    k.segmented(
      "Metric",
      Object.entries(SCALE_METRICS).map(([key, { label }]) => [key, label]),
      v.metric,
      (metric) => set({ metric }, whole, ctx),
    ),
    innerWidth > 640
      ? more
      : h(
          "details",
          {},
          h("summary", { text: "GPUs, strategies, knee, deadline, budget" }),
          h("div", { class: "controls", style: "margin:10px 0 0" }, more),
        ),
  );
}

function paint(el, ctx) {
  if (!answer || state.v.over || !el.querySelector("#curve")) return;
  const metric = SCALE_METRICS[state.v.metric] || SCALE_METRICS.rate;
  says(el.querySelector("#says"));
  sayings(el.querySelector("#sayings"));
  points(el.querySelector("#points"));
  bias(el.querySelector("#bias"));
  k.mark("answer");
  const lines = movingLine(answer.curves[0], Number(answer.question.gpus), {
    live: (key) => {
      for (const input of el.querySelectorAll(`[data-field=${key}]`)) input.value = state.v[key];
      says(el.querySelector("#says"));
    },
    done: () => set({}, el, ctx),
  });
  const data = { answer, measured, limits: limits(), lines };
  chart(el.querySelector("#curve"), metric, data, ctx);
}

function says(el) {
  const first = answer.curves[0],
    runs = first.points.filter((p) => !p.infeasible),
    n = Number(answer.question.gpus);
  if (runs.length < 2) {
    fill(el, answer.words.missing[0] || "Fewer than two numbers of GPUs can run this.");
    return;
  }
  // The step up from the current number of GPUs, or the last one.
  const larger = runs.findIndex((p, i) => i > 0 && p.accelerators > n),
    at = larger < 0 ? runs.length - 1 : larger,
    [a, b] = runs.slice(at - 1, at + 1);
  const batch =
    answer.kind === "strong"
      ? `Strong scaling, global batch ${k.count(answer.batch)}`
      : `Weak scaling, ${k.trimmed(answer.batch)} sequences per GPU`;
  const cost = a.usd && b.usd ? `, ${k.significant(b.usd / a.usd)}\u00d7 the cost` : "",
    speed = k.significant(b.tokens_per_second / a.tokens_per_second);
  const knee = answer.knees.find((x) => x.label === first.label && x.cluster === first.cluster);
  fill(
    el,
    `${batch}. `,
    h("b", {
      text: `${k.count(a.accelerators)} \u2192 ${k.count(b.accelerators)} GPUs: ${speed}\u00d7 the throughput${cost}.`,
    }),
    knee
      ? ` Knee at ${k.count(knee.previous)}: marginal efficiency ${k.percent(knee.returned, 0)} beyond it. `
      : ` No knee up to ${k.count(runs.at(-1).accelerators)} GPUs. `,
    h("b", { id: "window", text: limitSentence(first.points) }),
  );
}

// Prediction error on measured runs of this model size and chip.
function bias(el) {
  const b = measured.bias,
    own = measured.own || [],
    parts = [];
  if (b?.count)
    parts.push(
      `${k.count(b.count)} published runs of this model size and chip: median error ` +
        `${k.signed(b.median)} (plus: predicted too fast), ` +
        `80% between ${k.signed(b.low, 0)} and ${k.signed(b.high, 0)}. `,
    );
  else if (measured.bias) parts.push("No published run has this model size, chip and precision. ");
  if (measured.own_count)
    parts.push(`${own.length} of ${measured.own_count} runs measured here match this curve. `);
  fill(
    el,
    parts,
    "Throughput is that of steps: failures, restarts and traffic of other jobs lower what is measured.",
  );
}

function sayings(el) {
  const parts = [
    ["Knee", answer.words.knees],
    ["Cause of the loss", answer.words.causes],
    ["Best strategy by number of GPUs", answer.words.best],
    ["Crossovers", answer.words.crossovers],
    ["Infeasible", answer.words.missing],
    ["Warnings", answer.warnings],
  ];
  const status = answer.every
    ? `Evaluated ${k.count(answer.checked)} strategies: ` +
      (answer.gain > NEAR_TIE
        ? `up to ${k.percent(answer.gain)} faster.`
        : `none is faster by more than a tie (${k.percent(NEAR_TIE)}).`)
    : "";
  fill(
    el,
    h("p", { class: "muted small", id: "every", role: "status", text: status }),
    over.sentences(parts),
  );
}

function points(el) {
  const rows = answer.curves.flatMap((curve) =>
    curve.points.map((p) => ({ curve: curveName(answer, curve), ...p })),
  );
  const many = answer.curves.length > 1;
  fill(
    el,
    h("h2", { text: "All points" }),
    k.table(
      rows,
      [
        ...(many ? [["Curve", (r) => r.curve, "nowrap"]] : []),
        ["GPUs", (r) => k.count(r.accelerators), "num"],
        ["Strategy", (r) => h("code", { text: r.strategy })],
        ["Step", (r) => k.seconds(r.step_seconds), "num"],
        [
          "tok/s (80%)",
          (r) => [
            k.short(r.tokens_per_second),
            h("br"),
            h("span", {
              class: "muted small",
              text: k.range(k.short, r.low * r.accelerators, r.high * r.accelerators),
            }),
          ],
          "num",
        ],
        ["MFU", (r) => k.percent(r.mfu), "num"],
        ["Marginal", (r) => k.percent(r.returned, 0), "num"],
        ["Time", (r) => k.days(r.days), "num"],
        ["Cost", (r) => k.dollars(r.usd), "num"],
        ["Energy", (r) => k.energy(r.joules), "num"],
        [
          "Cause",
          (r) =>
            r.infeasible
              ? h("span", { class: "bad", text: r.infeasible.slice(0, 60) })
              : r.cause
                ? `${r.cause.name} (${k.percent(r.cause.share, 0)})`
                : "",
          "words",
        ],
      ],
      { caption: "All points", selected: (r) => r.accelerators === Number(answer.question.gpus) },
    ),
  );
}
