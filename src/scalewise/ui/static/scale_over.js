// Scale view over any quantity: curves, or a map of two quantities, as `scale --over` answers.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { addTotals, SCALE_METRICS } from "./metrics.js";
import { question, state } from "./state.js";

const { h, fill } = k;

const LOW = new Set(["days", "usd", "joules"]);

let answer = null,
  asked = "";

const list = (text, mark) =>
  text
    .split(mark)
    .map((t) => t.trim())
    .filter(Boolean);

export async function update(el) {
  const body = {
    question: question({ strategy: null }),
    over: list(state.v.over, ";"),
    templates: list(state.v.curves, ","),
    knee: Number(state.v.knee) || 0.5,
  };
  const key = JSON.stringify(body);
  if (key !== asked || !answer) {
    asked = key;
    fill(el.querySelector("#says"), "\u00a0");
    try {
      answer = await ask("over", body, { kind: "scale" });
    } catch (error) {
      if (error.name === "AbortError") return;
      asked = "";
      fill(el.querySelector("#says"), k.refusal(error));
      return;
    }
    for (const series of answer.series)
      series.points = series.cells
        .filter((cell) => cell.point && !cell.infeasible)
        .map((cell) => ({
          ...cell.point,
          place: cell.place,
          returned: cell.per_doubling,
          cause: cell.cause,
        }));
    addTotals({ curves: answer.series, tokens: answer.tokens });
  }
  paint(el);
}

export function paint(el) {
  if (!answer || !el.querySelector("#curve")) return;
  const { words } = answer;
  fill(el.querySelector("#says"), words.best.join(" "));
  fill(
    el.querySelector("#sayings"),
    sentences([
      ["Knee", words.knees],
      ["Cause", words.causes],
      ["Best strategy by value", words.strategies],
      ["Crossovers", words.crossovers],
      ["Infeasible", words.missing],
      ["Warnings", answer.warnings],
    ]),
  );
  points(el.querySelector("#points"));
  fill(el.querySelector("#bias"), answer.title);
  k.mark("answer");
  const metric = metricOf(state.v.metric);
  if (answer.axes.length > 1) map(el.querySelector("#curve"), metric);
  else curves(el.querySelector("#curve"), metric);
}

function metricOf(name) {
  const metric = SCALE_METRICS[name] || SCALE_METRICS.rate;
  if (name !== "returned") return metric;
  return { ...metric, label: "Per doubling", axis: "change per doubling of the quantity" };
}

// Paragraphs under headings, those without a sentence left out.
export const sentences = (parts) =>
  parts
    .filter(([, texts]) => texts.length)
    .map(([title, texts]) =>
      h(
        "div",
        {},
        h("h2", { text: title }),
        h(
          "ul",
          {},
          texts.map((text) => h("li", {}, spread(text))),
        ),
      ),
    );

// "best: 8 to 16 fsdp; 16 to 32 hsdp" as a list.
function spread(text) {
  const at = text.indexOf(": "),
    parts = text.slice(at + 2).split("; ");
  return at < 0 || parts.length < 2
    ? text
    : [
        h("b", { text: text.slice(0, at) }),
        h(
          "ul",
          { class: "steps" },
          parts.map((part) => h("li", { text: part })),
        ),
      ];
}

const titleOf = (axis) => axis.label + (axis.unit ? ` (${axis.unit})` : "");
const isKnown = (v) => v !== null && v !== undefined;
const at = (p) => answer.axes.map((axis, i) => axis.shown[p.place[i]]);
const valueText = (metric, p) => (isKnown(metric.value(p)) ? metric.format(metric.value(p)) : "-");

const rows = (metric) =>
  answer.series.flatMap((series) =>
    series.points.map((p) => ({
      curve: series.name,
      ...Object.fromEntries(answer.axes.map((axis, i) => [axis.name, axis.texts[p.place[i]]])),
      strategy: p.strategy,
      value: metric.value(p),
    })),
  );

const hover = (metric, p) =>
  [
    `<b>${at(p).join(", ")}</b>, ${p.strategy}`,
    `${metric.label}: ${valueText(metric, p)}`,
    `step ${k.seconds(p.step_seconds)}, MFU ${k.percent(p.mfu)}`,
    ...(p.cause ? [`${k.signed(-p.cause.loss)} tok/s/GPU: ${p.cause.name}`] : []),
  ].join("<br>");

function figure(el, metric, spec) {
  c.draw(el, {
    rows: rows(metric),
    name: `scale-${state.q.model}-over-${answer.axes.map((axis) => axis.name).join("-")}`,
    label: `${metric.axis} over ${answer.axes.map((axis) => axis.label).join(" and ")}`,
    columns: [
      ["Curve", (r) => r.curve],
      ...answer.axes.map((axis) => [axis.label, (r) => r[axis.name], "num"]),
      ["Strategy", (r) => h("code", { text: r.strategy })],
      [metric.label, (r) => (isKnown(r.value) ? metric.format(r.value) : "\u2013"), "num"],
    ],
    ...spec,
  });
}

function curves(el, metric) {
  const [axis] = answer.axes,
    numbers = axis.numbers || axis.texts.map((_, i) => i),
    log = axis.numbers && numbers[0] > 0 && numbers.at(-1) > 3.9 * numbers[0],
    few = numbers.map((_, i) => i).filter((i) => numbers.length <= 12 || i % 2 === 0);
  const traces = answer.series.flatMap((series, i) => {
    const run = series.points.filter((p) => isKnown(metric.value(p))),
      tint = c.SERIES[i % c.SERIES.length],
      x = run.map((p) => numbers[p.place[0]]);
    if (!run.length) return [];
    const bound = (p, side) => metric.bound(p, p[side] / p.tokens_per_second_per_accelerator);
    const band = metric.bound &&
      i < 3 && {
        x: [...x, ...x.toReversed()],
        y: [...run.map((p) => bound(p, "low")), ...run.toReversed().map((p) => bound(p, "high"))],
        fill: "toself",
        fillcolor: c.translucent(tint, i ? 0.07 : 0.14),
        line: { width: 0 },
        hoverinfo: "skip",
        showlegend: false,
        mode: "lines",
      };
    return [
      ...(band ? [band] : []),
      {
        x,
        y: run.map(metric.value),
        mode: "lines+markers",
        name: series.name,
        line: { color: c.color(tint), width: 2.4, dash: c.DASHES[i % 7] },
        marker: { size: 8, symbol: c.SYMBOLS[i % 7], color: c.color(tint) },
        text: run.map((p) => hover(metric, p)),
        hovertemplate: "%{text}<extra></extra>",
      },
    ];
  });
  figure(el, metric, {
    traces,
    height: 500,
    layout: {
      xaxis: c.axis(titleOf(axis), {
        type: log ? "log" : "linear",
        tickvals: few.map((i) => numbers[i]),
        ticktext: few.map((i) => axis.shown[i]),
        ...(log ? { minor: { showgrid: false } } : {}),
      }),
      yaxis: c.axis(metric.axis, { rangemode: "tozero", tickformat: metric.ticks || "~s" }),
    },
  });
}

// The map of the first curve: how far every cell is behind the best one.
function map(el, metric) {
  const [across, down] = answer.axes,
    series = answer.series[0],
    low = LOW.has(state.v.metric),
    known = series.points.map(metric.value).filter((v) => isKnown(v)),
    best = low ? Math.min(...known) : Math.max(...known),
    find = (i, j) => series.points.find((p) => p.place[0] === i && p.place[1] === j);
  const behind = (p) => {
    const v = p && metric.value(p);
    return isKnown(v) ? 1 - (low ? best / v : v / best) : null;
  };
  const z = down.shown.map((_, j) => across.shown.map((_text, i) => behind(find(i, j))));
  const most = Math.max(...z.flat().filter((v) => v !== null), 0.1),
    light = most * (c.color("accent-ink") === "#ffffff" ? 0.35 : 0.5);
  const annotations = z.flatMap((line, j) =>
    line.flatMap((v, i) =>
      v === null
        ? []
        : [
            {
              x: i,
              y: j,
              text: valueText(metric, find(i, j)),
              showarrow: false,
              font: { size: 12, color: c.color(v < light ? "accent-ink" : "ink") },
            },
          ],
    ),
  );
  const ticks = (axis) => ({
    tickvals: axis.shown.map((_, i) => i),
    ticktext: axis.shown,
    showgrid: false,
  });
  figure(el, metric, {
    traces: [
      {
        type: "heatmap",
        x: across.shown.map((_, i) => i),
        y: down.shown.map((_, j) => j),
        z,
        colorscale: [
          [0, c.color("blue")],
          [1, c.color("hair")],
        ],
        zmin: 0,
        zmax: most,
        showscale: false,
        xgap: 3,
        ygap: 3,
        hoverongaps: false,
        text: z.map((line, j) =>
          line.map((_, i) => (find(i, j) ? hover(metric, find(i, j)) : "cannot run")),
        ),
        hovertemplate: "%{text}<extra></extra>",
      },
    ],
    height: 420,
    layout: {
      xaxis: c.axis(titleOf(across), ticks(across)),
      yaxis: c.axis(titleOf(down), ticks(down)),
      annotations,
    },
  });
}

function points(el) {
  const all = answer.series.flatMap((series) =>
    series.points.map((p) => ({ curve: series.name, ...p })),
  );
  fill(
    el,
    h("h2", { text: "All points" }),
    k.table(
      all,
      [
        ...(answer.series.length > 1 ? [["Curve", (r) => r.curve, "nowrap"]] : []),
        ...answer.axes.map((axis, i) => [titleOf(axis), (r) => axis.shown[r.place[i]], "num"]),
        ["Strategy", (r) => h("code", { text: r.strategy })],
        ["Step", (r) => k.seconds(r.step_seconds), "num"],
        ["tok/s/GPU", (r) => k.grouped(r.tokens_per_second_per_accelerator), "num"],
        ["MFU", (r) => k.percent(r.mfu), "num"],
        ["Per doubling", (r) => (isKnown(r.returned) ? k.signed(r.returned) : ""), "num"],
        ["Time", (r) => k.days(r.days), "num"],
        ["Cost", (r) => k.dollars(r.usd), "num"],
        ["Cause", (r) => (r.cause ? r.cause.name : ""), "words"],
      ],
      { caption: "All points" },
    ),
  );
}
