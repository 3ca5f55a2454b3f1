// Charts drawn by the Plotly script of the installed Python package, loaded when first needed.

import { handles } from "./handles.js";
import { csv, fill, h, mark, save, table, toast } from "./kit.js";
import { sketch } from "./sketch.js";

let loading;

function plotly() {
  loading ||= new Promise((done, failed) => {
    const script = h("script", { src: "/plotly.min.js" });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      failed(new Error("plotly.min.js did not load"));
    });
    document.head.append(script);
  });
  return loading;
}

const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

// A color of the theme by name.
export const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const SERIES = ["blue", "vermilion", "green", "purple", "orange", "sky", "gray"];

export const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid", "dash"];

export const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];

// Colors of reports and traces as those of the theme, which differ between light and dark.
const THEMED = {
  "#0072b2": "blue",
  "#d55e00": "vermilion",
  "#009e73": "green",
  "#cc79a7": "purple",
  "#e69f00": "orange",
  "#56b4e9": "sky",
  "#8a8a8a": "gray",
  "#000000": "ink",
};
export const tint = (hex) => (THEMED[hex.toLowerCase()] ? color(THEMED[hex.toLowerCase()]) : hex);

export function translucent(name, alpha) {
  const hex = color(name).replace("#", "");
  const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

export function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 12, font: { size: 13, color: color("soft") } },
    gridcolor: color("grid"),
    linecolor: color("line"),
    zeroline: false,
    tickcolor: color("line"),
    tickfont: { color: color("soft"), size: 12 },
    automargin: true,
    ...more,
  };
}

export function powers(sizes) {
  const few = sizes.length > 12 ? sizes.filter((_, i) => i % 2 === 0) : sizes;
  return {
    type: "log",
    tickvals: few,
    ticktext: few.map((n) => n.toLocaleString("en")),
    minor: { showgrid: false },
  };
}

// A figure with chart, files and table; `draw` fills it.
export function figure(id) {
  // Plotly is prefetched while the answer is computed, and started after the sketch.
  if (!loading && !document.getElementById("early"))
    document.head.append(
      h("link", { id: "early", rel: "prefetch", as: "script", href: "/plotly.min.js" }),
    );
  return h(
    "figure",
    { id },
    h("div", { class: "chart waiting" }),
    h("div", { class: "handles" }),
    h("div", { class: "takeout" }),
    h("details", {}, h("summary", { text: "Table" }), h("div", {})),
  );
}

function layoutOf(place, spec) {
  const narrow = place.clientWidth < 520,
    lying = spec.traces.some((t) => t.orientation === "h");
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: {
      family: getComputedStyle(document.body).fontFamily,
      color: color("ink"),
      size: narrow ? 11 : 12.5,
    },
    margin: { l: narrow ? 46 : 62, r: narrow ? 8 : 18, t: 12, b: 44 },
    height: narrow ? 420 : spec.height || 440,
    hovermode: "closest",
    dragmode: false,
    hoverlabel: {
      bgcolor: color("card"),
      bordercolor: color("line"),
      font: { color: color("ink"), size: 12.5 },
      align: "left",
    },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: color("soft") } },
    ...spec.layout,
  };
  if (narrow) {
    layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 130), r: 8, t: 8 };
    layout.legend = {
      ...layout.legend,
      orientation: "h",
      y: -0.24,
      yanchor: "top",
      x: 0,
      font: { size: 11, color: color("soft") },
    };
    if (layout.xaxis?.tickvals?.length > 6)
      layout.xaxis = {
        ...layout.xaxis,
        tickvals: layout.xaxis.tickvals.filter((_, i) => i % 2 === 0),
        ticktext: layout.xaxis.ticktext.filter((_, i) => i % 2 === 0),
      };
    for (const key of ["xaxis", "yaxis"])
      if (layout[key])
        layout[key] = {
          ...layout[key],
          ...(lying && key === "yaxis"
            ? { dtick: 1, tickfont: { size: 10.5, color: color("soft") } }
            : { nticks: 4 }),
          tickangle: 0,
          title: { ...layout[key].title, font: { size: 11.5, color: color("soft") } },
        };
  }
  return layout;
}

// `spec`: traces, layout, rows, columns, name, label, height, lines.
export async function draw(el, spec, events = {}) {
  const place = el.querySelector(".chart"),
    current = () => el.spec === spec && el.isConnected;
  el.spec = spec;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", spec.label);
  if (!window.Plotly) {
    // Plotly blocks the page for a second or two when it starts. The sketch is painted before that.
    if (sketch(place, spec, layoutOf(place, spec))) {
      place.classList.remove("waiting");
      mark("chart");
    }
    files(el, place, spec);
    await painted();
  } else files(el, place, spec);
  if (!current()) return;
  if (spec.columns)
    fill(
      el.querySelector("details > div"),
      table(spec.rows.slice(0, 300), spec.columns, { caption: spec.label }),
    );
  let Plotly;
  try {
    Plotly = await plotly();
  } catch (error) {
    if (current() && !place.querySelector(".sketch")) {
      place.classList.remove("waiting");
      fill(place, h("p", { class: "muted", text: `No chart: ${error.message}` }));
    }
    return;
  }
  if (!current()) return;
  place.classList.remove("waiting");
  // The sketch is replaced within one frame.
  if (!place._fullLayout) place.replaceChildren();
  await Plotly.react(place, spec.traces, layoutOf(place, spec), {
    displayModeBar: false,
    responsive: true,
    scrollZoom: false,
  });
  place.removeAllListeners?.("plotly_click");
  place.removeAllListeners?.("plotly_afterplot");
  handles(el.querySelector(".handles"), place, spec.lines || []);
  mark("chart");
  mark("interactive");
  for (const [name, run] of Object.entries(events)) place.on(name, run);
}

// Buttons that save the figure. SVG and PNG need Plotly, CSV and JSON do not.
function files(el, place, spec) {
  const picture = async (format) => {
    try {
      const Plotly = await plotly(),
        size = { width: 1200, height: 680 };
      const url = await Plotly.toImage(
        {
          data: spec.traces,
          layout: { ...layoutOf(place, spec), paper_bgcolor: color("card"), ...size },
        },
        { format, ...size, scale: format === "png" ? 2 : 1 },
      );
      save(`${spec.name}.${format}`, await blob(url));
    } catch (error) {
      toast(`No image: ${error.message}`);
    }
  };
  fill(
    el.querySelector(".takeout"),
    ["svg", "png"].map((f) =>
      h("button", {
        type: "button",
        text: f.toUpperCase(),
        "aria-label": `Save ${spec.name} as ${f.toUpperCase()}`,
        onclick: () => picture(f),
      }),
    ),
    h("button", {
      type: "button",
      text: "CSV",
      "aria-label": `Save ${spec.name} as CSV`,
      onclick: () => save(`${spec.name}.csv`, csv(spec.rows), "text/csv"),
    }),
    h("button", {
      type: "button",
      text: "JSON",
      "aria-label": `Save ${spec.name} as JSON`,
      onclick: () =>
        save(`${spec.name}.json`, JSON.stringify(spec.rows, null, 2), "application/json"),
    }),
  );
  el.querySelector("details").hidden = !spec.columns;
}

function blob(url) {
  const [head, data] = [url.slice(0, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
  const text = head.includes("base64") ? atob(data) : decodeURIComponent(data);
  const bytes = head.includes("base64") ? Uint8Array.from(text, (c) => c.charCodeAt(0)) : text;
  return new Blob([bytes], { type: head.slice(5).split(";")[0] });
}
