// Study view: shipped studies over many points, with verdicts on published claims.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { drawReport } from "./report_figure.js";
import { state, write } from "./state.js";

const { h, fill } = k;

let list = null,
  answer = null,
  running = false;

export function show(el) {
  fill(
    el,
    h("h1", { class: "question", text: "Published claims, tested" }),
    h(
      "p",
      { class: "says" },
      "A study evaluates many points and gives tables, figures and a verdict on each claim. ",
      h("code", { text: "scalewise study run" }),
      " writes the full report.",
    ),
    h(
      "section",
      { class: "cards", id: "list", "aria-busy": "true" },
      h("p", { class: "muted", text: "Loading studies \u2026" }),
    ),
    h("div", { id: "answer-study" }),
  );
  load(el);
}

export function update() {}

export const theme = (el) => answer && paint(el);

async function load(el) {
  try {
    list ||= (await ask("studies", null, { kind: "studies" })).studies;
    choose(el);
    if (answer && answer.name === state.v.study) paint(el);
    else if (state.v.study) run(el, state.v.study, true);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#list"), k.refusal(error));
  }
}

function choose(el) {
  const place = el.querySelector("#list");
  place.removeAttribute("aria-busy");
  fill(
    place,
    list.map((s) =>
      h(
        "section",
        { class: `card${state.v.study === s.name ? " on" : ""}` },
        h("h2", { text: s.title }),
        h("p", { class: "muted", text: s.question }),
        h("p", {
          class: "small",
          text: [
            `${s.experiments} experiment${s.experiments > 1 ? "s" : ""}`,
            `${k.count(s.points)} points`,
            ...(s.claims ? [`${s.claims} claims`] : []),
          ].join(", "),
        }),
        h(
          "div",
          { class: "row" },
          h("button", {
            type: "button",
            class: "primary",
            disabled: running,
            text: "Run quick",
            "aria-label": `Run ${s.name} quick`,
            onclick: () => run(el, s.name, true),
          }),
          h("button", {
            type: "button",
            disabled: running,
            text: "Run all points",
            "aria-label": `Run all points of ${s.name}`,
            onclick: () => run(el, s.name, false),
          }),
        ),
      ),
    ),
  );
}

async function run(el, name, quick) {
  running = true;
  state.v.study = name;
  write();
  choose(el);
  const place = el.querySelector("#answer-study");
  const bar = h("progress", { max: 1, "aria-label": "Points evaluated" });
  fill(
    place,
    h(
      "section",
      { class: "card row" },
      bar,
      h("span", {
        class: "muted",
        text: `Evaluating ${quick ? "both ends of each axis" : "all points"} \u2026`,
      }),
    ),
  );
  try {
    answer = await ask(
      "study",
      { name, quick },
      {
        kind: "study",
        progress: (p) => {
          bar.value = p;
        },
      },
    );
    running = false;
    choose(el);
    paint(el);
  } catch (error) {
    running = false;
    choose(el);
    if (error.name !== "AbortError") fill(place, k.refusal(error));
  }
}

// Columns of the points behind a figure: axes and metrics.
function columns(e) {
  const cell = (v) =>
    typeof v === "number"
      ? Number.isInteger(v)
        ? k.count(v)
        : k.significant(v, 4)
      : (v ?? "\u2013");
  const number = (key) =>
    e.rows.some((r) => typeof (r.axes[key] ?? r.metrics[key]) === "number") ? "num" : null;
  return [...Object.keys(e.rows[0]?.axes || {}), ...e.metrics].map((key) => [
    key.replaceAll("_", " "),
    (r) => cell(r[key]),
    number(key),
  ]);
}

function paint(el) {
  const place = el.querySelector("#answer-study");
  if (!place) return;
  const rows = answer.experiments.flatMap((e) =>
    e.rows.map((r) => ({
      experiment: e.id,
      ...r.axes,
      strategy_used: r.strategy,
      ...r.metrics,
      infeasible: r.infeasible,
    })),
  );
  const keys = [...new Set(rows.flatMap(Object.keys))],
    full = rows.map((r) => Object.fromEntries(keys.map((key) => [key, r[key] ?? null])));
  const tested = answer.verdicts.filter((v) => v.verdict !== "not judged"),
    holds = tested.filter((v) => v.verdict === "holds").length,
    open = answer.verdicts.length - tested.length;
  const missing = answer.quick ? "need all points" : "need infeasible points";
  const verdicts = [...tested, ...answer.verdicts.filter((v) => v.verdict === "not judged")];
  fill(
    place,
    answer.verdicts.length
      ? h(
          "section",
          { class: "card" },
          h("h2", {
            text: `${holds} of ${tested.length} tested claims hold${open ? `; ${open} ${missing}` : ""}`,
          }),
          h("p", { class: "muted small", text: answer.source }),
          k.table(
            verdicts,
            [
              [
                "Claim",
                (v) => [v.statement, h("br"), h("span", { class: "muted small", text: v.why })],
              ],
              [
                "Verdict",
                (v) =>
                  h("span", { class: `chip v-${v.verdict.split(" ").join("-")}`, text: v.verdict }),
              ],
              ["Predicted", (v) => v.ours, "num"],
              ["Published", (v) => v.theirs, "num"],
            ],
            { caption: "Claims" },
          ),
        )
      : null,
    answer.experiments.map((e) =>
      h(
        "section",
        { class: "card" },
        h("h2", { text: e.title }),
        e.about && h("p", { class: "muted", text: e.about }),
        e.figures.map((f, i) => [
          c.figure(`fig-${e.id}-${i}`),
          f.caption && h("p", { class: "muted small", text: f.caption }),
        ]),
        h(
          "ul",
          { class: "plain small" },
          e.findings.map((text) => h("li", { text })),
        ),
      ),
    ),
    h(
      "section",
      { class: "card row between" },
      h("span", {
        class: "muted",
        text: `${k.count(rows.length)} points in ${k.seconds(answer.seconds)}`,
      }),
      h(
        "div",
        { class: "takeout" },
        h("button", {
          type: "button",
          text: "CSV",
          "aria-label": "Save all points as CSV",
          onclick: () => k.save(`${answer.name}.csv`, k.csv(full), "text/csv"),
        }),
        h("button", {
          type: "button",
          text: "JSON",
          "aria-label": "Save the study as JSON",
          onclick: () =>
            k.save(`${answer.name}.json`, JSON.stringify(answer, null, 2), "application/json"),
        }),
      ),
    ),
  );
  for (const e of answer.experiments)
    e.figures.forEach((f, i) => {
      drawReport(el.querySelector(`#fig-${CSS.escape(e.id)}-${i}`), f, {
        rows: e.rows.map((r) => ({ ...r.axes, strategy_used: r.strategy, ...r.metrics })),
        columns: columns(e),
        name: `${answer.name}-${e.id}`,
        label: f.caption || e.title,
      });
    });
}
