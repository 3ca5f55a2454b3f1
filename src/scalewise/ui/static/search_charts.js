// Charts of the search view: Pareto front, and the best strategy by TP and PP degree.

import * as c from "./charts.js";
import * as k from "./kit.js";

// Step time over energy, or over memory where power is unknown.
export function paretoChart(el, answer, ctx) {
  const other = answer.front_by,
    y = (r) => (other === "energy" ? r.joules_per_token : r.memory_bytes / 2 ** 30),
    unit = other === "energy" ? "J/token, facility" : "peak memory, GiB";
  const all = [
    ...new Map(
      [...answer.rows, ...answer.map, ...answer.front].map((r) => [r.strategy, r]),
    ).values(),
  ];
  const edge = answer.front.toSorted((a, b) => a.step_seconds - b.step_seconds);
  const tip = (r) =>
    [
      `<b>${r.strategy}</b>`,
      `step ${k.seconds(r.step_seconds)}, MFU ${k.percent(r.mfu)}`,
      other === "energy" ? `${k.joules(r.joules_per_token)} per token` : k.gib(r.memory_bytes),
    ].join("<br>");
  const dots = (rows, name, marker) => ({
    x: rows.map((r) => r.step_seconds),
    y: rows.map(y),
    mode: "markers",
    name,
    marker,
    text: rows.map(tip),
    hovertemplate: "%{text}<extra></extra>",
    customdata: rows.map((r) => r.strategy),
  });
  const traces = [
    dots(
      all.filter((r) => !r.tie),
      "others",
      { size: 7, color: c.translucent("gray", 0.55) },
    ),
    dots(
      all.filter((r) => r.tie),
      "tie with the best",
      { size: 9, color: c.color("blue"), symbol: "diamond" },
    ),
    {
      ...dots(edge, "Pareto front", {
        size: 12,
        color: "rgba(0,0,0,0)",
        line: { color: c.color("vermilion"), width: 2 },
      }),
      mode: edge.length > 1 ? "markers+lines" : "markers",
      line: { color: c.color("vermilion"), width: 1, dash: "dot" },
    },
  ];
  if (answer.current)
    traces.push(
      dots([answer.current], "current", { size: 14, symbol: "cross", color: c.color("ink") }),
    );
  c.draw(
    el,
    {
      traces,
      rows: all.map(withoutDegrees),
      name: "search-front",
      label: `Step time over ${unit}`,
      height: 400,
      columns: [
        ["Strategy", (r) => r.strategy],
        ["Step time", (r) => k.seconds(r.step_seconds), "num"],
        ["Energy", (r) => k.joules(r.joules_per_token), "num"],
        ["Peak memory", (r) => k.gib(r.memory_bytes), "num"],
      ],
      layout: {
        xaxis: c.axis("step time, s"),
        yaxis: c.axis(unit),
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      },
    },
    {
      plotly_click: (event) => {
        const s = event.points[0]?.customdata;
        if (s) ctx.change({ strategy: s });
      },
    },
  );
}

function withoutDegrees(row) {
  const flat = { ...row };
  delete flat.degrees;
  return flat;
}

// A color between two, for light and dark themes alike.
const mixed = (a, b, share) =>
  "#" +
  [1, 3, 5]
    .map((i) =>
      Math.round(
        parseInt(a.slice(i, i + 2), 16) * share + parseInt(b.slice(i, i + 2), 16) * (1 - share),
      )
        .toString(16)
        .padStart(2, "0"),
    )
    .join("");

const gap = (z) =>
  z < 0.0005
    ? "best"
    : z > 9.99
      ? `\u00d7${k.significant(1 + z, 2)}`
      : `+${(100 * z).toFixed(z < 0.1 ? 1 : 0)}%`;

// How the experts of a strategy are split; small screens have no room for both degrees.
const expertSplit = ({ degrees: { ep, etp } }) =>
  `EP ${ep}${etp > 1 && innerWidth > 640 ? ` \u00d7 ETP ${etp}` : ""}`;

// How far the best strategy of each TP and PP degree is behind the best of all.
export function degreeMap(el, answer, ctx) {
  const tps = [...new Set(answer.map.map((r) => r.tp))].sort((a, b) => a - b),
    pps = [...new Set(answer.map.map((r) => r.pp))].sort((a, b) => a - b);
  const at = (tp, pp) => answer.map.find((r) => r.tp === tp && r.pp === pp),
    z = pps.map((pp) => tps.map((tp) => at(tp, pp)?.gap ?? null));
  const cells = pps
    .flatMap((pp, j) =>
      tps.map((tp, i) =>
        z[j][i] === null
          ? null
          : {
              x: i,
              y: j,
              text: gap(z[j][i]) + (answer.experts ? `<br>${expertSplit(at(tp, pp))}` : ""),
              showarrow: false,
              font: {
                size: 12,
                color:
                  z[j][i] < (c.color("accent-ink") === "#ffffff" ? 0.1 : 0.2)
                    ? c.color("accent-ink")
                    : c.color("ink"),
              },
            },
      ),
    )
    .filter(Boolean);
  const best = c.color("blue"),
    none = c.color("hair");
  c.draw(
    el,
    {
      traces: [
        {
          type: "heatmap",
          x: tps.map((_, i) => i),
          y: pps.map((_, j) => j),
          z: z.map((line) => line.map((v) => (v === null ? null : Math.min(v, 1)))),
          colorscale: [
            [0, best],
            [0.5, mixed(best, none, 0.35)],
            [1, none],
          ],
          zmin: 0,
          zmax: 1,
          showscale: false,
          xgap: 3,
          ygap: 3,
          hoverongaps: false,
          text: pps.map((pp) =>
            tps.map((tp) => {
              const r = at(tp, pp);
              return r
                ? `<b>${r.strategy}</b><br>step ${k.seconds(r.step_seconds)}, ${k.gib(r.memory_bytes)}`
                : "out of memory";
            }),
          ),
          hovertemplate: "%{text}<extra></extra>",
          customdata: pps.map((pp) => tps.map((tp) => at(tp, pp)?.strategy)),
        },
      ],
      rows: answer.map.map((r) => ({
        ...withoutDegrees(r),
        ...(answer.experts ? { ep: r.degrees.ep, etp: r.degrees.etp } : {}),
      })),
      name: "search-map",
      label: "Best strategy of each TP and PP degree, relative to the best of all",
      height: 400,
      columns: [
        ["TP", (r) => r.tp, "num"],
        ["PP", (r) => r.pp, "num"],
        ...(answer.experts
          ? [
              ["EP", (r) => r.ep, "num"],
              ["ETP", (r) => r.etp, "num"],
            ]
          : []),
        ["Best strategy", (r) => r.strategy],
        ["vs best", (r) => k.signed(r.gap), "num"],
      ],
      layout: {
        xaxis: c.axis("TP", {
          tickvals: tps.map((_, i) => i),
          ticktext: tps.map(String),
          showgrid: false,
        }),
        yaxis: c.axis("PP", {
          tickvals: pps.map((_, j) => j),
          ticktext: pps.map(String),
          showgrid: false,
        }),
        annotations: cells,
      },
    },
    {
      plotly_click: (event) => {
        const s = event.points[0]?.customdata;
        if (s) ctx.change({ strategy: s });
      },
    },
  );
}
