// Charts, drawn by the Plotly inside the installed Python package; fetched when first needed.

import { csv, fill, h, mark, save, table, toast } from "./kit.js";
import { sketch } from "./sketch.js";

let loading;

function plotly() {
  loading ||= new Promise((done, failed) => {
    const script = h("script", { src: "/plotly.min.js" });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => { loading = null; failed(new Error("the chart library did not load")); });
    document.head.append(script);
  });
  return loading;
}

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const SERIES = ["c-compute", "c-comm", "c-opt", "c-bubble", "c-hidden", "c-recompute", "c-other"];
export const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid", "dash"];
export const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];

export function translucent(name, share) {
  const hex = colour(name).replace("#", "");
  const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${share})`;
}

export function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 12, font: { size: 13, color: colour("soft") } }, gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false,
    tickcolor: colour("line"), tickfont: { color: colour("soft"), size: 12 }, automargin: true, ...more,
  };
}

export function powers(sizes) {
  const few = sizes.length > 12 ? sizes.filter((_, i) => i % 2 === 0) : sizes;
  return { type: "log", tickvals: few, ticktext: few.map((n) => n.toLocaleString("en")), minor: { showgrid: false } };
}

// A figure with its chart, its files and its table. `spec`: traces, layout, rows, columns, name, label.
export function figure(id) {
  // The bytes of the library come while the answer does; it starts when a chart was sketched.
  if (!loading && !document.getElementById("early")) document.head.append(h("link", { id: "early", rel: "prefetch", as: "script", href: "/plotly.min.js" }));
  return h("figure", { id }, h("div", { class: "chart waiting" }), h("div", { class: "handles" }), h("div", { class: "takeout" }), h("details", {}, h("summary", { text: "The same as a table" }), h("div", {})));
}

function layoutOf(place, spec) {
  const narrow = place.clientWidth < 520, lying = spec.traces.some((t) => t.orientation === "h");
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: narrow ? 11 : 12.5 },
    margin: { l: narrow ? 46 : 62, r: narrow ? 8 : 18, t: 12, b: 44 }, height: narrow ? 420 : spec.height || 440, hovermode: "closest", dragmode: false,
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink"), size: 12.5 }, align: "left" },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: colour("soft") } }, ...spec.layout,
  };
  if (narrow) {
    layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 130), r: 8, t: 8 };
    layout.legend = { ...layout.legend, orientation: "h", y: -0.24, yanchor: "top", x: 0, font: { size: 11, color: colour("soft") } };
    if (layout.xaxis?.tickvals?.length > 6) layout.xaxis = { ...layout.xaxis, tickvals: layout.xaxis.tickvals.filter((_, i) => i % 2 === 0), ticktext: layout.xaxis.ticktext.filter((_, i) => i % 2 === 0) };
    for (const key of ["xaxis", "yaxis"]) if (layout[key]) layout[key] = { ...layout[key], ...(lying && key === "yaxis" ? { dtick: 1, tickfont: { size: 10.5, color: colour("soft") } } : { nticks: 4 }), tickangle: 0, title: { ...layout[key].title, font: { size: 11.5, color: colour("soft") } } };
  }
  return layout;
}

export async function draw(el, spec, events = {}) {
  const place = el.querySelector(".chart"), current = () => el.spec === spec && el.isConnected;
  el.spec = spec;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", spec.label);
  if (!window.Plotly) {
    // The library takes a second or two to start, during which the page stands still: the curve is
    // drawn and painted before. That is the chart as far as a reader is concerned, so it is marked.
    if (sketch(place, spec, layoutOf(place, spec))) { place.classList.remove("waiting"); mark("chart"); }
    takeaway(el, place, spec);
    await painted();
  } else takeaway(el, place, spec);
  if (!current()) return;
  if (spec.columns) fill(el.querySelector("details > div"), table(spec.rows.slice(0, 300), spec.columns, { caption: spec.label }));
  let Plotly;
  try { Plotly = await plotly(); } catch (error) { if (current() && !place.querySelector(".sketch")) { place.classList.remove("waiting"); fill(place, h("p", { class: "muted", text: `No chart: ${error.message}.` })); } return; }
  if (!current()) return;
  place.classList.remove("waiting");
  // Nothing is painted between the end of the sketch and the chart.
  if (!place._fullLayout) place.replaceChildren();
  await Plotly.react(place, spec.traces, layoutOf(place, spec), { displayModeBar: false, responsive: true, scrollZoom: false });
  place.removeAllListeners?.("plotly_click");
  place.removeAllListeners?.("plotly_afterplot");
  handles(el.querySelector(".handles"), place, spec.lines || []);
  mark("chart");
  mark("interactive");
  for (const [name, run] of Object.entries(events)) place.on(name, run);
}

// Files of a figure; a picture takes the library, data do not.
function takeaway(el, place, spec) {
  const picture = async (format) => {
    try {
      const Plotly = await plotly(), size = { width: 1200, height: 680 };
      const url = await Plotly.toImage({ data: spec.traces, layout: { ...layoutOf(place, spec), paper_bgcolor: colour("card"), ...size } }, { format, ...size, scale: format === "png" ? 2 : 1 });
      save(`${spec.name}.${format}`, await blob(url));
    } catch (error) { toast(`No picture: ${error.message}`); }
  };
  fill(el.querySelector(".takeout"), ["svg", "png"].map((f) => h("button", { type: "button", text: f.toUpperCase(), "aria-label": `Save ${spec.name} as ${f.toUpperCase()}`, onclick: () => picture(f) })),
    h("button", { type: "button", text: "CSV", "aria-label": `Save ${spec.name} as CSV`, onclick: () => save(`${spec.name}.csv`, csv(spec.rows), "text/csv") }),
    h("button", { type: "button", text: "JSON", "aria-label": `Save ${spec.name} as JSON`, onclick: () => save(`${spec.name}.json`, JSON.stringify(spec.rows, null, 2), "application/json") }));
  el.querySelector("details").hidden = !spec.columns;
}

// Lines that can be dragged, and moved by arrow keys. `lines`: key, value, name, words(value), step(value, way), live(value), done(value).
function handles(el, place, lines) {
  const held = el.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const axis = () => place._fullLayout.yaxis, bounds = () => { const { range: [a, b], type } = axis(), value = (r) => type === "log" ? 10 ** r : r; return [Math.max(value(a), 0), value(b)]; };
  const inside = (v) => { const [low, high] = bounds(); return Math.min(Math.max(v, low), high); };
  const all = lines.map((line) => {
    let value = line.value;
    const label = h("span"), grip = h("div", { class: "grip", role: "slider", tabindex: 0, "data-key": line.key, "aria-label": line.name, "aria-orientation": "vertical", title: "Drag, or use the arrow keys" }, label, h("i", { "aria-hidden": "true", text: "\u2195" }));
    const rule = h("div", { class: line.set === false ? "rule unset" : "rule" }, grip);
    const put = () => {
      const y = axis(), x = place._fullLayout.xaxis, [low, high] = bounds();
      rule.hidden = !(value >= low && value <= high) && line.set !== false;
      Object.assign(rule.style, { top: `${y._offset + y.d2p(inside(value))}px`, left: `${x._offset}px`, width: `${x._length}px` });
      label.textContent = line.words(value);
      for (const [key, v] of [["valuenow", value], ["valuemin", low], ["valuemax", high], ["valuetext", line.words(value)]]) grip.setAttribute(`aria-${key}`, v);
    };
    const move = (event) => { value = inside(axis().p2d(event.clientY - place.getBoundingClientRect().top - axis()._offset)); put(); line.live(value); };
    grip.addEventListener("pointerdown", (event) => { event.preventDefault(); grip.focus(); grip.setPointerCapture(event.pointerId); grip.addEventListener("pointermove", move); });
    grip.addEventListener("pointerup", () => { grip.removeEventListener("pointermove", move); line.done(value); });
    grip.addEventListener("keydown", (event) => {
      const way = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 4, PageDown: -4 }[event.key];
      if (!way) return;
      event.preventDefault();
      value = inside(line.step(value, way));
      put();
      line.done(value);
    });
    return { rule, grip, put };
  });
  fill(el, all.map((each) => each.rule));
  const put = () => all.forEach((each) => each.put());
  put();
  place.on("plotly_afterplot", put);
  all.find((each) => each.grip.dataset.key === held)?.grip.focus();
}

function blob(url) {
  const [head, data] = [url.slice(0, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
  const text = head.includes("base64") ? atob(data) : decodeURIComponent(data);
  const bytes = head.includes("base64") ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : text;
  return new Blob([bytes], { type: head.slice(5).split(";")[0] });
}
