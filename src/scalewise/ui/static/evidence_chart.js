// Predicted over measured throughput as a scatter plot, one color per source.

import * as c from "./charts.js";
import * as k from "./kit.js";

// Sources named in the legend: all, or on phones the largest.
const named = () => (innerWidth > 640 ? Infinity : 3);

const tip = (r) =>
  [
    `<b>${r.model}</b>, ${k.count(r.accelerators)}\u00d7 ${r.accelerator}, ${r.framework || ""}`,
    r.strategy,
    `measured ${k.grouped(r.measured)}, predicted ${k.grouped(r.predicted)}: ${k.signed(r.error)}`,
  ].join("<br>");

function dots(list, name, marker, showlegend = true) {
  if (!list.length) return [];
  return [
    {
      showlegend,
      x: list.map((r) => r.measured),
      y: list.map((r) => r.predicted),
      mode: "markers",
      name: `${name} (${list.length})`,
      marker,
      text: list.map(tip),
      hovertemplate: "%{text}<extra></extra>",
    },
  ];
}

// Runs within a fraction of the measured value.
const band = (low, high, width, alpha) => ({
  x: [low, high, high, low],
  y: [low * (1 + width), high * (1 + width), high * (1 - width), low * (1 - width)],
  fill: "toself",
  fillcolor: c.translucent("gray", alpha),
  line: { width: 0 },
  mode: "lines",
  hoverinfo: "skip",
  name: `within ${100 * width}%`,
});

// `fitted` runs were used in a fit, `held` in none, `own` were measured here; `rows` are for files.
export function scatter(el, { fitted, held, own, rows }) {
  const values = [...fitted, ...held, ...own].flatMap((r) => [r.measured, r.predicted]),
    low = Math.min(...values, 1e9) * 0.8,
    high = Math.max(...values, 1) * 1.25;
  const sources = Object.entries(k.groupBy(fitted, (r) => r.source)).sort(
    (a, b) => b[1].length - a[1].length,
  );
  const equal = {
    x: [low, high],
    y: [low, high],
    mode: "lines",
    line: { color: c.color("soft"), width: 1 },
    name: "equal",
    hoverinfo: "skip",
    showlegend: false,
  };
  const series = (i) => ({
    size: 6,
    opacity: 0.75,
    color: c.color(c.SERIES[i % 7]),
    symbol: c.SYMBOLS[(i + Math.floor(i / 7)) % 7],
  });
  const traces = [
    band(low, high, 0.25, 0.1),
    band(low, high, 0.1, 0.16),
    equal,
    ...sources.flatMap(([source, list], i) => dots(list, source, series(i), i < named())),
    ...dots(held, "in no fit", {
      size: 10,
      color: c.color("ink"),
      symbol: "diamond-open",
      line: { width: 1.6 },
    }),
    ...dots(own, "measured here", {
      size: 14,
      color: c.color("purple"),
      line: { color: c.color("ink"), width: 1.2 },
      symbol: "star",
    }),
  ];
  const log = (title) =>
    c.axis(title, {
      type: "log",
      range: [Math.log10(low), Math.log10(high)],
      dtick: 1,
      tickformat: "~s",
    });
  c.draw(el, {
    traces: values.length ? traces : [],
    rows,
    name: "evidence",
    label: "Predicted over measured tok/s/GPU",
    height: 560,
    columns: [
      ["Run", (r) => r.id],
      ["Measured", (r) => k.grouped(r.measured), "num"],
      ["Predicted", (r) => k.grouped(r.predicted), "num"],
      ["Error", (r) => k.signed(r.error), "num"],
    ],
    layout: {
      xaxis: log("measured, tok/s/GPU"),
      yaxis: log("predicted, tok/s/GPU"),
      legend: { font: { size: 11 }, orientation: "h", y: -0.14, yanchor: "top", x: 0 },
    },
  });
}
