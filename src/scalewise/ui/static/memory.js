// Peak memory of the worst rank by part, against capacity.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { question } from "./state.js";
import { MEMORY_PARTS } from "./tables.js";

const { h, fill } = k;

// Memory of one host that offload takes; nothing without offload.
function hostMemory(headline) {
  const used = headline.host_memory_bytes,
    has = headline.host_memory_capacity;
  if (!used) return "";
  const size = has === null ? "unknown size" : k.gib(has);
  return h("p", { class: "muted", text: `Offloaded: ${k.gib(used)} of ${size} per host` });
}

export function memory(el, answer) {
  const [now, low, high] = answer.headline.memory_bytes,
    capacity = answer.headline.memory_capacity;
  const full = Math.max(capacity, high) * 1.04,
    at = (v) => `${((100 * v) / full).toFixed(2)}%`;
  const parts = answer.memory
    .filter((m) => m.bytes > 0.001 * now)
    .sort((a, b) => b.bytes - a.bytes)
    .map((m) => ({ ...MEMORY_PARTS[m.key], bytes: m.bytes }));
  const listed = parts.map((m) => `${m.label} ${k.gib(m.bytes)}`).join(", ");
  const left = capacity - now;
  fill(
    el,
    h("h2", { text: "Peak memory (worst rank)" }),
    h(
      "p",
      { class: "lead" },
      h("strong", { text: k.gib(now) }),
      ` of ${k.gib(capacity)}, `,
      left >= 0
        ? `${k.gib(left)} free`
        : h("b", { class: "bad", text: `${k.gib(-left)} over capacity` }),
      h("span", { class: "muted", text: `; 80% interval ${k.range(k.gib, low, high)}` }),
    ),
    hostMemory(answer.headline),
    h(
      "div",
      {
        class: "stack",
        role: "img",
        "aria-label": `${k.gib(now)} of ${k.gib(capacity)}: ${listed}`,
      },
      h(
        "div",
        { class: "pile" },
        parts.map((m) =>
          h("span", {
            class: "tinted",
            style: `--tint:${m.color};width:${at(m.bytes)}`,
            title: `${m.label}: ${k.gib(m.bytes)}`,
          }),
        ),
      ),
      h("span", {
        class: "whisker",
        style: `left:${at(low)};width:calc(${at(high)} - ${at(low)})`,
      }),
      h("span", { class: "limit", style: `left:${at(capacity)}` }, h("em", { text: "capacity" })),
    ),
    h(
      "ul",
      { class: "parts" },
      parts.map((m) =>
        h(
          "li",
          {},
          h("i", { class: "swatch tinted", style: `--tint:${m.color}` }),
          h("span", { text: m.label }),
          h("span", { class: "num", text: k.gib(m.bytes) }),
        ),
      ),
    ),
    h("div", { id: "fits", class: "muted" }, fits.text || "\u00a0"),
  );
  next(answer);
}

// Largest micro-batch and fewest GPUs that fit, asked for after the answer is on the screen.
const fits = { key: "", text: "" };

let waiting;

function next(answer) {
  const key = JSON.stringify(answer.question);
  if (fits.key === key) return;
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    try {
      const found = await ask("fits", question(), { kind: "fits" });
      const parts = [];
      if (found.micro_batch)
        parts.push(
          found.micro_batch > found.current
            ? `Largest micro-batch that fits: ${found.micro_batch}.`
            : `Micro-batch ${found.current} is the largest that fits.`,
        );
      if (found.accelerators)
        parts.push(
          `Fewest GPUs for this model and batch: ${k.count(found.accelerators)} ` +
            `(${found.strategy}, step ${k.seconds(found.step_seconds)}).`,
        );
      Object.assign(fits, { key, text: parts.join(" ") });
      const place = document.getElementById("fits");
      if (place) place.textContent = fits.text || "\u00a0";
    } catch {
      /* The answer is complete without it. */
    }
  }, 350);
}
