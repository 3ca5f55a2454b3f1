// Pinned strategies and clusters side by side, compared with the current one.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { query, questionOf, state, write } from "./state.js";

const { h, fill } = k;
const MAX_PINS = 4;

const kept = new Map(),
  asking = new Set();

export function pins(el, answer, ctx) {
  // With its strategy, given or default, so that a pin keeps its numbers.
  const here =
    query({ views: false, pins: false }) +
    (state.q.strategy ? "" : `&strategy=${answer.question.strategy}`);
  const mine = state.pins.includes(here),
    full = state.pins.length >= MAX_PINS;
  const button = h("button", {
    type: "button",
    id: "pin-plan",
    disabled: mine || full,
    text: mine ? "Pinned" : full ? "Four configurations are pinned" : "Pin this configuration",
    onclick: () => {
      state.pins.push(here);
      write();
      pins(el, ctx.answer, ctx);
    },
  });
  if (!state.pins.length) {
    fill(
      el,
      h(
        "div",
        { class: "row between" },
        h("p", { class: "muted" }, "Pin up to four configurations to compare them."),
        button,
      ),
    );
    el.classList.add("slim");
    return;
  }
  el.classList.remove("slim");
  const columns = state.pins.map((text) => ({ text, answer: kept.get(text) }));
  for (const { text } of columns.filter((each) => !each.answer && !asking.has(each.text))) {
    // Asked once each: a second request of the same kind aborts the first.
    asking.add(text);
    ask("estimate", questionOf(text), { kind: `pin ${text}` })
      .then(
        (answer) => {
          kept.set(text, answer);
          pins(el, ctx.answer, ctx);
        },
        () => {
          state.pins = state.pins.filter((p) => p !== text);
          write();
        },
      )
      .finally(() => asking.delete(text));
  }
  const all = [{ text: null, answer }, ...columns.filter((c) => c.answer)];
  const rows = [
    ["Model", (t) => t.question.model],
    ["Hardware", (t) => `${k.count(Number(t.question.gpus))} \u00d7 ${t.question.on}`],
    ["Strategy", (t) => h("code", { text: t.question.strategy })],
    ["Step time", (t) => k.seconds(t.headline.step_seconds[0]), (t) => t.headline.step_seconds[0]],
    ["Whole run", (t) => k.days(t.headline.days?.[0]), (t) => t.headline.days?.[0]],
    ["Cost", (t) => k.dollars(t.headline.usd?.[0]), (t) => t.headline.usd?.[0]],
    ["Energy", (t) => k.energy(t.headline.joules?.[0]), (t) => t.headline.joules?.[0]],
    ["MFU", (t) => k.percent(t.headline.mfu[0])],
    ["Exposed communication", (t) => k.percent(t.headline.exposed_fraction)],
    ["Peak memory", (t) => k.gib(t.headline.memory_bytes[0])],
  ];
  fill(
    el,
    h("div", { class: "row between" }, h("h2", { text: "Pinned configurations" }), button),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Pinned configurations" },
      h(
        "table",
        { class: "compare" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, h("span", { class: "unseen", text: "Quantity" })),
            all.map((c, i) =>
              h(
                "th",
                { scope: "col" },
                c.text === null
                  ? "current"
                  : [
                      `pin ${i} `,
                      h("button", {
                        type: "button",
                        class: "link",
                        text: "open",
                        onclick: () => open(c.text, ctx),
                      }),
                      " ",
                      h("button", {
                        type: "button",
                        class: "link",
                        text: "remove",
                        "aria-label": `remove pin ${i}`,
                        onclick: () => {
                          state.pins = state.pins.filter((p) => p !== c.text);
                          write();
                          pins(el, ctx.answer, ctx);
                        },
                      }),
                    ],
              ),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map(([name, cell, value]) =>
            h(
              "tr",
              {},
              h("th", { scope: "row", text: name }),
              all.map((c, i) =>
                h(
                  "td",
                  {},
                  cell(c.answer),
                  i && value ? [" ", k.delta(value(c.answer), value(answer))] : null,
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function open(text, ctx) {
  const params = new URLSearchParams(text);
  state.q = Object.fromEntries([...params].filter(([key]) => key !== "set"));
  state.set = params.getAll("set");
  ctx.refresh();
}
