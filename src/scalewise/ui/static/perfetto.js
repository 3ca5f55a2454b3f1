// The simulated step as files: a trace for Perfetto, an SVG of the lanes.

import * as k from "./kit.js";
import { question } from "./state.js";

// The drawn lanes as one SVG file.
export function savePicture(place) {
  const drawn = [...place.querySelectorAll("svg")],
    style = getComputedStyle(document.documentElement);
  let y = 0;
  const body = drawn
    .map((svg) => {
      const inner = `<g transform="translate(0 ${y})">${svg.innerHTML}</g>`;
      y += svg.height.baseVal.value + 20;
      return inner;
    })
    .join("")
    .replace(/var\(--([a-z-]+)\)/g, (_, name) => style.getPropertyValue(`--${name}`).trim());
  k.save(
    "timeline.svg",
    [
      `<svg xmlns="http://www.w3.org/2000/svg" width="${drawn[0].width.baseVal.value}"`,
      ` height="${y}" font-family="sans-serif">`,
      `<rect width="100%" height="100%" fill="${style.getPropertyValue("--card")}"/>`,
      `${body}</svg>`,
    ].join(""),
    "image/svg+xml",
  );
}

// The trace, gzipped; null after an error message.
async function trace() {
  const response = await fetch("/api/trace", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question()),
  });
  if (response.ok) return response.blob();
  k.toast((await response.json()).error);
  return null;
}

// Perfetto runs in this browser and receives the file by postMessage; nothing is uploaded.
export async function openPerfetto(strategy) {
  const origin = "https://ui.perfetto.dev",
    other = window.open(origin),
    file = await trace();
  if (!other || !file) return;
  const buffer = await file.arrayBuffer();
  const ping = setInterval(() => other.postMessage("PING", origin), 200);
  const hear = (event) => {
    if (event.origin !== origin || event.data !== "PONG") return;
    clearInterval(ping);
    removeEventListener("message", hear);
    other.postMessage(
      { perfetto: { buffer, title: `${strategy}, predicted`, fileName: "step.json.gz" } },
      origin,
    );
  };
  addEventListener("message", hear);
  setTimeout(() => clearInterval(ping), 20000);
}

export async function saveTrace() {
  const file = await trace();
  if (file) k.save("step.json.gz", file);
}
