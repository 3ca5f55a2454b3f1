// A chart as plain SVG at once, while Plotly starts: same traces, same layout, same size.

import { axisOf, lay } from "./sketch_axes.js";

// An SVG element.
const s = (tag, props, ...inside) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props))
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};

const at = (v, i) => (Array.isArray(v) ? v[i] : v),
  plain = (text) =>
    String(text)
      .replace(/<[^>]*>/g, " ")
      .trim();

const DASH = { dash: "9 9", dot: "3 3", dashdot: "9 3 3 3", longdash: "15 15" };

const CROSS = "M1.2 .4H.4V1.2H-.4V.4H-1.2V-.4H-.4V-1.2H.4V-.4H1.2Z";

const SHAPES = {
  circle: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z",
  square: "M-1 -1H1V1H-1Z",
  diamond: "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
  "triangle-up": "M-1.15 .5H1.15L0 -1Z",
  cross: CROSS,
  x: CROSS,
  star: "M0 -1.4L.31 -.43L1.33 -.43L.51 .16L.82 1.13L0 .53L-.82 1.13L-.51 .16L-1.33 -.43L-.31 -.43Z",
};

const stroke = ({ width = 2, color, dash } = {}) => ({
  stroke: width ? color || "currentColor" : "none",
  "stroke-width": width,
  "stroke-dasharray": DASH[dash],
  fill: "none",
});

const box = (x0, x1, y0, y1, props, gap = 0) =>
  s("rect", {
    x: Math.min(x0, x1) + gap / 2,
    y: Math.min(y0, y1) + gap / 2,
    width: Math.max(Math.abs(x1 - x0) - gap, 0),
    height: Math.max(Math.abs(y1 - y0) - gap, 0),
    ...props,
  });

function dot({ symbol = "circle", color = "currentColor", size = 6, line = {}, opacity }, x, y) {
  const [name, open] = symbol.split("-open"),
    hollow = open !== undefined,
    width = line.width ?? (hollow ? 1 : 0);
  return s("path", {
    d: SHAPES[name] || SHAPES.circle,
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size / 2})${name === "x" ? " rotate(45)" : ""}`,
    fill: hollow ? "none" : color,
    opacity,
    stroke: width ? (hollow ? color : line.color) : null,
    "stroke-width": width,
    "vector-effect": "non-scaling-stroke",
  });
}

const DRAW = {
  scatter(t, X, Y) {
    const points = t.x
        .map((x, i) => [X.d(x), Y.d(t.y[i])])
        .filter((point) => point.every(Number.isFinite)),
      d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    return [
      t.fill === "toself" && s("path", { d: `${d}Z`, class: "band", fill: t.fillcolor }),
      t.mode.includes("lines") &&
        t.line?.width !== 0 &&
        s("path", { d, class: "line", ...stroke(t.line) }),
      t.mode.includes("markers") &&
        s("g", { class: "points" }, ...points.map(([x, y]) => dot(t.marker, x, y))),
    ];
  },
  bar(t, X, Y, thick) {
    const lying = t.orientation === "h",
      [P, V] = lying ? [Y, X] : [X, Y],
      zero = V.p(0);
    return (lying ? t.y : t.x).map((place, i) => {
      const v = V.d((lying ? t.x : t.y)[i]),
        p0 = P.p(P.c(place) - thick / 2),
        p1 = P.p(P.c(place) + thick / 2),
        props = {
          class: "bar",
          fill: at(t.marker.color, i),
          "fill-opacity": at(t.marker.pattern?.shape, i) ? 0.75 : null,
        };
      return (
        Number.isFinite(v) && (lying ? box(zero, v, p0, p1, props) : box(p0, p1, zero, v, props))
      );
    });
  },
  heatmap(t, X, Y) {
    return t.z.flatMap((row, j) =>
      row.map((v, i) => {
        if (v === null) return null;
        const share = (v - t.zmin) / (t.zmax - t.zmin),
          k = Math.max(
            t.colorscale.findIndex(([stop]) => stop >= share),
            1,
          ),
          [[a, from], [b, to]] = [t.colorscale[k - 1], t.colorscale[k]],
          x = X.c(t.x[i]),
          y = Y.c(t.y[j]);
        return box(
          X.p(x - 0.5),
          X.p(x + 0.5),
          Y.p(y - 0.5),
          Y.p(y + 0.5),
          {
            class: "cell",
            style: `fill: color-mix(in srgb, ${to} ${((100 * (share - a)) / (b - a)).toFixed(1)}%, ${from})`,
          },
          t.xgap,
        );
      }),
    );
  },
};

export function sketch(place, spec, layout) {
  try {
    const made = drawn(
      spec.traces.filter((t) => DRAW[t.type || "scatter"]),
      layout,
      place.clientWidth,
    );
    place.querySelector(".sketch")?.remove();
    place.append(made);
    return true;
  } catch {
    return false; // Then Plotly draws the first chart.
  }
}

function drawn(traces, layout, W) {
  // Subplots, grouped and stacked bars are left to Plotly.
  if (
    traces.some((t) => t.xaxis && t.xaxis !== "x") ||
    (traces.filter((t) => t.type === "bar").length > 1 && layout.barmode !== "overlay")
  )
    throw new Error("not supported");
  const H = layout.height,
    { size: font, family } = layout.font,
    pen = document.createElement("canvas").getContext("2d"),
    m = { ...layout.margin };
  const wide = (text, size) => {
    pen.font = `${size}px ${family}`;
    return pen.measureText(text).width;
  };
  const write = (text, size, props) =>
    s(
      "text",
      { "font-size": size, fill: "var(--soft)", "text-anchor": "middle", ...props },
      plain(text),
    );
  const X = axisOf("x", traces, layout),
    ups = Object.fromEntries(
      [...new Set(traces.map((t) => t.yaxis || "y"))].map((id) => [id, axisOf(id, traces, layout)]),
    ),
    axes = { x: X, ...ups };
  const widestTick = ({ a, ticks }) =>
    Math.max(
      0,
      ...ticks.map(([, text]) => wide(text + (a.ticksuffix || ""), a.tickfont?.size || font)),
    );
  // The legend stands in rows above or below the plot.
  const shown = traces.filter((t) => t.name && t.showlegend !== false && t.type !== "heatmap"),
    legend = layout.legend,
    lf = legend.font?.size || font,
    above = legend.y > 0,
    line = Math.max(1.3 * lf, 16) + 3;
  const widths = shown.map((t) => 45 + wide(plain(t.name), lf)),
    widest = Math.max(...widths);
  // Where a margin grows, Plotly adds a seam.
  const seam = Math.min(12, ...Object.values(m)),
    { title: under, tickfont } = X.a;
  if (under) m.b = Math.max(m.b, 17 + 1.2 * (tickfont?.size || font) + under.font.size + seam);
  const smallest = { ...m };
  let spots, top;
  for (let round = 0; round < 5; round++) {
    const pw = W - m.l - m.r,
      ph = H - m.t - m.b,
      one = widths.reduce((sum, w) => sum + w, 0) < pw;
    for (const axis of Object.values(axes))
      lay(axis, axis.flat ? m.l : H - m.b, axis.flat ? pw : ph);
    for (const up of Object.values(ups))
      if (up.a.title) m.l = Math.max(smallest.l, widestTick(up) + 16 + up.a.title.font.size + seam);
    let x = 0,
      row = 0;
    spots = widths.map((w) => {
      const next = one ? w : widest;
      if (x && x + next > pw) {
        x = 0;
        row++;
      }
      x += next;
      return [x - next, row];
    });
    const tall = shown.length > 1 ? 10 + (row + 1) * line : 0;
    if (tall && above) m.t = Math.max(smallest.t, tall + (legend.y - 1) * ph + seam);
    else if (tall) m.b = Math.max(smallest.b, tall - legend.y * ph + seam);
    top = above ? m.t - (legend.y - 1) * ph - tall : H - m.b - legend.y * (H - m.t - m.b);
  }
  const svg = s("svg", {
      class: "sketch",
      width: W,
      height: H,
      viewBox: `0 0 ${W} ${H}`,
      "font-family": family,
    }),
    [left, right] = X.edges;
  // A position on an axis or on the whole plot; shapes have values, annotations exponents.
  const spot = (ref, v, flat, raw) => {
    const axis = axes[ref || (flat ? "x" : "y")];
    return axis
      ? raw
        ? axis.p(v)
        : axis.d(v)
      : flat
        ? m.l + v * (W - m.l - m.r)
        : H - m.b - v * (H - m.t - m.b);
  };
  const shapes = (below) =>
    svg.append(
      ...(layout.shapes || [])
        .filter((o) => (o.layer === "below") === below)
        .map((o) => {
          const [x0, x1] = [o.x0, o.x1].map((v) => spot(o.xref, v, true)),
            [y1, y2] = [o.y0, o.y1].map((v) => spot(o.yref, v, false));
          return o.type === "line"
            ? s("line", { x1: x0, x2: x1, y1, y2, ...stroke(o.line) })
            : box(x0, x1, y1, y2, { fill: o.fillcolor });
        }),
    );
  shapes(true);
  for (const [id, Y] of Object.entries(ups)) {
    const [low, high] = Y.edges,
      rule = (x1, y1, x2, y2, color) =>
        svg.append(s("line", { x1, y1, x2, y2, stroke: color || "var(--grid)" }));
    if (X.a.showgrid !== false) for (const [v] of X.ticks) rule(X.p(v), low, X.p(v), high);
    if (Y.a.showgrid !== false) for (const [v] of Y.ticks) rule(left, Y.p(v), right, Y.p(v));
    // An inner SVG clips traces at the axes.
    const size = { width: right - left, height: low - high },
      inner = s("svg", {
        x: left,
        y: high,
        ...size,
        viewBox: `${left} ${high} ${size.width} ${size.height}`,
      });
    for (const t of traces)
      if ((t.yaxis || "y") === id)
        inner.append(
          ...DRAW[t.type || "scatter"](t, X, Y, 1 - (layout.bargap ?? 0.2)).filter(Boolean),
        );
    svg.append(inner);
    if (X.a.zeroline) rule(X.p(0), low, X.p(0), high, X.a.zerolinecolor);
  }
  const floor = (ups[X.a.anchor] || ups.y).edges[0];
  for (const axis of Object.values(axes)) {
    const { a, flat, ticks, p, edges } = axis,
      size = a.tickfont?.size || font,
      middle = (edges[0] + edges[1]) / 2,
      title = a.title?.text,
      big = a.title?.font?.size;
    for (const [v, text] of ticks)
      svg.append(
        flat
          ? write(text, size, { x: p(v), y: floor + 7 + size })
          : write(text, size, {
              x: left - 8 - (a.ticksuffix ? 4 : 0),
              y: p(v) + 0.35 * size,
              "text-anchor": "end",
            }),
      );
    if (title)
      svg.append(
        write(
          title,
          big,
          flat
            ? { x: middle, y: floor + 1.2 * size + 16 + big }
            : { transform: `translate(${left - widestTick(axis) - 23} ${middle}) rotate(-90)` },
        ),
      );
  }
  shapes(false);
  for (const n of layout.annotations || []) {
    const { size = font, color } = n.font || {},
      x = spot(n.xref, n.x, true, true) + (n.xshift || 0),
      y = spot(n.yref, n.y, false, true) + ({ top: 1.2, bottom: -0.4 }[n.yanchor] ?? 0.35) * size;
    const lines = n.text.split("<br>");
    svg.append(
      ...lines.map((text, i) =>
        write(text, size, {
          x,
          y: y + 1.3 * size * (i - (lines.length - 1) / 2),
          fill: color,
          "text-anchor": { left: "start", right: "end" }[n.xanchor] || "middle",
        }),
      ),
    );
  }
  if (shown.length > 1)
    shown.forEach((t, i) => {
      const x = m.l + spots[i][0] + 5,
        y = top + 5 + (spots[i][1] + 0.5) * line,
        mode = t.type === "bar" || t.fill ? "" : t.mode;
      svg.append(
        ...[
          !mode &&
            box(...(t.fill ? [x, x + 30, y - 3, y + 3] : [x + 9, x + 21, y - 6, y + 6]), {
              fill: t.fillcolor || at(t.marker.color, 0),
            }),
          mode.includes("lines") && s("path", { d: `M${x} ${y}h30`, ...stroke(t.line) }),
          mode.includes("markers") && dot(t.marker, x + 15, y),
          write(t.name, lf, { x: x + 35, y: y + 0.35 * lf, "text-anchor": "start" }),
        ].filter(Boolean),
      );
    });
  return svg;
}
