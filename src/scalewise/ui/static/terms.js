// Terms of the step as a waterfall: each bar begins where the one before it ends.

import * as k from "./kit.js";
import { KINDS, TERMS } from "./tables.js";

const { h, fill } = k;

// One row: label, bar from `left` on, seconds, percent. `props` make it a button.
export function termRow(term, left, props) {
  const { label, color, kind } = TERMS[term.key];
  const at = `left:${(100 * left).toFixed(3)}%;width:max(${(100 * term.share).toFixed(3)}%,2px)`;
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "term", ...props },
      h("span", { class: "label", text: label }),
      h(
        "span",
        { class: "track" },
        h("span", { class: `bar tinted ${kind}`, style: `--tint:${color};${at}` }),
      ),
      h("span", { class: "num", text: k.seconds(term.seconds) }),
      h("span", { class: "num pc", text: k.percent(term.share) }),
    ),
  );
}

export function waterfall(el, answer, explain) {
  const step = answer.headline.step_seconds[0];
  let from = 0;
  const rows = answer.waterfall.map((term) => {
    const left = from;
    from += term.share;
    return termRow(term, left, {
      onclick: () => explain(term.key),
      title: "Show formula, inputs and source",
    });
  });
  const kinds = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const { key, share } of answer.waterfall) kinds[TERMS[key].kind] += share;
  const overlapped = answer.hidden.filter((each) => each.hidden > 0.0005 * step);
  fill(
    el,
    h("h2", { text: "Step time" }),
    h(
      "p",
      { class: "legend" },
      Object.entries(kinds).map(([kind, share]) =>
        h(
          "span",
          {},
          h("i", { class: `swatch tinted ${kind}`, style: `--tint:${KINDS[kind]}` }),
          `${kind} ${k.percent(share, 0)}`,
        ),
      ),
    ),
    h(
      "ol",
      { class: "fall" },
      rows,
      h(
        "li",
        { class: "total" },
        h(
          "span",
          { class: "term" },
          h("span", { class: "label", text: "total" }),
          h(
            "span",
            { class: "track" },
            h("span", { class: "bar sum", style: "left:0;width:100%" }),
          ),
          h("span", { class: "num", text: k.seconds(step) }),
          h("span", { class: "num pc", text: "100.0%" }),
        ),
      ),
    ),
    h(
      "div",
      { class: "overlap" },
      h("h3", {
        text: overlapped.length
          ? "Overlapped communication, not part of the total"
          : "No overlapped communication",
      }),
      h(
        "ol",
        { class: "fall thin" },
        overlapped.map((each) =>
          h(
            "li",
            {},
            h(
              "span",
              { class: "term" },
              h("span", { class: "label", text: each.label }),
              h(
                "span",
                { class: "track" },
                h("span", {
                  class: "bar overlapped",
                  style: `left:0;width:min(${((100 * each.hidden) / step).toFixed(2)}%,100%)`,
                }),
              ),
              h("span", { class: "num", text: k.seconds(each.hidden) }),
              h("span", { class: "num pc", text: k.percent(each.hidden / step) }),
            ),
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "takeout" },
      h("button", {
        type: "button",
        text: "SVG",
        "aria-label": "Save the terms of the step as SVG",
        onclick: () => k.save("step.svg", picture(answer), "image/svg+xml"),
      }),
      h("button", {
        type: "button",
        text: "CSV",
        "aria-label": "Save the terms of the step as CSV",
        onclick: () => k.save("step.csv", k.csv(answer.waterfall), "text/csv"),
      }),
      h("button", {
        type: "button",
        text: "JSON",
        "aria-label": "Save the terms of the step as JSON",
        onclick: () =>
          k.save(
            "step.json",
            JSON.stringify(
              {
                question: answer.question,
                waterfall: answer.waterfall,
                hidden: answer.hidden,
                memory: answer.memory,
              },
              null,
              2,
            ),
            "application/json",
          ),
      }),
    ),
  );
}

// The waterfall as an SVG file, in the colors of the current theme.
function picture(answer) {
  const style = getComputedStyle(document.documentElement),
    tint = (name) => style.getPropertyValue(`--${name}`).trim(),
    safe = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const wide = 960,
    left = 240,
    right = 170,
    inner = wide - left - right,
    row = 26,
    top = 48;
  let from = 0;
  const rows = answer.waterfall.map((t, i) => {
    const x = left + from * inner,
      y = top + i * row;
    from += t.share;
    const { label, color } = TERMS[t.key],
      width = Math.max(t.share * inner, 1).toFixed(1),
      end = (at, text) => `<text x="${at}" y="${y + 14}" text-anchor="end">${safe(text)}</text>`;
    return (
      end(left - 10, label) +
      `<rect x="${x.toFixed(1)}" y="${y}" width="${width}" height="18" fill="${color}"/>` +
      end(wide - 90, k.seconds(t.seconds)) +
      end(wide - 14, k.percent(t.share))
    );
  });
  const q = answer.question,
    step = k.seconds(answer.headline.step_seconds[0]),
    title = `${q.model} | ${q.gpus}\u00d7 ${q.on} | ${q.strategy} | step ${step}`,
    tall = top + rows.length * row + 14;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${tall}"`,
    ` viewBox="0 0 ${wide} ${tall}" font-family="sans-serif" font-size="13" fill="${tint("ink")}">`,
    `<rect width="100%" height="100%" fill="${tint("card")}"/>`,
    `<text x="14" y="26" font-size="15" font-weight="bold">${safe(title)}</text>`,
    ...rows,
    "</svg>",
  ].join("");
}
