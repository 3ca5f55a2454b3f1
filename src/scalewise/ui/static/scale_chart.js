// The chart of the scale view: curves with intervals, measured runs, best strategy by size, limits.

import * as c from "./charts.js";
import * as k from "./kit.js";
import { meets } from "./limits.js";
import { state } from "./state.js";

const { h } = k;

// The strip below the axis that names the best strategy, and the plot above it.
const STRIP = [0, 0.07];
const PLOT = [0.13, 1];

export const curveName = (answer, curve) =>
  new Set(answer.curves.map((x) => x.cluster)).size > 1
    ? `${curve.cluster}, ${curve.label}`
    : curve.label;

const runnable = (points) => points.filter((p) => !p.infeasible);

// `data`: the answer, measured runs, limits and lines that can be dragged.
export function chart(el, metric, data, ctx) {
  const { answer, limits, lines } = data;
  const best = answer.curves[0];
  const marks = verticalMarks(answer, best);
  const area = allowed(best, limits);
  const strip = strategyStrip(el, answer, best);
  c.draw(
    el,
    {
      traces: [
        ...answer.curves.flatMap((curve, i) => curveTraces(answer, metric, curve, i)),
        ...measuredTraces(answer, data.measured),
        ...strip.traces,
      ],
      rows: rowsOf(answer, metric),
      name: `scale-${state.q.model}-${state.v.metric}`,
      label: `${metric.axis} over GPUs: ${answer.curves.map((x) => curveName(answer, x)).join(", ")}`,
      height: 500,
      lines,
      columns: [
        ["Curve", (r) => r.curve],
        ["GPUs", (r) => k.count(r.accelerators), "num"],
        ["Strategy", (r) => h("code", { text: r.strategy })],
        [metric.label, (r) => (isNumber(r.value) ? metric.format(r.value) : "\u2013"), "num"],
      ],
      layout: {
        ...axes(answer.sizes, metric),
        shapes: [...marks.shapes, ...area.shapes],
        annotations: [...strip.notes, ...marks.notes, ...area.notes],
      },
    },
    {
      plotly_click: (event) => {
        const here = event.points[0]?.customdata;
        if (here) ctx.change({ n: here });
      },
    },
  );
}

const isNumber = (v) => v !== null && v !== undefined;

function axes(sizes, metric) {
  return {
    xaxis: c.axis("GPUs", {
      ...c.powers(sizes),
      range: [Math.log10(sizes[0]) - 0.12, Math.log10(sizes.at(-1)) + 0.12],
      anchor: "y2",
    }),
    yaxis: c.axis(metric.axis, {
      type: metric.log ? "log" : "linear",
      domain: PLOT,
      rangemode: "tozero",
      tickformat: metric.ticks || "~s",
      dtick: metric.log ? 1 : null,
    }),
    yaxis2: { domain: STRIP, range: [0, 1], visible: false, fixedrange: true },
  };
}

// A curve: its 80% interval, for the first one perfect scaling, and its line.
function curveTraces(answer, metric, curve, i) {
  const run = runnable(curve.points).filter((p) => isNumber(metric.value(p)));
  if (!run.length) return [];
  const tint = c.SERIES[i % c.SERIES.length],
    x = run.map((p) => p.accelerators),
    traces = [];
  if (metric.bound && i < 3) {
    const at = (p, side) => metric.bound(p, p[side] / p.tokens_per_second_per_accelerator);
    traces.push({
      x: [...x, ...x.toReversed()],
      y: [...run.map((p) => at(p, "low")), ...run.toReversed().map((p) => at(p, "high"))],
      fill: "toself",
      fillcolor: c.translucent(tint, i ? 0.07 : 0.14),
      line: { width: 0 },
      hoverinfo: "skip",
      showlegend: false,
      mode: "lines",
    });
  }
  if (i === 0) traces.push(idealTrace(metric, run[0], answer.sizes.at(-1)));
  traces.push({
    x,
    y: run.map(metric.value),
    mode: "lines+markers",
    name: curveName(answer, curve),
    line: { color: c.color(tint), width: 2.4, dash: c.DASHES[i % 7] },
    marker: { size: 8, symbol: c.SYMBOLS[i % 7], color: c.color(tint) },
    text: run.map((p) =>
      [
        `<b>${k.count(p.accelerators)} GPUs</b>, ${p.strategy}`,
        `${metric.label}: ${metric.format(metric.value(p))}`,
        `step ${k.seconds(p.step_seconds)}, MFU ${k.percent(p.mfu)}`,
        ...(p.cause ? [`${k.signed(-p.cause.loss)} tok/s/GPU: ${p.cause.name}`] : []),
      ].join("<br>"),
    ),
    hovertemplate: "%{text}<extra></extra>",
    customdata: x,
  });
  return traces;
}

function idealTrace(metric, first, largest) {
  const start = state.v.metric === "returned" ? 1 : metric.value(first);
  return {
    x: [first.accelerators, largest],
    y: [start, start * (largest / first.accelerators) ** metric.ideal],
    mode: "lines",
    name: "ideal",
    line: { color: c.color("soft"), width: 1, dash: "dash" },
    hoverinfo: "skip",
  };
}

// Goodput at the point next in size, of which measured steps know nothing.
function goodput(answer, size) {
  const points = answer.curves.flatMap((curve) => curve.points);
  const far = (p) => Math.abs(Math.log(p.accelerators / size));
  const next = points.reduce((a, b) => (far(b) < far(a) ? b : a), points[0]);
  return next?.goodput ?? 1;
}

// Measured runs of models of this size on this chip.
function measuredTraces(answer, measured) {
  const [low, high] = [answer.sizes[0], answer.sizes.at(-1)];
  const value = {
    tokens_per_second: (m) => m.measured * m.accelerators,
    rate: (m) => m.measured,
    mfu: (m) => m.mfu,
    days: (m) =>
      answer.tokens &&
      answer.tokens / (m.measured * m.accelerators * goodput(answer, m.accelerators)) / 86400,
  }[state.v.metric];
  if (!value) return [];
  const ink = { color: c.color("ink"), width: 1.2 };
  const dots = (runs, name, marker) => {
    const shown = runs.filter((m) => m.accelerators >= low && m.accelerators <= high);
    if (!shown.length) return [];
    return [
      {
        x: shown.map((m) => m.accelerators),
        y: shown.map(value),
        mode: "markers",
        name: `${name} (${shown.length})`,
        marker: { ...marker, line: ink },
        text: shown.map((m) =>
          [
            `<b>${name}</b>: ${m.model}, ${m.strategy || ""}`,
            `${m.source}, ${k.count(m.accelerators)} GPUs, sequence length ${k.count(m.seq_len)}`,
            `${k.grouped(m.measured)} tok/s/GPU` +
              (isNumber(m.error) ? `, prediction ${k.signed(m.error)}` : ""),
          ].join("<br>"),
        ),
        hovertemplate: "%{text}<extra></extra>",
      },
    ];
  };
  return [
    ...dots(measured.runs, "measured, published", {
      size: 7,
      color: "rgba(0,0,0,0)",
      symbol: "circle",
    }),
    ...dots(measured.own || [], "measured here", {
      size: 13,
      color: c.color("purple"),
      symbol: "star",
    }),
  ];
}

// The best strategy of each size as a strip of boxes; boxes of one shape share a label.
function strategyStrip(el, answer, best) {
  const shapes = [...new Set(runnable(best.points).map((p) => p.shape))];
  const edge = (i, side) => {
    const here = best.points[i].accelerators,
      other = best.points[i + side]?.accelerators || here * (side > 0 ? 2 : 0.5);
    return Math.sqrt(here * other);
  };
  const traces = [],
    runs = [];
  best.points.forEach((p, i) => {
    if (p.infeasible) return;
    const [a, b] = [edge(i, -1), edge(i, 1)];
    traces.push({
      x: [a, b, b, a],
      y: [0, 0, 1, 1],
      yaxis: "y2",
      fill: "toself",
      fillcolor: c.translucent(c.SERIES[shapes.indexOf(p.shape) % 7], 0.55),
      line: { width: 1, color: c.color("card") },
      mode: "lines",
      hoverinfo: "text",
      text: p.strategy,
      hoveron: "fills",
      name: p.strategy,
      showlegend: false,
    });
    if (runs.at(-1)?.shape === p.shape) runs.at(-1).b = b;
    else runs.push({ shape: p.shape, a, b });
  });
  const span = Math.log10((answer.sizes.at(-1) / answer.sizes[0]) * 2),
    room = el.clientWidth - 90 || 600;
  const notes = runs
    .filter(({ shape, a, b }) => (Math.log10(b / a) / span) * room > 7.2 * shape.length)
    .map(({ shape, a, b }) => ({
      x: (Math.log10(a) + Math.log10(b)) / 2,
      xref: "x",
      y: 0.5,
      yref: "y2",
      text: shape,
      showarrow: false,
      font: { size: 11, color: c.color("ink") },
    }));
  return { traces, notes };
}

// This number of GPUs, the knee and the crossovers.
function verticalMarks(answer, best) {
  const shapes = [],
    notes = [];
  const line = (x, dash, text, top) => {
    const last = x === answer.sizes.at(-1);
    shapes.push({
      type: "line",
      xref: "x",
      x0: x,
      x1: x,
      yref: "paper",
      y0: PLOT[0],
      y1: 1,
      line: { color: c.color("soft"), width: 1, dash },
      editable: false,
    });
    notes.push({
      x: Math.log10(x),
      xref: "x",
      y: top,
      yref: "paper",
      yanchor: "top",
      text,
      showarrow: false,
      xanchor: last ? "right" : "left",
      xshift: last ? -5 : 5,
      font: { size: 11.5, color: c.color("soft") },
    });
  };
  const n = Number(answer.question.gpus);
  if (n >= answer.sizes[0] && n <= answer.sizes.at(-1)) line(n, "solid", "current", 1);
  const knee = answer.knees.find((x) => x.label === best.label && x.cluster === best.cluster);
  if (knee) line(knee.accelerators, "dot", "knee", 0.93);
  for (const x of answer.crossovers.slice(0, 4))
    line(x.accelerators, "dashdot", `${x.winner} > ${x.loser}`, 0.2);
  return { shapes, notes };
}

// Sizes that meet deadline and budget, as a shaded area.
function allowed(best, { deadline, budget }) {
  const { fine } = deadline || budget ? meets(best.points, { deadline, budget }) : { fine: [] };
  if (!fine.length) return { shapes: [], notes: [] };
  const [x0, x1] = [fine[0] / 1.12, fine.at(-1) * 1.12];
  return {
    shapes: [
      {
        type: "rect",
        xref: "x",
        x0,
        x1,
        yref: "paper",
        y0: PLOT[0],
        y1: 1,
        fillcolor: c.translucent("green", 0.13),
        line: { width: 0 },
        layer: "below",
      },
    ],
    notes: [
      {
        x: Math.log10(x0),
        xref: "x",
        xanchor: "left",
        xshift: 4,
        y: PLOT[0] + 0.01,
        yref: "paper",
        yanchor: "bottom",
        text: deadline && budget ? "within both" : deadline ? "within deadline" : "within budget",
        showarrow: false,
        font: { size: 11.5, color: c.color("good") },
      },
    ],
  };
}

// One row per point, for files and the table under the chart.
function rowsOf(answer, { value, bound }) {
  const at = (p, side) =>
    bound && p[side] ? bound(p, p[side] / p.tokens_per_second_per_accelerator) : null;
  return answer.curves.flatMap((curve) =>
    curve.points.map((p) => ({
      curve: curveName(answer, curve),
      accelerators: p.accelerators,
      strategy: p.strategy,
      value: value(p),
      low: at(p, "low"),
      high: at(p, "high"),
      step_seconds: p.step_seconds,
      tokens_per_second: p.tokens_per_second,
      mfu: p.mfu,
      returned: p.returned,
      days: p.days,
      usd: p.usd,
      joules: p.joules,
      infeasible: p.infeasible,
    })),
  );
}
