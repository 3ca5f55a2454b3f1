// Plan view: models, clusters and sizes as whole runs, against a deadline and a budget.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { queueSection, updateQueue } from "./plan_queue.js";
import { drawReport } from "./report_figure.js";
import { question, state, write } from "./state.js";

const { h, fill } = k;

const ORDERS = [
  ["", "time; with a limit cost"],
  ["time", "time"],
  ["tokens", "GPU-hours"],
  ["cost", "cost"],
  ["energy", "energy"],
  ["carbon", "emissions"],
  ["memory", "memory"],
];

const MEETS = [
  ["far-end", "far end of the 80% interval"],
  ["prediction", "prediction"],
];

// Inputs: key in the address, label, hint, characters; the hint shows what holds without a word.
const INPUTS = [
  ["models", "Models", () => state.q.model, 24],
  ["clusters", "Clusters", () => state.q.on, 24],
  ["counts", "GPUs", () => "64..1024", 12],
  ["deadline", "Deadline", () => "21d", 7],
  ["budget", "Budget, $", () => "1.5M", 7],
  ["batches", "Batch", () => "about 4Mtok", 11],
  ["region", "Region", () => "world", 8],
  ["own", "Own", () => "on, or purchase=43000", 21],
];

let answer = null,
  asked = "",
  every = false;

export function show(el, ctx) {
  answer = null;
  asked = "";
  fill(
    el,
    h("h1", { class: "question", text: "Whole runs" }),
    h("div", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("div", { class: "controls", id: "knobs" }),
    h("p", {
      class: "muted small",
      text:
        "Sequence, precision, tokens, stack and further inputs are those of the sentence above. " +
        "Each size has the best of the usual strategies.",
    }),
    h(
      "section",
      { class: "card", id: "plans" },
      h("p", { class: "muted", text: "Planning \u2026" }),
    ),
    h(
      "div",
      { class: "halves" },
      h("section", { class: "card sayings", id: "follows" }),
      h(
        "section",
        { class: "card", id: "ranges" },
        h("h2", { text: "Days, cost and emissions" }),
        c.figure("plan-figure"),
      ),
    ),
    queueSection(el, ctx, () => answer),
  );
}

// A deadline without a unit is in days, as in Scale.
const days = (text) => (/^[\d.]+$/.test(text.trim()) ? `${text.trim()}d` : text);

function request() {
  const v = state.v;
  const words = question({ strategy: "", n: "", batch: "" });
  const more = {
    model: v.models || words.model,
    on: v.clusters || words.on,
    gpus: v.counts,
    batch: v.batches,
    deadline: v.deadline && days(v.deadline),
    budget: v.budget,
    region: v.region,
    own: v.own,
  };
  for (const [key, value] of Object.entries(more)) if (value) words[key] = value;
  // Rows are sorted by an order of their own.
  delete words.by;
  return { question: words, by: v.order || null, meet: v.meet };
}

export async function update(el, ctx) {
  knobs(el.querySelector("#knobs"), el, ctx);
  const body = request(),
    key = JSON.stringify(body);
  updateQueue(el, ctx);
  if (key === asked && answer) {
    paint(el, ctx);
    return;
  }
  asked = key;
  const bar = el.querySelector("#progress");
  try {
    answer = await ask("plan", body, {
      kind: "plan",
      progress: (p) => {
        bar.hidden = false;
        bar.value = p;
      },
    });
    bar.hidden = true;
    paint(el, ctx);
  } catch (error) {
    if (error.name === "AbortError") return;
    bar.hidden = true;
    answer = null;
    for (const id of ["plans", "follows", "ranges"]) el.querySelector(`#${id}`).hidden = true;
    fill(el.querySelector("#says"), k.refusal(error));
  }
}

export function theme(el, ctx) {
  if (answer) paint(el, ctx);
  updateQueue(el, ctx, { again: true });
}

function knobs(el, whole, ctx) {
  const set = (key, value) => {
    state.v[key] = value.trim();
    write();
    update(whole, ctx);
  };
  if (el.childElementCount) {
    for (const [key, , hint] of INPUTS) {
      const input = el.querySelector(`[name=${key}]`);
      input.placeholder = hint();
      if (document.activeElement !== input) input.value = state.v[key];
    }
    return;
  }
  const select = (key, label, options) =>
    h(
      "label",
      { class: "field" },
      label,
      h(
        "select",
        { name: key, value: state.v[key], onchange: (e) => set(key, e.target.value) },
        options.map(([value, text]) =>
          h("option", { value, text, selected: value === state.v[key] }),
        ),
      ),
    );
  fill(
    el,
    INPUTS.map(([key, label, hint, size]) =>
      h(
        "label",
        { class: "field" },
        label,
        h("input", {
          type: "text",
          name: key,
          size,
          value: state.v[key],
          placeholder: hint(),
          autocomplete: "off",
          spellcheck: "false",
          onchange: (e) => set(key, e.target.value),
        }),
      ),
    ),
    select("order", "Order by", ORDERS),
    select("meet", "Limits are met by", MEETS),
    h("progress", { id: "progress", hidden: true, max: 1, "aria-label": "Plans evaluated" }),
  );
}

function paint(el, ctx) {
  if (!el.querySelector("#plans")) return;
  for (const id of ["plans", "follows", "ranges"]) el.querySelector(`#${id}`).hidden = false;
  const { plan, words } = answer;
  fill(
    el.querySelector("#says"),
    plan.lead.map((text) => {
      const [head, ...rest] = text.split(", ");
      return h("p", {}, h("b", { text: head }), rest.length ? `, ${rest.join(", ")}` : "");
    }),
  );
  plans(el.querySelector("#plans"), el, ctx);
  fill(
    el.querySelector("#follows"),
    Object.entries(words)
      .filter(([, lines]) => lines.length)
      .map(([name, lines]) => [
        h("h2", { text: name }),
        h(
          "ul",
          {},
          lines.map((text) => h("li", { text })),
        ),
      ]),
    h("p", { class: "muted small", text: answer.emissions }),
    h("p", { class: "muted small", text: `Defaults: ${plan.defaults.join(", ")}` }),
  );
  drawReport(el.querySelector("#plan-figure"), answer.figure, {
    rows: plan.rows,
    name: "plan",
    label: plan.lead.join(" "),
    least: 260,
  });
}

// A number above its interval.
const amount = (place) => (row) =>
  h(
    "span",
    { class: "nowrap" },
    row.numbers[place] === "-" ? "\u2013" : row.numbers[place],
    row.ranges[place] && [
      h("br"),
      h("span", { class: "muted small", text: row.ranges[place].replace("-", "\u2013") }),
    ],
  );

function open(row, ctx) {
  ctx.change({
    model: row.model,
    on: row.cluster,
    n: row.accelerators,
    strategy: row.strategy,
    batch: row.global_batch,
    tokens: row.tokens,
  });
  ctx.go("estimate");
}

function plans(el, whole, ctx) {
  const { plan, shown } = answer;
  const all = plan.rows.map((row, i) => ({ ...row, ...shown[i] })),
    rows = every ? all : all.filter((row) => row.listed),
    several = new Set(all.map((row) => row.model)).size > 1,
    limited = plan.deadline_days !== null || plan.budget_usd !== null;
  const name = (row) => [
    several && `${row.model} on `,
    row.size,
    row.answer && [" ", h("span", { class: "chip on", text: "answer" })],
    h("br"),
    row.infeasible
      ? h("span", { class: "muted small", text: row.infeasible })
      : h("button", {
          type: "button",
          class: "link",
          text: row.strategy,
          "aria-label": `Estimate ${row.size} with ${row.strategy}`,
          onclick: () => open(row, ctx),
        }),
  ];
  const columns = [
    ["Plan", name, "name"],
    ["Fit", (row) => row.fit, "num"],
    ["Days", amount(0), "num"],
    ["Cost", amount(1), "num"],
    ["MWh", amount(2), "num"],
    ["t CO2", amount(3), "num"],
    limited && [
      "Limits",
      (row) =>
        row.infeasible
          ? ""
          : h("span", { class: row.met ? "good" : "bad", text: row.limits.join(" ").trim() }),
      "num",
    ],
    ["$/GPU-h", (row) => row.price, "num"],
  ].filter(Boolean);
  const more = all.length - all.filter((row) => row.listed).length;
  fill(
    el,
    k.table(rows, columns, {
      caption: "Plans",
      selected: (row) => row.answer,
    }),
    h(
      "div",
      { class: "row between" },
      more
        ? h("button", {
            type: "button",
            text: every ? "Show asked sizes" : `Show ${more} more sizes`,
            onclick: () => {
              every = !every;
              plans(el, whole, ctx);
            },
          })
        : h("span", {}),
      takeout(),
    ),
  );
}

function takeout() {
  const { copy } = answer,
    button = (text, label, onclick) =>
      h("button", { type: "button", text, "aria-label": label, onclick });
  return h(
    "div",
    { class: "takeout" },
    button("Command", "Copy as command", () => k.copy(copy.cli, "Command")),
    button("Python", "Copy as Python", () => k.copy(copy.python, "Python")),
    copy.toml &&
      button("plan.toml", "Save the answer as plan.toml", () =>
        k.save("plan.toml", copy.toml, "application/toml"),
      ),
    button("CSV", "Save plans as CSV", () =>
      k.save("plan.csv", k.csv(answer.plan.rows), "text/csv"),
    ),
    button("JSON", "Save plans as JSON", () =>
      k.save("plan.json", JSON.stringify(answer.plan, null, 2), "application/json"),
    ),
  );
}
