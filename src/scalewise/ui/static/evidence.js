// Evidence view: predictions compared with every measured run, and the runs nearest to this one.

import { ask } from "./api.js";
import * as c from "./charts.js";
import { scatter } from "./evidence_chart.js";
import * as k from "./kit.js";
import { state, write } from "./state.js";

const { h, fill } = k;

const SPLITS = ["data only", "tensor", "context", "pipeline"];

let all = null,
  own = [];

export function show(el) {
  fill(
    el,
    h("h1", { class: "question", text: "Predictions compared with measured runs" }),
    h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("section", { class: "card", id: "near" }),
    h("div", { class: "controls", id: "knobs", style: "margin-top:18px" }),
    h(
      "div",
      { class: "split" },
      h(
        "section",
        { class: "card" },
        c.figure("scatter"),
        h("p", { class: "muted small", id: "caption" }),
      ),
      h(
        "section",
        { class: "card", id: "stats" },
        h("p", { class: "muted", role: "status", text: "Predicting all measured runs \u2026" }),
      ),
    ),
    h("section", { class: "card", id: "own", hidden: true }),
    h("section", { class: "card", id: "worst" }),
  );
  load(el);
}

async function load(el) {
  try {
    if (!all) {
      const found = await ask("evidence", null, {
        kind: "evidence",
        progress: (p) => {
          const place = el.querySelector("#stats p");
          if (place && p) place.textContent = `Predicting all measured runs: ${k.percent(p, 0)}`;
        },
      });
      all = found.rows;
      own = found.own;
    }
    knobs(el.querySelector("#knobs"), el);
    paint(el);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#stats"), k.refusal(error));
  }
}

export function update(el, ctx) {
  near(el, ctx);
}

export function nearest(ctx) {
  near(document.getElementById("view"), ctx);
}

export const theme = (el) => all && paint(el);

function near(el, ctx) {
  const place = el.querySelector("#near"),
    answer = ctx.near;
  if (!place) return;
  if (!answer) {
    fill(place, h("p", { class: "muted", text: "Comparing with measured runs \u2026" }));
    return;
  }
  const words = {
    inside: "close to measured runs",
    edge: "at the edge of measured runs",
    outside: "an extrapolation",
  }[answer.grade];
  fill(
    el.querySelector("#says"),
    "This configuration is ",
    h("b", { text: words }),
    `: ${answer.words}. `,
    "Distance is in doublings of model size, GPUs, sequence length and parallel degrees, ",
    "plus a penalty for another chip, precision or stack. Close: up to 2; edge: up to 4.",
  );
  fill(
    place,
    h("h2", { text: "Nearest measured runs" }),
    k.table(
      answer.runs,
      [
        [
          "Run",
          (r) => [
            h("b", { text: r.model }),
            ` on ${k.count(r.accelerators)}\u00d7 ${r.accelerator}`,
          ],
          "name",
        ],
        ["Strategy", (r) => h("code", { text: r.strategy || "" })],
        ["Framework", (r) => r.framework || ""],
        ["Distance", (r) => r.distance.toFixed(1), "num"],
        ["Measured, tok/s/GPU", (r) => k.grouped(r.measured), "num"],
        ["Predicted", (r) => k.grouped(r.predicted), "num"],
        ["Error", (r) => k.signed(r.error), "num"],
        [
          "Source",
          (r) => h("span", { class: "muted small" }, k.linked(r.reference || r.source)),
          "wraps",
        ],
      ],
      { caption: "Nearest measured runs" },
    ),
  );
}

function chosen(list = all) {
  const v = state.v,
    [low, high] = { small: [0, 16], middle: [17, 256], large: [257, 1e9] }[v.each] || [0, 1e9],
    [from, to] = { 3: [0, 3e9], 20: [3e9, 20e9], inf: [20e9, 1e15] }[v.model_size] || [0, 1e15];
  return list.filter(
    (r) =>
      (!v.source || r.source === v.source) &&
      (!v.split || r.split === v.split) &&
      (!v.layers || r.layers === v.layers) &&
      (!v.chip || r.accelerator === v.chip) &&
      (!v.framework || r.framework === v.framework) &&
      (!v.each || (r.accelerators >= low && r.accelerators <= high)) &&
      (!v.model_size || ((r.parameters || 0) > from && (r.parameters || 0) <= to)),
  );
}

function knobs(el, whole) {
  const pick = (label, key, options) =>
    h(
      "label",
      { class: "field" },
      label,
      h(
        "select",
        {
          onchange: (e) => {
            state.v[key] = e.target.value;
            write();
            paint(whole);
          },
        },
        h("option", { value: "", text: "all" }),
        options.map(([value, text]) =>
          h("option", { value, text, selected: state.v[key] === value }),
        ),
      ),
    );
  const counted = (key) =>
    Object.entries(
      all.reduce((found, r) => {
        if (r[key]) found[r[key]] = (found[r[key]] || 0) + 1;
        return found;
      }, {}),
    )
      .sort((a, b) => b[1] - a[1])
      .map(([value, n]) => [value, `${value} (${n})`]);
  fill(
    el,
    pick("GPU", "chip", counted("accelerator")),
    pick("Framework", "framework", counted("framework")),
    pick("Source", "source", counted("source")),
    pick(
      "Strategy",
      "split",
      SPLITS.map((s) => [
        s,
        `${s === "data only" ? s : `with ${s}`} (${all.filter((r) => r.split === s).length})`,
      ]),
    ),
    pick("GPUs", "each", [
      ["small", "up to 16"],
      ["middle", "17 to 256"],
      ["large", "more than 256"],
    ]),
    pick("Layers", "layers", counted("layers")),
    pick("Model", "model_size", [
      ["3", "up to 3B"],
      ["20", "3B to 20B"],
      ["inf", "more than 20B"],
    ]),
  );
}

const quantile = (sorted, q) => {
  if (!sorted.length) return null;
  const at = q * (sorted.length - 1),
    low = Math.floor(at);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
};

// Median and 90th percentile of the absolute error, bias, and coverage of the 80% interval.
function errorsOf(list) {
  const sizes = list.map((r) => Math.abs(r.error)).sort((a, b) => a - b),
    signs = list.map((r) => r.error).sort((a, b) => a - b),
    inside = list.filter((r) => r.measured >= r.low && r.measured <= r.high).length;
  return {
    count: list.length,
    median: k.percent(quantile(sizes, 0.5)),
    p90: k.percent(quantile(sizes, 0.9)),
    bias: k.signed(quantile(signs, 0.5)),
    inside: list.length ? k.percent(inside / list.length, 0) : "\u2013",
  };
}

const predicted = (r) => r.measured && r.predicted;

const leftOut = (r) => ({
  measured: r.measured,
  error: r.left_out / r.measured - 1,
  low: r.left_out_low,
  high: r.left_out_high,
});

function paint(el) {
  if (!el.querySelector("#scatter")) return;
  const rows = chosen(),
    fitted = rows.filter((r) => r.judged && predicted(r)),
    held = rows.filter((r) => r.held_out && predicted(r)),
    mine = chosen(own).filter(predicted);
  const left = rows.length - fitted.length - held.length,
    fit = errorsOf(fitted),
    unseen = errorsOf(fitted.filter((r) => r.left_out).map(leftOut)),
    out = errorsOf(held);
  const reasons = Object.entries(
    rows
      .filter((r) => !r.judged && !r.held_out)
      .reduce((found, r) => {
        const why = r.reason
          ? r.reason.split(":")[0].slice(0, 70)
          : r.status === "unmeasured"
            ? "no throughput published"
            : "incomplete or inconsistent";
        found[why] = (found[why] || 0) + 1;
        return found;
      }, {}),
  ).sort((a, b) => b[1] - a[1]);
  const facts = [
    ["", "in a fit", "source left out", "in none"],
    ["runs", k.count(fitted.length), k.count(unseen.count), k.count(held.length)],
    ["median error", fit.median, unseen.median, out.median],
    ["90th percentile", fit.p90, unseen.p90, out.p90],
    ["bias (median, signed)", fit.bias, unseen.bias, out.bias],
    ["inside the 80% interval", fit.inside, unseen.inside, out.inside],
  ];
  fill(
    el.querySelector("#stats"),
    h("h2", { text: "Prediction error" }),
    fitted.length + held.length
      ? null
      : h("p", { class: "muted", text: "No run matches these filters." }),
    h(
      "table",
      { class: "errors" },
      h("caption", { class: "unseen", text: "Prediction error" }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          facts[0].map((name, i) =>
            h(
              "th",
              { scope: "col", class: i ? "num" : null },
              name || h("span", { class: "unseen", text: "Quantity" }),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        facts.slice(1).map(([name, ...cells]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row", text: name }),
            cells.map((text) => h("td", { class: "num", text })),
          ),
        ),
      ),
    ),
    left > 0 &&
      h(
        "details",
        { class: "small" },
        h("summary", { text: `${k.count(left)} runs excluded` }),
        h(
          "ul",
          { class: "plain small muted" },
          reasons.slice(0, 12).map(([why, n]) => h("li", {}, h("b", { text: n }), ` ${why}`)),
        ),
      ),
    h(
      "p",
      { class: "muted small" },
      "In a fit: used for calibration, so the error is in-sample. ",
      "Source left out: the same runs, predicted by a fit without their source. ",
      "In none: published numbers are incomplete, second-hand or inconsistent. ",
      "Degraded runs are far slower than similar runs of their sweep, " +
        "unexplained by any published column; they are excluded.",
    ),
  );
  const sentence = (words, list, e) =>
    list.length
      ? `${words}: ${k.count(list.length)} run${list.length > 1 ? "s" : ""}, ` +
        `median error ${e.median}, 90% below ${e.p90}, bias ${e.bias}. `
      : "";
  fill(
    el.querySelector("#caption"),
    sentence("Filled: in a fit", fitted, fit),
    sentence("Open diamonds: in no fit", held, out),
    sentence("Stars: measured here", mine, errorsOf(mine)),
  );
  measuredHere(el.querySelector("#own"));
  scatter(el.querySelector("#scatter"), { fitted, held, own: mine, rows });
  const worst = fitted.toSorted((a, b) => Math.abs(b.error) - Math.abs(a.error)).slice(0, 8);
  fill(
    el.querySelector("#worst"),
    h("h2", { text: "Largest errors" }),
    k.table(
      worst,
      [
        ["Run", (r) => r.id],
        ["Strategy", (r) => h("code", { text: r.strategy || "" })],
        ["Measured", (r) => k.grouped(r.measured), "num"],
        ["Predicted", (r) => k.grouped(r.predicted), "num"],
        ["Error", (r) => k.signed(r.error), "num"],
        ["Source", (r) => h("span", { class: "muted small", text: r.source })],
      ],
      { caption: "Largest errors" },
    ),
  );
}

// Runs of the user, apart from the published ones.
function measuredHere(el) {
  const rows = chosen(own);
  el.hidden = !own.length;
  fill(
    el,
    h("h2", {
      text: `Measured here: ${k.count(rows.length)} of ${k.count(own.length)} runs`,
    }),
    h("p", {
      class: "muted small",
      text: "From --records. Not part of the errors above.",
    }),
    k.table(
      rows,
      [
        [
          "Run",
          (r) => [
            h("b", { text: r.model || r.id }),
            ` on ${k.count(r.accelerators)}\u00d7 ${r.accelerator}`,
          ],
          "name",
        ],
        ["Strategy", (r) => h("code", { text: r.strategy || "" })],
        ["Measured, tok/s/GPU", (r) => k.grouped(r.measured), "num"],
        ["Predicted", (r) => k.grouped(r.predicted), "num"],
        ["Error", (r) => k.signed(r.error), "num"],
        [
          "Not predicted because",
          (r) => h("span", { class: "muted small", text: r.predicted ? "" : r.reason || "" }),
          "wraps",
        ],
      ],
      { caption: "Runs measured here" },
    ),
  );
}
