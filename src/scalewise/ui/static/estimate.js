// Estimate view: headline numbers, terms of the step, peak memory, suggestions, cost and power.

import { explain } from "./explain.js";
import * as k from "./kit.js";
import { memory } from "./memory.js";
import { pins } from "./pins.js";
import { query } from "./state.js";
import { suggestions } from "./suggestions.js";
import { waterfall } from "./terms.js";

const { h, fill } = k;

export function show(el) {
  fill(
    el,
    h("h1", { class: "unseen", text: "Time, memory and cost of one training step" }),
    h("section", { class: "answer", id: "answer", "aria-live": "polite" }),
    h(
      "div",
      { class: "grid" },
      h("section", { class: "card wide", id: "step-time" }),
      h(
        "div",
        { class: "column" },
        h("section", { class: "card", id: "memory" }),
        h("section", { class: "card", id: "suggestions" }),
      ),
    ),
    h("section", { class: "card", id: "power" }),
    h("section", { class: "card", id: "pins" }),
  );
}

export function update(el, ctx) {
  const part = (id) => el.querySelector(`#${id}`);
  headline(part("answer"), ctx);
  const answer = ctx.answer;
  if (!answer) return;
  el.classList.toggle("stale", Boolean(ctx.refused));
  waterfall(part("step-time"), answer, explain);
  memory(part("memory"), answer);
  suggestions(part("suggestions"), answer, ctx);
  power(part("power"), answer);
  pins(part("pins"), answer, ctx);
}

export function nearest(ctx) {
  const place = document.getElementById("grade");
  if (place) fill(place, grade(ctx));
}

function figure(name, format, value, before, better) {
  if (!value) return null;
  const [now, low, high] = Array.isArray(value) ? value : [value];
  const old = Array.isArray(before) ? before[0] : before;
  return h(
    "div",
    { class: "figure" },
    h("dt", { text: name }),
    h("dd", {}, h("strong", { text: format(now) }), k.delta(now, old, better)),
    h("dd", { class: "range", text: k.range(format, low, high) }),
  );
}

function headline(el, ctx) {
  const answer = ctx.answer;
  if (ctx.refused) {
    fill(
      el,
      k.refusal(ctx.refused),
      answer &&
        h("p", { class: "muted", text: "The numbers below are those of the previous question." }),
    );
    return;
  }
  if (!answer) return;
  const head = answer.headline,
    old = ctx.before?.headline?.feasible ? ctx.before.headline : null;
  const parts = [];
  if (head.feasible) {
    parts.push(
      h(
        "dl",
        { class: "figures" },
        figure("step time", k.seconds, head.step_seconds, old?.step_seconds),
        figure("whole run", k.days, head.days, old?.days),
        figure("cost", k.dollars, head.usd, old?.usd),
        figure("energy", k.energy, head.joules, old?.joules),
        figure("MFU", k.percent, head.mfu, old?.mfu, "high"),
      ),
    );
    const slowed = answer.waterfall.find((t) => t.key === "contention")?.share || 0;
    parts.push(
      h(
        "p",
        { class: "spoken" },
        `${k.percent(head.exposed_fraction)} exposed communication`,
        slowed > 0.0005 && ` + ${k.percent(slowed)} contention`,
        ". ",
        h(
          "span",
          { class: "muted" },
          `${k.grouped(head.rate[0])} tok/s/GPU. Ranges are 80% prediction intervals. `,
          head.goodput && `Whole run: ${head.goodput}.`,
        ),
      ),
    );
  } else {
    const memory = head.infeasible.match(/^memory: (.*)/)?.[1];
    parts.push(
      h(
        "div",
        { class: "refused", role: "alert" },
        h(
          "p",
          {},
          h("b", { text: memory ? "Likely out of memory: " : "Infeasible: " }),
          memory || head.infeasible,
        ),
        h(
          "ul",
          { class: "plain" },
          answer.fixes.map((r) =>
            h(
              "li",
              {},
              r.words,
              r.step_seconds && ` (${k.seconds(r.step_seconds)} per step)`,
              " ",
              r.change &&
                h("button", {
                  type: "button",
                  text: "Apply",
                  onclick: () =>
                    ctx.change({
                      ...("gpus" in r.change ? { n: r.change.gpus } : {}),
                      strategy: r.change.strategy,
                    }),
                }),
            ),
          ),
        ),
      ),
    );
  }
  const notes = [
    ...answer.moved.map((text) => ["adjusted", text]),
    ...(moves(ctx).length ? [["change", moves(ctx).join("; ")]] : []),
    ...answer.changes.map((text) => ["override", text]),
    ...answer.notes.map((text) => ["note", text]),
  ];
  const warnings = answer.estimate.warnings;
  parts.push(
    h(
      "div",
      { class: "under" },
      h("span", { id: "grade" }, grade(ctx)),
      notes.map(([kind, text]) =>
        h("span", { class: "note" }, h("b", { text: `${kind}: ` }), text),
      ),
      h(
        "details",
        { class: "inline" },
        h("summary", {
          text: `Defaults (${answer.defaults.length})${warnings.length ? `, warnings (${warnings.length})` : ""}`,
        }),
        h(
          "ul",
          { class: "plain" },
          warnings.map((t) => h("li", {}, h("b", { text: "warning: " }), t)),
          answer.defaults.map((t) => h("li", { text: t })),
        ),
      ),
    ),
  );
  fill(el, parts);
  k.mark("answer");
}

function moves(ctx) {
  const old = ctx.before?.question,
    now = ctx.answer.question;
  if (!old) return [];
  const names = {
    model: "model",
    on: "hardware",
    gpus: "GPUs",
    batch: "global batch",
    seq: "sequence length",
    precision: "precision",
    stack: "stack",
    strategy: "strategy",
    tokens: "tokens",
  };
  return Object.keys(names)
    .filter((key) => (old[key] || "") !== (now[key] || "") && key !== "tokens")
    .map((key) => `${names[key]} ${old[key] || "default"} \u2192 ${now[key] || "default"}`);
}

function grade(ctx) {
  const near = ctx.near;
  if (!near) return h("span", { class: "grade wait", text: "Comparing with measured runs \u2026" });
  const words = {
    inside: "Close to measured runs",
    edge: "At the edge of measured runs",
    outside: "Extrapolation",
  }[near.grade];
  return h(
    "a",
    {
      class: `grade ${near.grade}`,
      href: `?${query({ view: "evidence" })}`,
      onclick: (event) => {
        event.preventDefault();
        ctx.go("evidence");
      },
    },
    h("i", { "aria-hidden": "true" }),
    h("b", { text: words }),
    `: ${near.words}`,
  );
}

function power(el, answer) {
  const head = answer.headline;
  const rows = [
    [
      "Throughput, all GPUs",
      `${k.short(head.tokens_per_second[0])} tok/s`,
      k.range(k.short, head.tokens_per_second[1], head.tokens_per_second[2]),
    ],
    ["Model FLOP/s per GPU", `${k.significant(head.tflops)} TFLOP/s`, `HFU ${k.percent(head.hfu)}`],
    [
      "Cost per million tokens",
      k.dollars(head.usd_per_million_tokens?.[0]),
      head.usd_per_hour
        ? `${k.dollars(head.usd_per_hour)} per hour (${head.price})`
        : "price unknown",
    ],
    [
      "Energy per token, facility",
      k.joules(head.joules_per_token?.[0]),
      head.facility_watts ? `${k.watts(head.facility_watts)} in total` : "power unknown",
    ],
    ["Power per GPU", k.watts(head.watts_per_accelerator), ""],
    [
      "Tokens per GPU and step",
      k.count(head.tokens_per_accelerator),
      `grad accum ${k.count(head.num_microbatches)}`,
    ],
  ];
  fill(
    el,
    h("h2", { text: "Throughput, power and cost" }),
    h(
      "dl",
      { class: "facts" },
      rows.map(([name, value, more]) =>
        h(
          "div",
          {},
          h("dt", { text: name }),
          h("dd", { text: value }),
          h("dd", { class: "muted", text: more }),
        ),
      ),
    ),
    takeaway(answer.takeaway),
    h(
      "p",
      { class: "muted small" },
      `MFU counts ${answer.convention.words}. The step excludes failures and restarts.`,
    ),
  );
}

// Tokens per GPU from which compute takes longer than communication.
function takeaway(t) {
  if (!t) return null;
  const limit = t.limit === null ? null : k.count(Number(t.limit.toPrecision(2)));
  return h(
    "p",
    { class: "takeaway", id: "takeaway" },
    `${k.count(t.tokens)} tokens per GPU and ${t.per}: `,
    h("b", {
      text:
        limit === null
          ? "communication-bound at any batch size."
          : t.tokens >= t.limit
            ? `compute-bound, communication-bound below ${limit}.`
            : `communication-bound, compute-bound above ${limit}.`,
    }),
    h("span", {
      class: "muted",
      text:
        ` Communication ${k.seconds(t.communication)}, overlapped or exposed;` +
        ` compute ${k.seconds(t.compute)}.`,
    }),
  );
}
