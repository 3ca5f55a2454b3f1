// Queue of runs: a list of models, sizes and tokens on one cluster, and its calendar.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { drawReport } from "./report_figure.js";
import { question, questionOf, state, write } from "./state.js";

const { h, fill } = k;

const HEADS = ["GPUs", "Start", "End", "80% until", "Days", "Cost", "Fit"];

// Fields of a run beside those of a question.
const OWN = ["name", "after", "earliest"];

let answer = null,
  asked = "";

export function queueSection(el, ctx, planned) {
  answer = null;
  asked = "";
  const area = h("textarea", {
    rows: 6,
    "aria-label": "Plan file or queue file",
    placeholder: 'model = "llama-3-70b"\ngpus = 256\ntokens = "2T"',
    spellcheck: "false",
  });
  return h(
    "section",
    { class: "card", id: "queue" },
    h("h2", { text: "Queue of runs" }),
    h("p", { class: "muted", id: "queue-on" }),
    h("div", { id: "runs" }),
    h(
      "div",
      { class: "row", id: "queue-tools" },
      h("button", {
        type: "button",
        text: "Add run",
        onclick: () => append(el, ctx, { model: state.q.model, tokens: state.q.tokens || "1T" }),
      }),
      h("button", {
        type: "button",
        text: "Add the answer",
        title: "The plan that is marked in the table above",
        onclick: () => {
          const query = planned()?.copy.query;
          if (query) append(el, ctx, Object.fromEntries(new URLSearchParams(query)));
          else k.toast("No single plan is the answer");
        },
      }),
      h(
        "label",
        { class: "field" },
        "Start ",
        h("input", {
          type: "date",
          value: state.v.start,
          onchange: (e) => {
            state.v.start = e.target.value;
            write();
            updateQueue(el, ctx);
          },
        }),
      ),
    ),
    h(
      "details",
      {},
      h("summary", { text: "Paste a plan file or a queue file" }),
      area,
      h("button", {
        type: "button",
        text: "Add pasted runs",
        onclick: async () => {
          if (await place(el, ctx, { text: area.value, again: true })) area.value = "";
        },
      }),
    ),
    h("div", { id: "queue-refused" }),
    h(
      "div",
      { id: "calendar", hidden: true },
      h("p", { class: "lead" }, h("b", { id: "queue-lead" })),
      h("div", { id: "queue-table" }),
      h("div", { id: "queue-picture" }),
      h("p", {
        class: "muted small",
        text: "Blue: predicted days of a run. Pale: days to the far end of its 80% interval.",
      }),
      h("ul", { class: "plain small", id: "queue-others" }),
      h("div", { class: "takeout", id: "queue-takeout" }),
    ),
  );
}

const read = (text) => Object.fromEntries(new URLSearchParams(text));

function append(el, ctx, fields) {
  const names = state.runs.map((text) => read(text).name);
  let name = fields.model;
  for (let i = 2; names.includes(name); i++) name = `${fields.model}-${i}`;
  state.runs.push(String(new URLSearchParams({ ...fields, name })));
  write();
  updateQueue(el, ctx);
}

function edit(el, ctx, i, key, value) {
  const fields = new URLSearchParams(state.runs[i]);
  if (value.trim()) fields.set(key, value.trim());
  else fields.delete(key);
  // Strategy and batch are those of the model and size before.
  if (key === "model" || key === "n") for (const each of ["strategy", "batch"]) fields.delete(each);
  state.runs[i] = String(fields);
  write();
  // After the tab key has moved the focus.
  setTimeout(() => updateQueue(el, ctx));
}

function body() {
  const words = question({ strategy: "", batch: "", seq: "", tokens: "" });
  if (state.v.region) words.region = state.v.region;
  const runs = state.runs.map((text) => {
    const fields = read(text);
    return {
      question: questionOf(text),
      ...Object.fromEntries(OWN.filter((key) => fields[key]).map((key) => [key, fields[key]])),
    };
  });
  return { question: words, runs, start: state.v.start || null };
}

export function updateQueue(el, ctx, { again = false } = {}) {
  if (!el.querySelector("#queue")) return;
  el.querySelector("#queue-on").textContent =
    `On ${k.count(Number(state.q.n))}\u00d7 ${state.q.on}, in order of priority. ` +
    "A run without a number of GPUs takes all of them; a small run may fill a gap.";
  list(el, ctx);
  place(el, ctx, { again });
}

// Ask for the calendar; with `text`, of a file whose runs join the list.
async function place(el, ctx, { text = null, again = false } = {}) {
  const fixed = el.querySelector("#calendar"),
    refused = el.querySelector("#queue-refused");
  if (!state.runs.length && text === null) {
    fixed.hidden = true;
    fill(refused);
    asked = "";
    return false;
  }
  const request = body(),
    key = JSON.stringify(request);
  if (key === asked && answer && !again) return true;
  asked = key;
  try {
    answer = await ask("queue", text === null ? request : { ...request, text }, { kind: "queue" });
  } catch (error) {
    if (error.name !== "AbortError") {
      fixed.hidden = true;
      fill(refused, k.refusal(error));
      asked = "";
    }
    return false;
  }
  fill(refused);
  if (text !== null) {
    state.runs = answer.queries.map(({ query, ...own }) => {
      const fields = new URLSearchParams(query);
      fields.delete("on");
      for (const name of OWN) if (own[name]) fields.set(name, own[name]);
      return String(fields);
    });
    state.v.start = answer.queue.start;
    asked = "";
    write();
    list(el, ctx);
    ctx.change({ on: answer.on, n: answer.gpus });
  }
  paint(el);
  return true;
}

function list(el, ctx) {
  const names = ["", ...state.runs.map((text) => read(text).name)];
  const cell = (key, label, size, hint) => (run) =>
    h("input", {
      type: "text",
      value: run[key] || "",
      size,
      placeholder: hint,
      "aria-label": `${label} of ${run.name}`,
      "data-at": `${key}-${run.i}`,
      autocomplete: "off",
      spellcheck: "false",
      onchange: (e) => edit(el, ctx, run.i, key, e.target.value),
    });
  const rest = (run) =>
    Object.entries(run)
      .filter(([key]) => !["i", "model", "n", "tokens", "on", ...OWN].includes(key))
      .map(([key, value]) => (key === "strategy" ? value : `${key} ${value}`))
      .join(", ");
  const columns = [
    ["Run", cell("name", "Name", 16)],
    ["Model", cell("model", "Model", 18)],
    ["GPUs", cell("n", "GPUs", 6, "all")],
    ["Tokens", cell("tokens", "Tokens", 6)],
    [
      "After",
      (run) =>
        h(
          "select",
          {
            "aria-label": `Run before ${run.name}`,
            "data-at": `after-${run.i}`,
            onchange: (e) => edit(el, ctx, run.i, "after", e.target.value),
          },
          [...new Set([...names.slice(0, run.i + 1), run.after || ""])].map((name) =>
            h("option", {
              value: name,
              text: name || "\u2013",
              selected: name === (run.after || ""),
            }),
          ),
        ),
    ],
    ["More", (run) => h("span", { class: "muted small", text: rest(run) })],
    [
      h("span", { class: "unseen", text: "Remove" }),
      (run) =>
        h("button", {
          type: "button",
          text: "Remove",
          "aria-label": `Remove ${run.name}`,
          onclick: () => {
            state.runs.splice(run.i, 1);
            write();
            updateQueue(el, ctx);
          },
        }),
    ],
  ];
  const at = el.querySelector("#runs");
  if (!state.runs.length) {
    fill(at, h("p", { class: "muted", text: "No runs yet." }));
    return;
  }
  const rows = state.runs.map((text, i) => ({ ...read(text), i }));
  // The field that was reached by the tab key keeps the focus.
  const reached = document.activeElement?.dataset?.at;
  fill(at, k.table(rows, columns, { caption: "Runs of the queue" }));
  if (reached) at.querySelector(`[data-at=${reached}]`)?.focus();
}

function paint(el) {
  const { queue, cells, others, copy } = answer;
  el.querySelector("#calendar").hidden = false;
  el.querySelector("#queue-lead").textContent = queue.lead;
  const columns = [
    [
      "Run",
      (run) => [
        `${run.name}: ${run.model}`,
        h("br"),
        h("span", { class: "muted small", text: run.strategy }),
      ],
      "name",
    ],
    ...HEADS.map((head, place) => [head, (run) => run.cells[place], "num"]),
  ];
  const rows = queue.runs.map((run, i) => ({ ...run, cells: cells[i] }));
  fill(el.querySelector("#queue-table"), k.table(rows, columns, { caption: "Calendar" }));
  fill(
    el.querySelector("#queue-others"),
    others.map((text) => h("li", { text })),
    queue.notes.map((text) => h("li", { text })),
  );
  fill(
    el.querySelector("#queue-takeout"),
    h("button", {
      type: "button",
      text: "queue.toml",
      "aria-label": "Save the queue as queue.toml",
      onclick: () => k.save("queue.toml", copy.toml, "application/toml"),
    }),
    h("button", {
      type: "button",
      text: "Command",
      "aria-label": "Copy the command for queue.toml",
      onclick: () => k.copy(copy.cli, "Command"),
    }),
  );
  // A figure is there once there are runs: an empty one would wait for its chart.
  if (!el.querySelector("#queue-figure"))
    fill(el.querySelector("#queue-picture"), c.figure("queue-figure"));
  const { data, layout } = answer.figure;
  drawReport(
    el.querySelector("#queue-figure"),
    { data, layout: { ...layout, showlegend: false } },
    {
      rows: queue.runs,
      name: "queue",
      label: queue.lead,
      least: 120 + 44 * queue.runs.length,
    },
  );
}
