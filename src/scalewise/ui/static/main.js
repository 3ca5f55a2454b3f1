// The page: one question, several views of its answer, everything in the address.

import { ask, giveUp } from "./api.js";
import { build } from "./controls.js";
import { copy, csv, fill, h, save, toast } from "./kit.js";
import { load, query, question, setOverride, state, write } from "./state.js";

const TABS = [
  ["estimate", "Estimate", "What does a step cost, and where does it go?"],
  ["scale", "Scale", "What does the next accelerator buy?"],
  ["search", "Search", "Which strategy is best, and why?"],
  ["timeline", "Timeline", "What happens within one step?"],
  ["evidence", "Evidence", "How far can this be trusted?"],
  ["study", "Study", "What do the published claims look like here?"],
  ["assumptions", "Assumptions", "What does the answer rest on?"],
];

const first = JSON.parse(document.getElementById("first").textContent);
const view = document.getElementById("view");
// Every view gets a room of its own: an answer that comes after its view was left fills a room that nobody sees.
let room = null;
let catalog = null, updateAsk = null, module = null, shown = null;

const context = {
  state, answer: first.estimate || null, before: null, refused: first.refused || null, near: null,
  change, go, setOverride, refresh, share,
};

// Change the question: the answer follows by itself.
function change(fields, { quick = false } = {}) {
  let moved = false;
  for (const [key, value] of Object.entries(fields)) {
    const now = value === null || value === undefined || value === "" ? undefined : String(value).replace(/,/g, "");
    if (state.q[key] === now) continue;
    moved = true;
    if (now === undefined) delete state.q[key]; else state.q[key] = now;
  }
  if (moved) refresh({ quick });
}

async function refresh({ quick = false } = {}) {
  write();
  const old = context.answer;
  const asked = question();
  try {
    const answer = await ask("estimate", asked, { kind: "estimate" });
    context.before = old && old.question && JSON.stringify(old.question) !== JSON.stringify(answer.question) ? old : context.before;
    context.answer = answer;
    context.refused = null;
    // Names as the catalog has them; a strategy that had to move moves in the address too.
    Object.assign(state.q, { model: answer.question.model, on: answer.question.on });
    if (state.q.strategy) { if (answer.pinned) state.q.strategy = answer.question.strategy; else delete state.q.strategy; }
    write();
  } catch (error) {
    if (error.name === "AbortError") return;
    context.refused = error;
  }
  paint();
  judge(quick);
}

let judging;
function judge(quick) {
  clearTimeout(judging);
  judging = setTimeout(async () => {
    if (!context.answer || context.refused) return;
    try {
      context.near = await ask("nearest", question(), { kind: "nearest" });
      module?.nearest?.(context);
    } catch { /* the grade is an addition: without it the answer stands */ }
  }, quick ? 250 : 30);
}

function paint() {
  updateAsk(context.answer, context.refused);
  if (room) module?.update(room, context);
  document.title = context.answer ? `${state.q.model} on ${state.q.n} ${state.q.on} \u00b7 scalewise` : "scalewise";
}

async function go(name, { push = true, focus = false } = {}) {
  if (!TABS.some(([key]) => key === name)) name = "estimate";
  if (shown !== name) { giveUp("search"); giveUp("every"); }
  state.view = name;
  if (push) write({ push: true });
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.view === name) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "center" }); } else link.removeAttribute("aria-current");
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
  fill(document.getElementById("tabs"), TABS.map(([key, label, title]) => h("a", {
    href: `?${query({ view: key })}`, "data-view": key, title, text: label,
    onclick: (event) => { if (event.metaKey || event.ctrlKey) return; event.preventDefault(); go(key); },
  })));
}

function share() {
  const dialog = h("dialog", { class: "drawer", "aria-labelledby": "share-title" });
  const told = context.answer?.copy;
  const item = (title, text, name, type) => h("section", {}, h("h3", { text: title }), h("pre", { tabindex: 0, text }),
    h("div", { class: "row" }, h("button", { type: "button", text: "Copy", onclick: () => copy(text, title) }),
      name && h("button", { type: "button", text: `Save ${name}`, onclick: () => save(name, text, type) })));
  fill(dialog, h("div", { class: "head" }, h("h2", { id: "share-title", text: "Take it away" }), h("button", { type: "button", class: "close", "aria-label": "Close", text: "\u00d7", onclick: () => dialog.close() })),
    h("p", { class: "muted", text: "The same question gives the same digits in all of them." }),
    item("Address of this state", location.href),
    told && [item("Command line", told.cli), item("Python", told.python, "plan.py", "text/x-python"), item("TOML file: --plan plan.toml, for estimate, search, scale, timeline, sensitivity and ui", told.toml, "plan.toml", "application/toml"),
      h("section", {}, h("h3", { text: "All numbers" }), h("div", { class: "row" },
        h("button", { type: "button", text: "Save estimate.json", onclick: () => save("estimate.json", JSON.stringify(context.answer, null, 2), "application/json") }),
        h("button", { type: "button", text: "Save estimate.csv", onclick: () => save("estimate.csv", csv(numbers(context.answer)), "text/csv") })))]);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
}

function numbers(answer) {
  const rows = Object.entries(answer.headline).filter(([, v]) => v !== null && typeof v !== "boolean" && typeof v !== "string")
    .map(([key, v]) => ({ part: "headline", key, value: Array.isArray(v) ? v[0] : v, low: Array.isArray(v) && v.length === 3 ? v[1] : null, high: Array.isArray(v) && v.length === 3 ? v[2] : null }));
  return [...rows, ...answer.waterfall.map((t) => ({ part: "term, seconds", key: t.key, value: t.seconds, low: null, high: null })),
    ...answer.memory.map((m) => ({ part: "memory, bytes", key: m.key, value: m.bytes, low: null, high: null }))];
}

function theme(set) {
  const now = set || localStorage.getItem("theme") || "auto";
  if (now === "auto") { delete document.documentElement.dataset.theme; localStorage.removeItem("theme"); } else { document.documentElement.dataset.theme = now; localStorage.setItem("theme", now); }
  return now;
}

function tools() {
  const names = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
  const icons = { auto: "\u25d0", light: "\u25cb", dark: "\u25cf" };
  const button = h("button", { type: "button", class: "icon" });
  const label = () => { const now = theme(); button.textContent = icons[now]; button.title = names[now]; button.setAttribute("aria-label", names[now]); };
  button.addEventListener("click", () => { const order = ["auto", "light", "dark"]; theme(order[(order.indexOf(theme()) + 1) % 3]); label(); module?.theme?.(room, context); toast(names[theme()]); });
  label();
  fill(document.getElementById("tools"), h("button", { type: "button", class: "quiet", text: "Share", id: "share", onclick: share }), button);
}

function start() {
  theme();
  load(location.search);
  if (context.answer) Object.assign(state.q, { model: context.answer.question.model, on: context.answer.question.on });
  tabs();
  tools();
  updateAsk = build(document.getElementById("ask"), () => catalog, change);
  updateAsk(context.answer, context.refused);
  go(state.view, { push: false });
  judge(false);
  ask("catalog", null).then((told) => { catalog = told; }, () => {});
  addEventListener("popstate", () => { load(location.search); go(state.view, { push: false }); refresh(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => module?.theme?.(room, context));
  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || /input|select|textarea/i.test(event.target.tagName)) return;
    const place = Number(event.key) - 1;
    if (place >= 0 && place < TABS.length) go(TABS[place][0]);
    if (event.key === "/") { event.preventDefault(); document.querySelector("#ask input").focus(); }
  });
}

start();
