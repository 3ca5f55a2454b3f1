// A chart at once: what the chart library is handed, as plain SVG, while that library starts.
// It takes the same room and answers to nothing; what it does not know it leaves out.

const s = (tag, props, ...inside) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) if (value !== undefined && value !== null) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};
const at = (v, i) => (Array.isArray(v) ? v[i] : v), plain = (text) => String(text).replace(/<[^>]*>/g, " ").trim();
const DASH = { dash: "9 9", dot: "3 3", dashdot: "9 3 3 3", longdash: "15 15" };
const CROSS = "M1.2 .4H.4V1.2H-.4V.4H-1.2V-.4H-.4V-1.2H.4V-.4H1.2Z";
const SHAPES = {
  circle: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z", square: "M-1 -1H1V1H-1Z", diamond: "M0 -1.3L1.3 0L0 1.3L-1.3 0Z", "triangle-up": "M-1.15 .5H1.15L0 -1Z",
  cross: CROSS, x: CROSS, star: "M0 -1.4L.31 -.43L1.33 -.43L.51 .16L.82 1.13L0 .53L-.82 1.13L-.51 .16L-1.33 -.43L-.31 -.43Z",
};

function number(v, format = "") {
  const size = Math.abs(v), sign = v < 0 ? "\u2212" : format[0] === "+" ? "+" : "";
  if (format.endsWith("%")) return `${sign}${(100 * size).toFixed(0)}%`;
  const [unit, name] = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]].find(([u]) => size >= u && (size >= 1e4 || format.endsWith("s"))) || [1, ""];
  return sign + Number((size / unit).toPrecision(6)) + name;
}

// Values as places: names by their order, logarithms by their exponent.
function axisOf(id, traces, layout) {
  const flat = id[0] === "x", letter = id[0], a = layout[`${letter}axis${id.slice(1)}`] || {}, mine = traces.filter((t) => (t[`${letter}axis`] || letter) === id);
  const all = mine.flatMap((t) => t[letter]), names = all.some((v) => typeof v === "string") ? [...new Set(all)] : null, log = a.type === "log";
  const c = (v) => (v === null || v === undefined ? NaN : names ? names.indexOf(v) : log ? Math.log10(v) : v);
  let low = Infinity, high = -Infinity, pad = 0, dots = 0, zero = a.rangemode === "tozero" && !log;
  for (const t of mine) {
    const bar = t.type === "bar", along = bar && (t.orientation === "h") === flat, wide = t.type === "heatmap" || (bar && !along) ? 0.5 : 0;
    for (const v of t[letter].map(c)) if (Number.isFinite(v)) { low = Math.min(low, v - wide); high = Math.max(high, v + wide); }
    if (along) { zero = true; low = Math.min(low, 0); high = Math.max(high, 0); }
    const marks = !wide && !bar && t.mode.includes("markers");
    if (along || marks || (!wide && !flat)) pad = 0.05;
    if (marks) dots = Math.max(dots, 0.8 * (t.marker.size || 6));
  }
  if (zero && low > 0) low = 0;
  return { a, flat, names, log, c, zero, pad, dots, reach: low > high ? [0, 1] : [low, high] };
}

function lay(axis, start, length) {
  const { a, flat, log, names, zero } = axis, [from, to] = a.domain || [0, 1], way = flat ? 1 : -1, room = length * (to - from), first = start + way * from * length;
  let [low, high] = a.range || axis.reach;
  if (!a.range) { const q = axis.pad && axis.pad + axis.dots / room, more = ((high - low) || 1) * q / (1 - 2 * q); if (!(zero && low === 0)) low -= more; if (!(zero && high === 0)) high += more; }
  const p = (v) => first + way * (v - low) / (high - low) * room;
  let ticks = [];
  if (a.visible === false) ticks = [];
  else if (a.tickvals) ticks = a.tickvals.map((v, i) => [axis.c(v), a.ticktext[i]]);
  else if (names) ticks = names.map((name, i) => [i, name]);
  else if (log) { for (let e = Math.floor(low); e <= high; e++) for (const m of high - low > 2 || a.dtick === 1 ? [1] : [1, 2, 5]) ticks.push([e + Math.log10(m), number(m * 10 ** e, a.tickformat)]); }
  else {
    const rough = (high - low) / (a.nticks || Math.min(Math.max(room / (flat ? 80 : 40), 4), 9) + 1), unit = 10 ** Math.floor(Math.log10(rough)), step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough * 0.999);
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high; i++) ticks.push([i * step, number(i * step, a.tickformat)]);
  }
  Object.assign(axis, { p, d: (v) => p(axis.c(v)), edges: [first, first + way * room], ticks: ticks.filter(([v]) => v > low - 1e-9 && v < high + 1e-9) });
}

const stroke = ({ width = 2, color, dash } = {}) => ({ stroke: width ? color || "currentColor" : "none", "stroke-width": width, "stroke-dasharray": DASH[dash], fill: "none" });
const box = (x0, x1, y0, y1, props, gap = 0) => s("rect", { x: Math.min(x0, x1) + gap / 2, y: Math.min(y0, y1) + gap / 2, width: Math.max(Math.abs(x1 - x0) - gap, 0), height: Math.max(Math.abs(y1 - y0) - gap, 0), ...props });

function dot({ symbol = "circle", color = "currentColor", size = 6, line = {}, opacity }, x, y) {
  const [name, open] = symbol.split("-open"), hollow = open !== undefined, width = line.width ?? (hollow ? 1 : 0);
  return s("path", { d: SHAPES[name] || SHAPES.circle, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size / 2})${name === "x" ? " rotate(45)" : ""}`, fill: hollow ? "none" : color, opacity, stroke: width ? (hollow ? color : line.color) : null, "stroke-width": width, "vector-effect": "non-scaling-stroke" });
}

const DRAW = {
  scatter(t, X, Y) {
    const points = t.x.map((x, i) => [X.d(x), Y.d(t.y[i])]).filter((point) => point.every(Number.isFinite)), d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    return [t.fill === "toself" && s("path", { d: `${d}Z`, class: "band", fill: t.fillcolor }), t.mode.includes("lines") && t.line?.width !== 0 && s("path", { d, class: "line", ...stroke(t.line) }), t.mode.includes("markers") && s("g", { class: "points" }, ...points.map(([x, y]) => dot(t.marker, x, y)))];
  },
  bar(t, X, Y, thick) {
    const lying = t.orientation === "h", [P, V] = lying ? [Y, X] : [X, Y], zero = V.p(0);
    return (lying ? t.y : t.x).map((place, i) => {
      const v = V.d((lying ? t.x : t.y)[i]), p0 = P.p(P.c(place) - thick / 2), p1 = P.p(P.c(place) + thick / 2), props = { class: "bar", fill: at(t.marker.color, i), "fill-opacity": at(t.marker.pattern?.shape, i) ? 0.75 : null };
      return Number.isFinite(v) && (lying ? box(zero, v, p0, p1, props) : box(p0, p1, zero, v, props));
    });
  },
  heatmap(t, X, Y) {
    return t.z.flatMap((row, j) => row.map((v, i) => {
      if (v === null) return null;
      const share = (v - t.zmin) / (t.zmax - t.zmin), k = Math.max(t.colorscale.findIndex(([stop]) => stop >= share), 1), [[a, from], [b, to]] = [t.colorscale[k - 1], t.colorscale[k]], x = X.c(t.x[i]), y = Y.c(t.y[j]);
      return box(X.p(x - 0.5), X.p(x + 0.5), Y.p(y - 0.5), Y.p(y + 0.5), { class: "cell", style: `fill: color-mix(in srgb, ${to} ${(100 * (share - a) / (b - a)).toFixed(1)}%, ${from})` }, t.xgap);
    }));
  },
};

export function sketch(place, spec, layout) {
  try {
    const made = drawn(spec.traces.filter((t) => DRAW[t.type || "scatter"]), layout, place.clientWidth);
    place.querySelector(".sketch")?.remove();
    place.append(made);
    return true;
  } catch { return false; } // Then the first chart is the real one.
}

function drawn(traces, layout, W) {
  // Panels side by side, and bars beside or upon each other, are worth the wait.
  if (traces.some((t) => t.xaxis && t.xaxis !== "x") || (traces.filter((t) => t.type === "bar").length > 1 && layout.barmode !== "overlay")) throw new Error("too much");
  const H = layout.height, { size: font, family } = layout.font, pen = document.createElement("canvas").getContext("2d"), m = { ...layout.margin };
  const wide = (text, size) => { pen.font = `${size}px ${family}`; return pen.measureText(text).width; };
  const write = (text, size, props) => s("text", { "font-size": size, fill: "var(--soft)", "text-anchor": "middle", ...props }, plain(text));
  const X = axisOf("x", traces, layout), ups = Object.fromEntries([...new Set(traces.map((t) => t.yaxis || "y"))].map((id) => [id, axisOf(id, traces, layout)])), axes = { x: X, ...ups };
  const most = ({ a, ticks }) => Math.max(0, ...ticks.map(([, text]) => wide(text + (a.ticksuffix || ""), a.tickfont?.size || font)));
  // Names stand in rows above or below, and take their room from the plot, as they will later.
  const shown = traces.filter((t) => t.name && t.showlegend !== false && t.type !== "heatmap"), legend = layout.legend, lf = legend.font?.size || font, above = legend.y > 0, line = Math.max(1.3 * lf, 16) + 3;
  const widths = shown.map((t) => 45 + wide(plain(t.name), lf)), widest = Math.max(...widths);
  // What needs more than its margin gets a seam besides, as the library gives it.
  const seam = Math.min(12, ...Object.values(m)), { title: under, tickfont } = X.a;
  if (under) m.b = Math.max(m.b, 17 + 1.2 * (tickfont?.size || font) + under.font.size + seam);
  const least = { ...m };
  let spots, top;
  for (let round = 0; round < 5; round++) {
    const pw = W - m.l - m.r, ph = H - m.t - m.b, one = widths.reduce((sum, w) => sum + w, 0) < pw;
    for (const axis of Object.values(axes)) lay(axis, axis.flat ? m.l : H - m.b, axis.flat ? pw : ph);
    for (const up of Object.values(ups)) if (up.a.title) m.l = Math.max(least.l, most(up) + 16 + up.a.title.font.size + seam);
    let x = 0, row = 0;
    spots = widths.map((w) => { const next = one ? w : widest; if (x && x + next > pw) { x = 0; row++; } x += next; return [x - next, row]; });
    const tall = shown.length > 1 ? 10 + (row + 1) * line : 0;
    if (tall && above) m.t = Math.max(least.t, tall + (legend.y - 1) * ph + seam); else if (tall) m.b = Math.max(least.b, tall - legend.y * ph + seam);
    top = above ? m.t - (legend.y - 1) * ph - tall : H - m.b - legend.y * (H - m.t - m.b);
  }
  const svg = s("svg", { class: "sketch", width: W, height: H, viewBox: `0 0 ${W} ${H}`, "font-family": family }), [left, right] = X.edges;
  // Tied to an axis or to the whole; lines know values, notes exponents.
  const spot = (ref, v, flat, raw) => { const axis = axes[ref || (flat ? "x" : "y")]; return axis ? (raw ? axis.p(v) : axis.d(v)) : flat ? m.l + v * (W - m.l - m.r) : H - m.b - v * (H - m.t - m.b); };
  const shapes = (below) => svg.append(...(layout.shapes || []).filter((o) => (o.layer === "below") === below).map((o) => {
    const [x0, x1] = [o.x0, o.x1].map((v) => spot(o.xref, v, true)), [y1, y2] = [o.y0, o.y1].map((v) => spot(o.yref, v, false));
    return o.type === "line" ? s("line", { x1: x0, x2: x1, y1, y2, ...stroke(o.line) }) : box(x0, x1, y1, y2, { fill: o.fillcolor });
  }));
  shapes(true);
  for (const [id, Y] of Object.entries(ups)) {
    const [low, high] = Y.edges, rule = (x1, y1, x2, y2, color) => svg.append(s("line", { x1, y1, x2, y2, stroke: color || "var(--grid)" }));
    if (X.a.showgrid !== false) for (const [v] of X.ticks) rule(X.p(v), low, X.p(v), high);
    if (Y.a.showgrid !== false) for (const [v] of Y.ticks) rule(left, Y.p(v), right, Y.p(v));
    // A picture in the picture ends where the axes end.
    const size = { width: right - left, height: low - high }, inner = s("svg", { x: left, y: high, ...size, viewBox: `${left} ${high} ${size.width} ${size.height}` });
    for (const t of traces) if ((t.yaxis || "y") === id) inner.append(...DRAW[t.type || "scatter"](t, X, Y, 1 - (layout.bargap ?? 0.2)).filter(Boolean));
    svg.append(inner);
    if (X.a.zeroline) rule(X.p(0), low, X.p(0), high, X.a.zerolinecolor);
  }
  const floor = (ups[X.a.anchor] || ups.y).edges[0];
  for (const axis of Object.values(axes)) {
    const { a, flat, ticks, p, edges } = axis, size = a.tickfont?.size || font, middle = (edges[0] + edges[1]) / 2, title = a.title?.text, big = a.title?.font?.size;
    for (const [v, text] of ticks) svg.append(flat ? write(text, size, { x: p(v), y: floor + 7 + size }) : write(text, size, { x: left - 8 - (a.ticksuffix ? 4 : 0), y: p(v) + 0.35 * size, "text-anchor": "end" }));
    if (title) svg.append(write(title, big, flat ? { x: middle, y: floor + 1.2 * size + 16 + big } : { transform: `translate(${left - most(axis) - 23} ${middle}) rotate(-90)` }));
  }
  shapes(false);
  for (const n of layout.annotations || []) {
    const { size = font, color } = n.font || {}, x = spot(n.xref, n.x, true, true) + (n.xshift || 0), y = spot(n.yref, n.y, false, true) + ({ top: 1.2, bottom: -0.4 }[n.yanchor] ?? 0.35) * size;
    svg.append(write(n.text, size, { x, y, fill: color, "text-anchor": n.xanchor === "left" ? "start" : "middle" }));
  }
  if (shown.length > 1) shown.forEach((t, i) => {
    const x = m.l + spots[i][0] + 5, y = top + 5 + (spots[i][1] + 0.5) * line, mode = t.type === "bar" || t.fill ? "" : t.mode;
    svg.append(...[!mode && box(...(t.fill ? [x, x + 30, y - 3, y + 3] : [x + 9, x + 21, y - 6, y + 6]), { fill: t.fillcolor || at(t.marker.color, 0) }), mode.includes("lines") && s("path", { d: `M${x} ${y}h30`, ...stroke(t.line) }), mode.includes("markers") && dot(t.marker, x + 15, y), write(t.name, lf, { x: x + 35, y: y + 0.35 * lf, "text-anchor": "start" })].filter(Boolean));
  });
  return svg;
}
