// A figure of a report, as the command line draws it, in the colors of the theme.

import * as c from "./charts.js";

// The report's colors as those of the theme.
const themed = (data) =>
  JSON.parse(JSON.stringify(data).replace(/#[0-9a-f]{6}(?=")/gi, (hex) => c.tint(hex)));

// `figure`: data and layout of Plotly. `more`: rows, columns, name, label, least height.
export function drawReport(el, figure, { least = 400, ...more }) {
  const layout = structuredClone(figure.layout),
    soft = c.color("soft");
  for (const [key, value] of Object.entries(layout))
    if (/^[xy]axis/.test(key))
      Object.assign(value, {
        gridcolor: c.color("grid"),
        linecolor: c.color("line"),
        zerolinecolor: c.color("line"),
        automargin: true,
        tickfont: { color: soft },
        ...(value.minor && { minor: { ...value.minor, gridcolor: c.color("grid") } }),
        title: { ...(value.title || {}), font: { color: soft, size: 12 } },
      });
  for (const shape of layout.shapes || [])
    if (shape.type === "line") shape.line = { ...shape.line, color: soft };
  for (const note of layout.annotations || [])
    note.font = { ...(note.font || {}), color: c.color("ink") };
  delete layout.width;
  return c.draw(el, {
    traces: themed(figure.data),
    layout: {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: {
        color: c.color("ink"),
        size: 12,
        family: getComputedStyle(document.body).fontFamily,
      },
      title: null,
      legend: {
        orientation: "h",
        y: -0.18,
        yanchor: "top",
        x: 0,
        font: { color: soft, size: 11 },
      },
    },
    height: Math.max(layout.height || 0, least),
    ...more,
  });
}
