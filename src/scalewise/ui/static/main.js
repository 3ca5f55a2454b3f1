// The web UI: one question, several views of its answer, the whole state in the address.

import { ask, giveUp } from "./api.js";
import { build } from "./controls.js";
import { fill, h, toast } from "./kit.js";
import { share } from "./share.js";
import { load, query, question, setOverride, state, write } from "./state.js";

const TABS = [
  ["estimate", "Estimate", "Time, memory and cost of one step"],
  ["scale", "Scale", "Throughput, time and cost over numbers of GPUs"],
  ["search", "Search", "Best strategies"],
  ["plan", "Plan", "Whole runs against a deadline and a budget"],
  ["timeline", "Timeline", "One step, simulated"],
  ["evidence", "Evidence", "Predictions compared with measured runs"],
  ["study", "Study", "Published claims, tested"],
  ["assumptions", "Assumptions", "Constants, sources and limits of the model"],
];

const first = JSON.parse(document.getElementById("first").textContent);

const view = document.getElementById("view");

// The element of the current view. A late answer of a view that was left fills its detached element.
let room = null;

let catalog = null,
  updateAsk = null,
  module = null,
  shown = null;

const context = {
  state,
  answer: first.estimate || null,
  before: null,
  refused: first.refused || null,
  near: null,
  change,
  go,
  setOverride,
  refresh,
};

// Change the question and ask it.
function change(fields, { quick = false } = {}) {
  let moved = false;
  for (const [key, value] of Object.entries(fields)) {
    const now =
      value === null || value === undefined || value === ""
        ? undefined
        : String(value).replace(/,/g, "");
    if (state.q[key] === now) continue;
    moved = true;
    if (now === undefined) delete state.q[key];
    else state.q[key] = now;
  }
  if (moved) refresh({ quick });
}

async function refresh({ quick = false } = {}) {
  write();
  const old = context.answer;
  const asked = question();
  try {
    const answer = await ask("estimate", asked, { kind: "estimate" });
    context.before =
      old && old.question && JSON.stringify(old.question) !== JSON.stringify(answer.question)
        ? old
        : context.before;
    context.answer = answer;
    context.refused = null;
    // Names as in the catalog, and the strategy as it was fitted to the number of GPUs.
    Object.assign(state.q, { model: answer.question.model, on: answer.question.on });
    if (state.q.strategy) {
      if (answer.pinned) state.q.strategy = answer.question.strategy;
      else delete state.q.strategy;
    }
    write();
  } catch (error) {
    if (error.name === "AbortError") return;
    context.refused = error;
  }
  paint();
  grade(quick);
}

let gradeTimer;

// Compare with measured runs, after the answer is on the screen.
function grade(quick) {
  clearTimeout(gradeTimer);
  gradeTimer = setTimeout(
    async () => {
      if (!context.answer || context.refused) return;
      try {
        context.near = await ask("nearest", question(), { kind: "nearest" });
        module?.nearest?.(context);
      } catch {
        /* The answer is complete without it. */
      }
    },
    quick ? 250 : 30,
  );
}

function paint() {
  updateAsk(context.answer, context.refused);
  if (room) module?.update(room, context);
  document.title = context.answer
    ? `${state.q.model} on ${state.q.n}\u00d7 ${state.q.on} \u00b7 scalewise`
    : "scalewise";
}

async function go(name, { push = true, focus = false } = {}) {
  if (!TABS.some(([key]) => key === name)) name = "estimate";
  if (shown !== name) {
    giveUp("search");
    giveUp("every");
    giveUp("plan");
    giveUp("queue");
  }
  state.view = name;
  if (push) write({ push: true });
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.view === name) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
  const next = await import(`./${name}.js`);
  if (state.view !== name) return;
  module = next;
  if (shown !== name) {
    shown = name;
    view.className = `view-${name}`;
    room = h("div", { class: "room" });
    fill(view, room);
    module.show(room, context);
  }
  module.update(room, context);
  if (focus) view.focus({ preventScroll: true });
}

function tabs() {
  fill(
    document.getElementById("tabs"),
    TABS.map(([key, label, title]) =>
      h("a", {
        href: `?${query({ view: key })}`,
        "data-view": key,
        title,
        text: label,
        onclick: (event) => {
          if (event.metaKey || event.ctrlKey) return;
          event.preventDefault();
          go(key);
        },
      }),
    ),
  );
}

function theme(set) {
  const now = set || localStorage.getItem("theme") || "auto";
  if (now === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    document.documentElement.dataset.theme = now;
    localStorage.setItem("theme", now);
  }
  return now;
}

function tools() {
  const names = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const icons = { auto: "\u25d0", light: "\u25cb", dark: "\u25cf" };
  const button = h("button", { type: "button", class: "icon" });
  const label = () => {
    const now = theme();
    button.textContent = icons[now];
    button.title = names[now];
    button.setAttribute("aria-label", names[now]);
  };
  button.addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    theme(order[(order.indexOf(theme()) + 1) % 3]);
    label();
    module?.theme?.(room, context);
    toast(names[theme()]);
  });
  label();
  fill(
    document.getElementById("tools"),
    h("button", {
      type: "button",
      class: "quiet",
      text: "Share",
      id: "share",
      onclick: () => share(context.answer),
    }),
    button,
  );
}

function start() {
  theme();
  load(location.search);
  if (context.answer)
    Object.assign(state.q, {
      model: context.answer.question.model,
      on: context.answer.question.on,
    });
  tabs();
  tools();
  updateAsk = build(document.getElementById("ask"), () => catalog, change);
  updateAsk(context.answer, context.refused);
  go(state.view, { push: false });
  grade(false);
  ask("catalog", null).then(
    (answer) => {
      catalog = answer;
    },
    () => {},
  );
  addEventListener("popstate", () => {
    load(location.search);
    go(state.view, { push: false });
    refresh();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    module?.theme?.(room, context),
  );
  addEventListener("keydown", (event) => {
    if (
      event.altKey ||
      event.ctrlKey ||
      event.metaKey ||
      /input|select|textarea/i.test(event.target.tagName)
    )
      return;
    const place = Number(event.key) - 1;
    if (place >= 0 && place < TABS.length) go(TABS[place][0]);
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("#ask input").focus();
    }
  });
}

start();
