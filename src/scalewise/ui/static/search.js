// Search view: every strategy evaluated and ranked, with ties, the Pareto front and reasons.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { degreeMap, paretoChart } from "./search_charts.js";
import { question, state, write } from "./state.js";
import { SAFE_WITHIN } from "./tables.js";

const { h, fill } = k;

const BY = [
  ["time", "Time"],
  ["cost", "Cost"],
  ["energy", "Energy"],
  ["memory", "Memory"],
];

let answer = null,
  asked = "",
  order = null;

export function show(el) {
  answer = null;
  asked = "";
  fill(
    el,
    h("h1", { class: "question", text: "Best strategies" }),
    h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h("div", { class: "controls", id: "knobs" }),
    h(
      "section",
      { class: "card pick", id: "ranking" },
      h("p", { class: "muted", text: "Evaluating every strategy \u2026" }),
    ),
    h(
      "div",
      { class: "halves" },
      h("section", { class: "card" }, h("h2", { text: "Pareto front" }), c.figure("front")),
      h("section", { class: "card" }, h("h2", { text: "Best by TP and PP" }), c.figure("map")),
    ),
    h(
      "div",
      { class: "halves" },
      h("section", { class: "card sayings", id: "why" }),
      h("section", { class: "card sayings", id: "reasons" }),
    ),
  );
}

export async function update(el, ctx) {
  knobs(el.querySelector("#knobs"), el, ctx);
  const plan = ctx.answer?.question.strategy;
  const body = { question: question(plan ? { strategy: plan } : {}), by: state.v.rank, top: 100 },
    key = JSON.stringify(body);
  if (key === asked && answer) {
    paint(el, ctx);
    return;
  }
  asked = key;
  try {
    answer = await ask("search", body, {
      kind: "search",
      progress: (p) => {
        const bar = el.querySelector("#progress");
        if (bar) {
          bar.hidden = false;
          bar.value = p;
        }
      },
    });
    el.querySelector("#progress").hidden = true;
    paint(el, ctx);
  } catch (error) {
    if (error.name === "AbortError") return;
    el.querySelector("#progress").hidden = true;
    fill(el.querySelector("#says"), k.refusal(error));
  }
}

export const theme = (el, ctx) => answer && paint(el, ctx);

function knobs(el, whole, ctx) {
  if (el.childElementCount) return;
  const set = (fields) => {
    Object.assign(state.v, fields);
    write();
    order = null;
    update(whole, ctx);
  };
  fill(
    el,
    k.segmented("Rank by", BY, state.v.rank, (rank) => set({ rank })),
    h(
      "label",
      { class: "field" },
      "Filter",
      h("input", {
        type: "text",
        value: state.v.filter,
        placeholder: "tp2, pp1, fsdp",
        size: 16,
        oninput: (e) => {
          state.v.filter = e.target.value;
          write();
          if (answer) ranking(whole.querySelector("#ranking"), ctx);
        },
      }),
    ),
    h("progress", { id: "progress", hidden: true, max: 1, "aria-label": "Strategies evaluated" }),
    h("span", { class: "muted", text: "The global batch is fixed." }),
  );
}

const strategyLink = (strategy, ctx) =>
  h("button", {
    type: "button",
    class: "link",
    text: strategy,
    onclick: () => ctx.change({ strategy }),
  });

function paint(el, ctx) {
  if (!answer || !el.querySelector("#ranking")) return;
  const best = answer.rows[0],
    says = el.querySelector("#says"),
    now = answer.current,
    safest = answer.safest;
  if (!best) {
    fill(
      says,
      h("b", { text: `None of ${k.count(answer.evaluated)} strategies fits in memory. ` }),
      answer.nearest
        ? `Closest: ${answer.nearest.strategy}, ${k.gib(answer.nearest.memory_bytes)} of ` +
            `${k.gib(answer.nearest.memory_capacity)}. Use more GPUs.`
        : "No strategy divides this number of GPUs and batch.",
    );
  } else {
    const second = answer.rows.find((r) => !r.tie);
    const verdict = !now
      ? ""
      : now.tie
        ? `Current: ${now.strategy}, ties with the best.`
        : `Current: ${now.strategy}, ${k.signed(now.gap)}.`;
    fill(
      says,
      h("b", {}, `Best: ${best.strategy}, step ${k.seconds(best.step_seconds)}. `),
      verdict,
      ` ${answer.ties >= 200 ? "200 or more" : k.count(answer.ties)} strategies tie `,
      `(at least 1 chance in ${k.count(1 / answer.tie_chance)} to be better); the simplest is `,
      strategyLink(answer.simplest, ctx),
      second ? `; the next is ${k.signed(second.gap)}.` : ".",
      safest && safest.strategy !== best.strategy
        ? [
            ` Safest within ${k.percent(SAFE_WITHIN, 0)}: `,
            strategyLink(safest.strategy, ctx),
            ` (chance to fit ${chance(safest.fit)}), ${k.signed(safest.gap)}.`,
          ]
        : null,
      now?.changes?.length && !now.tie
        ? [
            h("br"),
            "Changes: ",
            now.changes
              .map(
                ([field, a, b], i) =>
                  `${i ? ", " : ""}${field.replaceAll("_", " ")} ${a} \u2192 ${b}`,
              )
              .join(""),
            ". ",
          ]
        : null,
    );
  }
  ranking(el.querySelector("#ranking"), ctx);
  fill(
    el.querySelector("#why"),
    h("h2", { text: "Why not the others" }),
    answer.why.length
      ? h(
          "ul",
          {},
          answer.why.map((text) => h("li", { text })),
          now?.why && !now.tie ? h("li", { text: now.why }) : null,
        )
      : h("p", { class: "muted", text: "No strategy fits." }),
  );
  const lost = Object.entries(answer.infeasible);
  fill(
    el.querySelector("#reasons"),
    h("h2", { text: "Evaluated strategies" }),
    h(
      "ul",
      {},
      h(
        "li",
        {},
        h("b", { text: k.count(answer.evaluated) }),
        " evaluated, ",
        h("b", { text: k.count(answer.feasible) }),
        " fit",
      ),
      lost
        .sort((a, b) => b[1] - a[1])
        .map(([reason, n]) => h("li", {}, h("b", { text: k.count(n) }), ` ${reason}`)),
    ),
  );
  paretoChart(el.querySelector("#front"), answer, ctx);
  degreeMap(el.querySelector("#map"), answer, ctx);
}

// The chance to fit into memory; never rounded up to 100%.
const chance = (fit) => (fit > 0.99 ? ">99%" : k.percent(fit, 0));

const COLUMNS = {
  step_seconds: ["Step time", (r) => k.seconds(r.step_seconds)],
  gap: ["vs best", (r) => (r.gap < 0.0005 ? "best" : k.signed(r.gap))],
  mfu: ["MFU", (r) => k.percent(r.mfu)],
  exposed_fraction: ["Exposed", (r) => k.percent(r.exposed_fraction)],
  memory_bytes: ["Peak memory", (r) => k.gib(r.memory_bytes)],
  fit: ["Chance to fit", (r) => chance(r.fit)],
  usd: ["Cost", (r) => k.dollars(r.usd)],
  joules: ["Energy", (r) => k.energy(r.joules)],
};

function ranking(el, ctx) {
  const wanted = state.v.filter
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean);
  const has = (r, word) => {
    const parts = r.strategy.split("-"),
      m = word.match(/^(tp|pp|cp|etp|ep|v|mb)(\d+)$/);
    if (m)
      return r.degrees[{ v: "virtual_stages", mb: "micro_batch" }[m[1]] || m[1]] === Number(m[2]);
    return parts.some((p) => p.startsWith(word));
  };
  let rows = answer.rows.filter((r) => wanted.every((word) => has(r, word)));
  if (order)
    rows = rows.toSorted(
      (a, b) => (order.up ? 1 : -1) * ((a[order.key] ?? 0) - (b[order.key] ?? 0)),
    );
  const sort = (key) => ({
    state: order?.key === key ? (order.up ? "ascending" : "descending") : undefined,
    click: () => {
      order = { key, up: order?.key === key ? !order.up : true };
      ranking(el, ctx);
    },
  });
  fill(
    el,
    h(
      "div",
      { class: "row between" },
      h("h2", {
        text: `Best ${k.count(rows.length)} of ${k.count(answer.feasible)} that fit`,
      }),
      h(
        "div",
        { class: "takeout" },
        h("button", {
          type: "button",
          text: "CSV",
          "aria-label": "Save the ranking as CSV",
          onclick: () =>
            k.save(
              "search.csv",
              k.csv(
                answer.rows.map(({ degrees, rate, ...r }) => ({
                  ...r,
                  low: rate[1],
                  high: rate[2],
                  ...degrees,
                })),
              ),
              "text/csv",
            ),
        }),
        h("button", {
          type: "button",
          text: "JSON",
          "aria-label": "Save the ranking as JSON",
          onclick: () => k.save("search.json", JSON.stringify(answer, null, 2), "application/json"),
        }),
      ),
    ),
    rows.length
      ? h(
          "div",
          { class: "tall" },
          k.table(
            rows.slice(0, 60),
            [
              [
                "Strategy",
                (r) => [
                  h(
                    "button",
                    {
                      type: "button",
                      class: "link",
                      onclick: () => ctx.change({ strategy: r.strategy }),
                    },
                    h("code", { text: r.strategy }),
                  ),
                  " ",
                  r.tie ? h("span", { class: "chip", text: "tie" }) : null,
                ],
              ],
              ...Object.entries(COLUMNS).map(([key, [title, cell]]) => [
                title,
                cell,
                "num",
                sort(key),
              ]),
            ],
            {
              caption: "Strategies, best first",
              selected: (r) => r.strategy === ctx.answer?.question.strategy,
            },
          ),
        )
      : h(
          "p",
          { class: "muted" },
          "No listed strategy matches the filter. ",
          h("button", {
            type: "button",
            class: "link",
            text: "Clear the filter",
            onclick: () => {
              state.v.filter = "";
              write();
              const input = document.querySelector("#knobs input[type=text]");
              if (input) input.value = "";
              ranking(el, ctx);
            },
          }),
        ),
  );
}
