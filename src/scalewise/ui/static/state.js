// The state of the web UI, all of it in the address: question, view, pinned configurations, runs
// of a queue.

import { FIELDS, FIRST, NUMBERS, ON, SWITCHES } from "./tables.js";

const VIEWS = {
  kind: "strong",
  sizes: "",
  over: "",
  metric: "rate",
  knee: "0.5",
  curves: "best,fsdp",
  also: "",
  deadline: "",
  budget: "",
  rank: "time",
  filter: "",
  chip: "",
  source: "",
  split: "",
  layers: "",
  framework: "",
  model_size: "",
  explain: "",
  study: "",
  each: "",
  models: "",
  clusters: "",
  counts: "",
  batches: "",
  region: "",
  own: "",
  order: "",
  meet: "far-end",
  start: "",
};

// Fields of a question by key; overrides repeat and are kept apart.
const QUESTION = Object.keys(FIELDS).filter((key) => key !== "set");

export const state = { view: "estimate", q: {}, set: [], v: {}, pins: [], runs: [] };

export function load(query) {
  const params = new URLSearchParams(query);
  state.view = params.get("view") || "estimate";
  state.q = { ...FIRST };
  for (const key of QUESTION) if (params.get(key)) state.q[key] = params.get(key);
  state.set = params.getAll("set");
  state.v = { ...VIEWS };
  for (const key of Object.keys(VIEWS)) if (params.has(key)) state.v[key] = params.get(key);
  state.pins = params.getAll("pin").slice(0, 4);
  state.runs = params.getAll("run").slice(0, 40);
}

export function query({ view = state.view, pins = true, views = true } = {}) {
  const params = new URLSearchParams();
  if (views && view !== "estimate") params.set("view", view);
  for (const key of QUESTION) if (state.q[key]) params.set(key, state.q[key]);
  for (const text of state.set) params.append("set", text);
  if (views)
    for (const [key, usual] of Object.entries(VIEWS))
      if (state.v[key] && state.v[key] !== usual) params.set(key, state.v[key]);
  if (views) for (const run of state.runs) params.append("run", run);
  if (pins) for (const pin of state.pins) params.append("pin", pin);
  return params.toString().replaceAll("%3D", "=").replaceAll("%2C", ",");
}

// The API takes words, and plain numbers as numbers; it refuses any other word for them.
const valueOf = (key, text) => {
  if (SWITCHES.has(key)) return text === ON;
  return NUMBERS.has(key) && Number.isFinite(Number(text)) ? Number(text) : text;
};

export function question(extra = {}) {
  const asked = {};
  for (const [key, value] of Object.entries({ ...state.q, ...extra }))
    if (value) asked[FIELDS[key]] = valueOf(key, value);
  if (state.set.length) asked.sets = state.set;
  return asked;
}

export function questionOf(text) {
  const params = new URLSearchParams(text),
    asked = {};
  for (const key of QUESTION)
    if (params.get(key)) asked[FIELDS[key]] = valueOf(key, params.get(key));
  const sets = params.getAll("set");
  if (sets.length) asked.sets = sets;
  return asked;
}

export function setOverride(key, value) {
  state.set = state.set.filter((text) => text.split("=")[0].trim() !== key);
  if (value !== null) state.set.push(`${key}=${value}`);
}

export function write({ push = false } = {}) {
  const text = `${location.pathname}?${query()}`;
  if (push) history.pushState(null, "", text);
  else history.replaceState(null, "", text);
}
