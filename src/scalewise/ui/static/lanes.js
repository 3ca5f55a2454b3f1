// Lanes of the timeline as SVG: streams or stages as rows, kernels and collectives as bars.

import { tint } from "./charts.js";
import * as k from "./kit.js";

const { h } = k;

// Names of streams on narrow screens.

const SHORT = {
  compute: "compute",
  "tensor parallel": "tensor",
  "context parallel": "context",
  "expert parallel": "expert",
  replicas: "replicas",
  "data parallel": "data",
  "pipeline send/recv": "P2P",
  "host launches": "host",
};

const width = (el) => {
  const style = getComputedStyle(el);
  return Math.max(
    Math.min(el.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight), 1500),
    300,
  );
};

// Round values between two ends, at most `max` of them.
function ticks(low, high, max) {
  const span = high - low;
  let step = 10 ** Math.floor(Math.log10(span / max));
  step *= [1, 2, 5, 10].find((f) => span / (step * f) <= max) || 10;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step)
    found.push(at);
  return found;
}

// Bars by row, reachable by pointer and by arrow keys. `say(words, link)` shows one in words.
export function panel(p, el, answer, say) {
  const wide = width(el),
    left = wide < 500 ? 66 : 128,
    right = 12,
    inner = wide - left - right;
  const row = p.rows.length > 12 ? Math.max(12, Math.floor(340 / p.rows.length)) : 26,
    gap = row > 14 ? 6 : 2,
    top = 6;
  const tall = top + p.rows.length * (row + gap),
    x = (t) => left + ((t - p.low) / (p.high - p.low)) * inner;
  const bars = p.rows.map(() => []);
  const parts = p.rows
    .flatMap((each, i) => {
      const y = top + i * (row + gap);
      const idle = h("rect", { x: left, y, width: inner, height: row, fill: "var(--hair)" });
      if (each.name.startsWith("stage ")) Object.assign(idle, { idle: each.name, link: 0 });
      return [
        idle,
        text(
          left - 8,
          y + row / 2 + 4,
          wide < 500 ? SHORT[each.name] || each.name : each.name,
          "end",
        ),
        ...each.bars.map(([start, end, color, , mark, link]) => {
          const w = Math.max(((end - start) / (p.high - p.low)) * inner, 0.4);
          const bar = h("rect", {
            class: "bar-of",
            x: x(start).toFixed(2),
            y,
            width: w.toFixed(2),
            height: row,
            fill: tint(answer.colors[color]),
            stroke: w > 4 ? "var(--card)" : null,
            "stroke-width": w > 4 ? 0.6 : null,
          });
          bars[i].push(bar);
          Object.assign(bar, { place: [i, bars[i].length - 1], link });
          return mark && (answer.stages > 1 || p.low > 0) && row >= 16 && w > 7 * mark.length + 6
            ? [bar, text(x(start) + w / 2, y + row / 2 + 4, mark, "middle", color)]
            : bar;
        }),
      ];
    })
    .flat();
  // The last tick is the end of the step.
  const room = ((p.high - p.low) * (wide < 500 ? 106 : 112)) / inner;
  const axis = [
    ...ticks(p.low, p.high, wide < 500 ? 3 : 9).filter((t) => t < p.high - room),
    p.high,
  ].flatMap((t) => [
    h("line", {
      x1: x(t),
      x2: x(t),
      y1: top,
      y2: tall,
      stroke: "var(--soft)",
      "stroke-width": 0.5,
      "stroke-dasharray": "2 4",
      "pointer-events": "none",
    }),
    text(
      x(t),
      tall + 15,
      t === p.high && !p.low ? `ends at ${k.seconds(t)}` : k.seconds(t),
      t === p.high ? "end" : t === p.low ? "start" : "middle",
      null,
      true,
    ),
  ]);
  let at = null;
  const show = (row, place) => {
    at?.classList.remove("at");
    at = bars[row][place];
    at.classList.add("at");
    const [start, end, , words, , link] = p.rows[row].bars[place];
    const times = `${k.seconds(end - start)}, from ${k.seconds(start)} to ${k.seconds(end)}`;
    say(`${p.rows[row].name}, ${words}: ${times}`, answer.links[link]);
  };
  const drawn = h(
    "svg",
    {
      viewBox: `0 0 ${wide} ${tall + 22}`,
      width: wide,
      height: tall + 22,
      role: "img",
      "aria-label": `${p.name}: ${p.rows.map((r) => `${r.name}, ${r.bars.length} bars`).join("; ")}`,
    },
    parts,
    axis,
  );
  drawn.addEventListener("pointerover", ({ target }) => {
    if (target.place) show(...target.place);
    else if (target.idle) {
      at?.classList.remove("at");
      say(`${target.idle}: idle`, answer.links[0]);
    }
  });
  const keys = (event) => {
    const [row, place] = at?.place || [0, -1],
      middle = (bar) => bar[0] + bar[1];
    let next = null;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft")
      next = [
        row,
        Math.min(Math.max(place + (event.key === "ArrowRight" ? 1 : -1), 0), bars[row].length - 1),
      ];
    else if (event.key === "Home" || event.key === "End")
      next = [row, event.key === "Home" ? 0 : bars[row].length - 1];
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const other = Math.min(
          Math.max(row + (event.key === "ArrowDown" ? 1 : -1), 0),
          bars.length - 1,
        ),
        now = place < 0 ? 2 * p.low : middle(p.rows[row].bars[place]);
      // The bar of that lane that is nearest in time.
      next = [
        other,
        p.rows[other].bars.reduce(
          (best, bar, i, list) =>
            Math.abs(middle(bar) - now) < Math.abs(middle(list[best]) - now) ? i : best,
          0,
        ),
      ];
    }
    if (!next || !bars[next[0]].length) return;
    event.preventDefault();
    show(...next);
    at.scrollIntoView({ block: "nearest" });
  };
  return h(
    "div",
    {
      class: "panel lanes",
      tabindex: 0,
      role: "group",
      "aria-label": `${p.name}. Arrow keys move between bars and lanes.`,
      onkeydown: keys,
    },
    h("h2", { text: p.name }),
    drawn,
  );
}

function text(x, y, words, anchor, color, soft) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", "text");
  for (const [key, value] of Object.entries({
    x: x.toFixed(1),
    y: y.toFixed(1),
    "text-anchor": anchor,
    "font-size": 11.5,
    fill:
      color === null || color === undefined
        ? soft
          ? "var(--soft)"
          : "var(--ink)"
        : ["wait", "tensor", "other", "data"].includes(color)
          ? "#111"
          : "var(--card)",
    "pointer-events": "none",
  }))
    el.setAttribute(key, value);
  el.textContent = words;
  return el;
}

// Memory of the slowest stage over the step.
export function memoryPanel(el, answer) {
  if (answer.memory.length < 2) return null;
  const p = answer.panels[0],
    wide = width(el),
    left = wide < 500 ? 66 : 128,
    right = 12,
    inner = wide - left - right,
    tall = 96;
  const max = Math.max(answer.capacity, ...answer.memory.map((m) => m[1])) * 1.05,
    x = (t) => left + ((t - p.low) / (p.high - p.low)) * inner,
    y = (v) => tall - (v / max) * (tall - 14);
  let path = `M${left},${tall}`,
    last = tall;
  for (const [t, v] of answer.memory) {
    path += `L${x(t).toFixed(1)},${last.toFixed(1)}L${x(t).toFixed(1)},${y(v).toFixed(1)}`;
    last = y(v);
  }
  path += `L${left + inner},${last}L${left + inner},${tall}Z`;
  const peak = Math.max(...answer.memory.map((m) => m[1]));
  return h(
    "div",
    { class: "panel" },
    h("h2", {
      text: answer.stages > 1 ? `Memory, stage ${answer.critical_rank}` : "Memory",
    }),
    h(
      "svg",
      {
        viewBox: `0 0 ${wide} ${tall + 4}`,
        width: wide,
        height: tall + 4,
        role: "img",
        "aria-label": `Memory over the step: peak ${k.gib(peak)} of ${k.gib(answer.capacity)}`,
      },
      h("path", {
        d: path,
        fill: "var(--accent-soft)",
        stroke: "var(--accent)",
        "stroke-width": 1,
      }),
      h("line", {
        x1: left,
        x2: left + inner,
        y1: y(answer.capacity),
        y2: y(answer.capacity),
        stroke: "var(--bad)",
        "stroke-dasharray": "5 4",
      }),
      text(
        left - 8,
        y(answer.capacity) + 4,
        wide < 500 ? "limit" : `of ${k.gib(answer.capacity)}`,
        "end",
      ),
      text(
        left - 8,
        Math.min(y(peak) + 18, tall - 1),
        wide < 500 ? `${(peak / 2 ** 30).toFixed(0)} GiB` : `peak ${k.gib(peak)}`,
        "end",
      ),
    ),
  );
}
