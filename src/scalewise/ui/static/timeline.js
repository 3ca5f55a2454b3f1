// Timeline view: one simulated step by stream or stage, linked to the terms of the estimate.

import { ask } from "./api.js";
import { tint } from "./charts.js";
import { derivation } from "./explain.js";
import * as k from "./kit.js";
import { memoryPanel, panel } from "./lanes.js";
import { openPerfetto, savePicture, saveTrace } from "./perfetto.js";
import { question } from "./state.js";
import { termRow } from "./terms.js";

const { h, fill } = k;

const HOW =
  "Point at a bar, or Tab to a panel and use the arrow keys: its term is highlighted, with its formula.";

let answer = null,
  asked = "",
  explained = null,
  terms = [];

export function show(el) {
  answer = null;
  asked = "";
  fill(
    el,
    h("h1", { class: "question", text: "One training step, simulated" }),
    h("p", {
      class: "says",
      id: "says",
      "aria-live": "polite",
      text: "Simulating the step \u2026",
    }),
    h(
      "div",
      { class: "split" },
      h(
        "div",
        { class: "column" },
        h("section", { class: "card", id: "panels" }),
        h("section", { class: "card", id: "facts" }),
      ),
      h(
        "aside",
        { class: "card", id: "counted", "aria-label": "Terms of the estimate" },
        h("div", { id: "terms" }),
        h("div", { id: "formula", "aria-live": "polite" }),
      ),
    ),
  );
}

export async function update(el, ctx) {
  const body = question(),
    key = JSON.stringify(body);
  if (key === asked && answer) {
    paint(el, ctx);
    return;
  }
  asked = key;
  try {
    explained = null;
    answer = await ask("timeline", body, { kind: "timeline" });
    k.mark("answer");
    paint(el, ctx);
    explained = (await ask("explain", body, { kind: "explain-step" })).explained;
    formula(el, terms);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#says"), k.refusal(error));
  }
}

// Describe a bar, and highlight the terms that contain its time.
function say(tip, words, keys, whole) {
  const counted = keys.filter((key) => whole.querySelector(`#terms [data-key=${key}]`));
  const overlapped = keys.length && !counted.length;
  tip.textContent = `${words}. ${overlapped ? "Overlapped with compute: in no term of the sum." : ""}`;
  light(whole, counted);
  if (counted.length) formula(whole, counted);
}

function light(whole, keys) {
  for (const button of whole.querySelectorAll("#terms [data-key]"))
    button.classList.toggle("lit", keys.includes(button.dataset.key));
}

// Highlight the bars of a term.
function pick(whole, key) {
  const places = whole.querySelector("#panels");
  places.classList.toggle("picking", Boolean(key));
  for (const bar of places.querySelectorAll(".bar-of"))
    bar.classList.toggle("lit", Boolean(key) && answer.links[bar.link].includes(key));
  if (key) {
    light(whole, [key]);
    formula(whole, [key]);
  }
}

function waterfall(el, whole, ctx) {
  let from = 0;
  const list = ctx.answer?.waterfall || [];
  fill(
    el,
    h("h2", { text: "Terms of the estimate" }),
    h("p", { class: "muted small", text: "Point at a term, or Tab to it, to highlight its bars." }),
    h(
      "ol",
      { class: "fall" },
      list.map((t) => {
        const left = from;
        from += t.share;
        return termRow(t, left, {
          "data-key": t.key,
          onpointerenter: () => pick(whole, t.key),
          onpointerleave: () => pick(whole, null),
          onfocus: () => pick(whole, t.key),
          onblur: () => pick(whole, null),
        });
      }),
    ),
  );
  const largest = list.reduce((a, b) => (b.share > a.share ? b : a), list[0]);
  terms = largest ? [largest.key] : [];
  light(whole, terms);
  formula(whole, terms);
}

// The derivation of the first term; the others by name.
function formula(whole, keys) {
  const el = whole.querySelector("#formula");
  if (!el) return;
  terms = keys;
  const [first, ...others] = keys
    .map((key) => explained?.find((e) => e.key === key))
    .filter(Boolean);
  fill(
    el,
    h("h2", { text: first ? first.title : "Formula" }),
    first
      ? derivation(first)
      : h("p", { class: "muted", text: explained ? HOW : "Loading the derivation \u2026" }),
    others.length
      ? h("p", {
          class: "muted small",
          text: `Also in: ${others.map((e) => `${e.title} (${e.result})`).join(", ")}.`,
        })
      : null,
  );
}

// Time of each lane by kind, as a table.
function lanes() {
  const rows = answer.panels[0].rows.flatMap((row) => {
    const kinds = {};
    for (const [start, end, color] of row.bars) {
      const found = (kinds[color] ||= {
        lane: row.name,
        kind: answer.legend.find((l) => l.key === color)?.name || color,
        bars: 0,
        seconds: 0,
      });
      found.bars += 1;
      found.seconds += end - start;
    }
    return Object.values(kinds);
  });
  return h(
    "details",
    { class: "small muted" },
    h("summary", { text: "Table" }),
    k.table(
      rows,
      [
        ["Lane", (r) => r.lane],
        ["Kind", (r) => r.kind],
        ["Bars", (r) => k.count(r.bars), "num"],
        ["Time", (r) => k.seconds(r.seconds), "num"],
      ],
      { caption: "Time of each lane by kind" },
    ),
  );
}

function paint(el, ctx) {
  const place = el.querySelector("#panels");
  if (!place) return;
  const same = Math.abs(answer.difference) < 0.0005;
  fill(
    el.querySelector("#says"),
    h("b", { text: answer.strategy }),
    ", simulated step time ",
    h("b", { text: k.seconds(answer.step_seconds) }),
    same
      ? ": within 0.05% of the analytical estimate."
      : `: ${k.signed(answer.difference, 2)} relative to the analytical estimate.`,
    answer.stages > 1 &&
      ` ${k.count(answer.stages_shown)} of ${k.count(answer.stages)} stages are shown.`,
  );
  const tip = h("p", { class: "tip muted small", text: HOW, role: "status" });
  const used = new Set(
    answer.panels.flatMap((p) => p.rows.flatMap((r) => r.bars.map((b) => b[2]))),
  );
  fill(
    place,
    h(
      "p",
      { class: "legend" },
      answer.legend
        .filter((l) => used.has(l.key))
        .map((l) =>
          h(
            "span",
            {},
            h("i", { class: "swatch", style: `background:${tint(answer.colors[l.key])}` }),
            l.name,
          ),
        ),
    ),
    tip,
    answer.panels.map((p) =>
      panel(p, place, answer, (words, keys) => say(tip, words, keys, el.closest("main"))),
    ),
    memoryPanel(place, answer),
    lanes(),
    h(
      "div",
      { class: "takeout" },
      h("button", {
        type: "button",
        text: "Open in Perfetto",
        onclick: () => openPerfetto(answer.strategy),
      }),
      h("button", {
        type: "button",
        text: "Save trace",
        onclick: saveTrace,
      }),
      h("button", {
        type: "button",
        text: "SVG",
        "aria-label": "Save the timeline as SVG",
        onclick: () => savePicture(place),
      }),
      h("button", {
        type: "button",
        text: "JSON",
        "aria-label": "Save the timeline as JSON",
        onclick: () => k.save("timeline.json", JSON.stringify(answer, null, 2), "application/json"),
      }),
    ),
  );
  waterfall(el.querySelector("#terms"), el, ctx);
  fill(
    el.querySelector("#facts"),
    h("h2", { text: "Simulated and analytical" }),
    k.table(
      answer.summary,
      [
        ["Quantity", (r) => r[0].trim()],
        ["Simulated", (r) => r[1], "num"],
        ["Analytical", (r) => r[2]],
      ],
      { caption: "Simulated and analytical" },
    ),
    answer.notes.map((text_) => h("p", { class: "muted small", text: text_ })),
  );
}

export const theme = (el, ctx) => answer && paint(el, ctx);
