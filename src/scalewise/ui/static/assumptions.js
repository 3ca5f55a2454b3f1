// Assumptions view: every constant with its source and its effect, editable; upgrades and limits.

import { ask } from "./api.js";
import * as c from "./charts.js";
import * as k from "./kit.js";
import { question, setOverride } from "./state.js";

const { h, fill } = k;

// The trial: each constant times and divided by 1.1.
const MORE = "\u00d71.1";
const LESS = "\u00f71.1";

let answer = null,
  gains = null,
  asked = "";

export function show(el) {
  answer = gains = null;
  asked = "";
  fill(
    el,
    h("h1", { class: "question", text: "Constants, sources and limits of the model" }),
    h("p", { class: "says", id: "says", "aria-live": "polite", text: "\u00a0" }),
    h(
      "div",
      { class: "halves", style: "margin-top:0" },
      h(
        "section",
        { class: "card" },
        h("h2", { text: `Sensitivity to each constant (${MORE}, ${LESS})` }),
        c.figure("tornado"),
      ),
      h(
        "section",
        { class: "card" },
        h("h2", { text: "Gain of each upgrade" }),
        h("p", { class: "muted small", id: "lead", text: "\u00a0" }),
        c.figure("upgrades"),
      ),
    ),
    h("section", { class: "card", id: "rows" }),
    h(
      "div",
      { class: "halves" },
      h("section", { class: "card sayings", id: "missing" }),
      h("section", { class: "card sayings", id: "origin" }),
    ),
  );
}

export async function update(el, ctx) {
  const body = question(),
    key = JSON.stringify(body);
  if (key === asked && answer) {
    paint(el, ctx);
    return;
  }
  asked = key;
  try {
    answer = await ask("assumptions", body, { kind: "assumptions" });
    paint(el, ctx);
    k.mark("answer");
    gains = await ask("sensitivity", body, { kind: "sensitivity" });
    upgrades(el);
  } catch (error) {
    if (error.name !== "AbortError") fill(el.querySelector("#says"), k.refusal(error));
  }
}

export const theme = (el, ctx) => {
  if (answer) paint(el, ctx);
  if (gains) upgrades(el);
};

// The largest effect of a constant on some of time, cost and energy.
const effectOf = (row, keys = ["time", "usd", "joules"]) =>
  Math.max(...keys.flatMap((key) => row[key].map((v) => Math.abs(v || 0))));
// A price moves the cost by itself, and PUE the energy: only time tells something.
const timeEffect = (row) => effectOf(row, ["time"]);

const NAMES = {
  cluster: "Facility, price and network",
  accelerator: "GPU",
  fabric: "Fabric",
  stack: "Stack, fitted",
};

function paint(el, ctx) {
  if (!el.querySelector("#rows")) return;
  const first = answer.rows.toSorted((a, b) => timeEffect(b) - timeEffect(a))[0];
  fill(
    el.querySelector("#says"),
    "Largest effect on step time: ",
    h("b", { text: first.key }),
    `, ${k.percent(timeEffect(first))} for ${MORE}. `,
    answer.changes.length
      ? h("b", { text: `Changed: ${answer.changes.join("; ")}. ` })
      : "Edited values apply to every view and are part of the address. ",
    `80% prediction interval of throughput: ${k.signed(answer.interval[0] - 1, 0)} to `,
    `${k.signed(answer.interval[1] - 1, 0)}, from prediction errors on the runs behind `,
    `stack ${answer.stack.name}.`,
  );
  tornado(el.querySelector("#tornado"));
  table(el.querySelector("#rows"), ctx);
  fill(
    el.querySelector("#missing"),
    h("h2", { text: "Not modeled" }),
    h("p", { class: "muted small", text: "With the direction of the error." }),
    h(
      "ul",
      {},
      answer.not_modeled.map((m) =>
        h(
          "li",
          {},
          h("b", { text: m.what }),
          " ",
          h("span", { class: "chip", text: m.errs }),
          h("br"),
          h("span", { class: "muted", text: m.why }),
        ),
      ),
    ),
  );
  fill(
    el.querySelector("#origin"),
    h("h2", { text: "Sources" }),
    h(
      "ul",
      {},
      Object.entries(answer.provenance).map(([part, text]) =>
        h("li", {}, h("b", { text: `${part}: ` }), k.linked(text)),
      ),
      answer.defaults.map((d) =>
        h(
          "li",
          {},
          h("b", { text: "default: " }),
          h("code", { text: `${d.flag} ${d.value}` }),
          ", ",
          k.linked(d.why),
        ),
      ),
      answer.warnings.map((text) => h("li", {}, h("b", { text: "warning: " }), text)),
      answer.stack.undetermined.length
        ? h(
            "li",
            {},
            h("b", { text: "undetermined by the data: " }),
            answer.stack.undetermined.join(", ").replaceAll("_", " "),
          )
        : null,
    ),
  );
}

function tornado(el) {
  const rows = answer.rows
    .filter((r) => effectOf(r) > 0.0005)
    .sort((a, b) => effectOf(b) - effectOf(a))
    .slice(0, 12)
    .reverse();
  const pick = (r) => {
    const time = Math.max(...r.time.map((v) => Math.abs(v || 0)));
    return time >= 0.0005
      ? ["time", r.time]
      : Math.abs(r.usd[0] || 0) >= 0.0005
        ? ["cost", r.usd]
        : ["energy", r.joules];
  };
  const small = innerWidth <= 640,
    name = (r) => (small ? r.key.split(".").pop().replaceAll("_", " ") : r.key);
  const y = rows.map((r) => `${name(r)}${pick(r)[0] === "time" ? "" : ` (${pick(r)[0]})`}`);
  const bar = (place, name, tint, pattern) => ({
    type: "bar",
    orientation: "h",
    y,
    x: rows.map((r) => pick(r)[1][place]),
    name,
    marker: {
      color: c.color(tint),
      pattern: pattern && {
        shape: pattern,
        fillmode: "overlay",
        fgcolor: c.color("card"),
        solidity: 0.3,
      },
    },
    hovertemplate: "%{y}: %{x:+.2%}<extra></extra>",
  });
  c.draw(el, {
    traces: [bar(0, MORE, "blue"), bar(1, LESS, "vermilion", "/")],
    rows: answer.rows.map(({ time, usd, joules, ...r }) => ({
      ...r,
      time_more: time[0],
      time_less: time[1],
      usd_more: usd[0],
      usd_less: usd[1],
      energy_more: joules[0],
      energy_less: joules[1],
    })),
    name: "assumptions",
    label: "Sensitivity of step time, cost or energy to each constant",
    columns: [
      ["Constant", (r) => r.key],
      [`${MORE}: time`, (r) => k.signed(r.time_more, 2), "num"],
      [`${LESS}: time`, (r) => k.signed(r.time_less, 2), "num"],
      [`${MORE}: cost`, (r) => k.signed(r.usd_more, 2), "num"],
      [`${MORE}: energy`, (r) => k.signed(r.energy_more, 2), "num"],
    ],
    height: 430,
    layout: {
      barmode: "overlay",
      bargap: 0.3,
      xaxis: c.axis(small ? "change of step time" : "change of step time, cost or energy", {
        tickformat: "+.0%",
        zeroline: true,
        zerolinecolor: c.color("soft"),
      }),
      yaxis: c.axis("", { showgrid: false, ticksuffix: " " }),
      margin: { l: 210, r: 12, t: 12, b: 44 },
    },
  });
}

function upgrades(el) {
  if (!el.querySelector("#upgrades")) return;
  fill(el.querySelector("#lead"), gains.lead || "");
  const rows = gains.rows
    .filter((r) => r.gain !== null)
    .slice(0, 12)
    .reverse();
  c.draw(el.querySelector("#upgrades"), {
    traces: [
      {
        type: "bar",
        orientation: "h",
        y: rows.map((r) =>
          innerWidth > 640 ? `${r.name}, ${r.upgrade}`.slice(0, 44) : r.name.slice(0, 22),
        ),
        x: rows.map((r) => r.gain),
        marker: {
          color: rows.map((r) => c.color({ buy: "blue", set: "green", build: "purple" }[r.means])),
          pattern: {
            fillmode: "overlay",
            shape: rows.map((r) => ({ buy: "", set: "/", build: "." })[r.means]),
            fgcolor: c.color("card"),
            solidity: 0.3,
          },
        },
        text: rows.map((r) => ({ buy: "hardware", set: "setting", build: "software" })[r.means]),
        hovertemplate: "%{y}: %{x:+.1%} tok/s (%{text})<extra></extra>",
        textposition: "none",
      },
    ],
    rows: gains.rows,
    name: "upgrades",
    label: "Throughput gained by each upgrade",
    height: 400,
    columns: [
      ["Change", (r) => r.name],
      ["To", (r) => r.upgrade],
      ["tok/s", (r) => k.signed(r.gain), "num"],
      ["tok/J", (r) => k.signed(r.energy_gain), "num"],
      ["Kind", (r) => r.means],
      ["Note", (r) => r.note || ""],
    ],
    layout: {
      xaxis: c.axis("change of tok/s", {
        tickformat: "+.0%",
        zeroline: true,
        zerolinecolor: c.color("soft"),
      }),
      yaxis: c.axis("", { showgrid: false, ticksuffix: " " }),
      margin: { l: 250, r: 12, t: 12, b: 44 },
    },
  });
}

function table(el, ctx) {
  const change = (row, value) => {
    setOverride(row.key, value);
    asked = "";
    ctx.refresh();
  };
  const effect = (pair) =>
    pair.every((v) => v === null || Math.abs(v) < 0.00005)
      ? h("span", { class: "muted", text: "none" })
      : pair.map((v) => (v === null ? "\u2013" : k.signed(v, 2))).join(" / ");
  const groups = k.groupBy(answer.rows, (r) => r.part);
  const columns = [
    [
      "Constant",
      (r) => [
        h("b", { text: r.key.split(".").slice(1).join(".").replaceAll("_", " ") }),
        h("br"),
        h("span", { class: "muted small", text: r.words }),
      ],
      "words",
    ],
    [
      "Value",
      (r) => [
        h("input", {
          type: "text",
          class: "edit",
          value: r.shown,
          "aria-label": `Value of ${r.key}`,
          onchange: (e) => change(r, e.target.value.trim() || null),
        }),
        r.changed
          ? [
              " ",
              h("button", {
                type: "button",
                class: "link",
                text: "reset",
                "aria-label": `Reset ${r.key}`,
                onclick: () => change(r, null),
              }),
            ]
          : null,
      ],
      "num",
    ],
    [
      "Range",
      (r) =>
        h("span", {
          class: "small nowrap",
          text: r.range || (r.undetermined ? "undetermined" : "\u2013"),
        }),
    ],
    [`${MORE} / ${LESS}: time`, (r) => effect(r.time), "num"],
    ["cost", (r) => effect(r.usd), "num"],
    ["energy", (r) => effect(r.joules), "num"],
    [
      "Source",
      (r) =>
        h(
          "details",
          { class: "source" },
          h("summary", { text: r.source || "unknown" }),
          k.linked(r.source),
        ),
    ],
  ];
  const lists = Object.entries(groups).map(([part, rows]) => {
    const moving = rows
        .filter((r) => r.changed || effectOf(r) >= 0.00005)
        .sort((a, b) => effectOf(b) - effectOf(a)),
      still = rows.filter((r) => !moving.includes(r)),
      options = { caption: NAMES[part] || part, selected: (r) => r.changed };
    return [
      h("h3", { text: NAMES[part] || part, style: "margin-top:18px" }),
      k.table(moving, columns, options),
      still.length
        ? h(
            "details",
            { class: "muted small", style: "margin-top:6px" },
            h("summary", { text: `${still.length} without effect here` }),
            k.table(still, columns, {
              ...options,
              caption: `${options.caption}, without effect here`,
            }),
          )
        : null,
    ];
  });
  fill(
    el,
    h(
      "div",
      { class: "row between" },
      h("h2", { text: "All constants" }),
      answer.rows.some((r) => r.changed)
        ? h("button", {
            type: "button",
            text: "Reset all",
            onclick: () => {
              for (const r of answer.rows) if (r.changed) setOverride(r.key, null);
              asked = "";
              ctx.refresh();
            },
          })
        : null,
    ),
    lists,
  );
}
