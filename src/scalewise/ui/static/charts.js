// Charts, drawn by the Plotly inside the installed Python package; fetched when first needed.

import { csv, fill, h, save, table } from "./kit.js";

let loading;

export function plotly() {
  loading ||= new Promise((done, failed) => {
    if (window.Plotly) { done(window.Plotly); return; }
    const script = h("script", { src: "/plotly.min.js" });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => { loading = null; failed(new Error("the chart library did not load")); });
    document.head.append(script);
  });
  return loading;
}

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
  return h("figure", { id }, h("div", { class: "chart waiting" }), h("div", { class: "takeout" }), h("details", {}, h("summary", { text: "The same as a table" }), h("div", {})));
}

export async function draw(el, spec, events = {}) {
  const place = el.querySelector(".chart");
  el.spec = spec;
  const Plotly = await plotly();
  if (el.spec !== spec || !el.isConnected) return;
  place.classList.remove("waiting");
  const narrow = el.clientWidth < 520;
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
    for (const key of ["xaxis", "yaxis"]) if (layout[key]) layout[key] = { ...layout[key], nticks: 4, tickangle: 0, title: { ...layout[key].title, font: { size: 11.5, color: colour("soft") } } };
  }
  await Plotly.react(place, spec.traces, layout, { displayModeBar: false, responsive: true, edits: spec.edits || {}, scrollZoom: false });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", spec.label);
  place.removeAllListeners?.("plotly_click");
  place.removeAllListeners?.("plotly_relayout");
  for (const [name, run] of Object.entries(events)) place.on(name, run);
  const picture = async (format) => {
    const url = await Plotly.toImage({ data: spec.traces, layout: { ...layout, paper_bgcolor: colour("card"), width: 1200, height: 680 } }, { format, width: 1200, height: 680, scale: format === "png" ? 2 : 1 });
    save(`${spec.name}.${format}`, await blob(url));
  };
  fill(el.querySelector(".takeout"), ["svg", "png"].map((f) => h("button", { type: "button", text: f.toUpperCase(), "aria-label": `Save ${spec.name} as ${f.toUpperCase()}`, onclick: () => picture(f) })),
    h("button", { type: "button", text: "CSV", "aria-label": `Save ${spec.name} as CSV`, onclick: () => save(`${spec.name}.csv`, csv(spec.rows), "text/csv") }),
    h("button", { type: "button", text: "JSON", "aria-label": `Save ${spec.name} as JSON`, onclick: () => save(`${spec.name}.json`, JSON.stringify(spec.rows, null, 2), "application/json") }));
  if (spec.columns) fill(el.querySelector("details > div"), table(spec.rows.slice(0, 300), spec.columns, { caption: spec.label }));
  else el.querySelector("details").hidden = true;
}

function blob(url) {
  const [head, data] = [url.slice(0, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
  const text = head.includes("base64") ? atob(data) : decodeURIComponent(data);
  const bytes = head.includes("base64") ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : text;
  return new Blob([bytes], { type: head.slice(5).split(";")[0] });
}
