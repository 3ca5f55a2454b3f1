// Every state is an address: what is asked, which view, which plans are pinned.

const QUESTION = ["model", "on", "n", "strategy", "seq", "batch", "precision", "stack", "tokens", "cap", "algorithm", "protocol", "by"];
const VIEWS = {
  kind: "strong", sizes: "", metric: "rate", knee: "0.5", curves: "best,fsdp", also: "",
  deadline: "", budget: "", rank: "time", filter: "", chip: "", source: "", split: "", framework: "", model_size: "", explain: "", study: "", each: "",
};
const DEFAULTS = { model: "llama-2-7b", on: "dgx-h100", n: "256", seq: "4096", batch: "1024" };

export const state = { view: "estimate", q: {}, set: [], v: {}, pins: [] };

export function load(query) {
  const params = new URLSearchParams(query);
  state.view = params.get("view") || "estimate";
  state.q = { ...DEFAULTS };
  for (const key of QUESTION) if (params.get(key)) state.q[key] = params.get(key);
  state.set = params.getAll("set");
  state.v = { ...VIEWS };
  for (const key of Object.keys(VIEWS)) if (params.has(key)) state.v[key] = params.get(key);
  state.pins = params.getAll("pin").slice(0, 4);
}

export function query({ view = state.view, pins = true, views = true } = {}) {
  const params = new URLSearchParams();
  if (views && view !== "estimate") params.set("view", view);
  for (const key of QUESTION) if (state.q[key]) params.set(key, state.q[key]);
  for (const text of state.set) params.append("set", text);
  if (views) for (const [key, usual] of Object.entries(VIEWS)) if (state.v[key] && state.v[key] !== usual) params.set(key, state.v[key]);
  if (pins) for (const pin of state.pins) params.append("pin", pin);
  return params.toString().replaceAll("%3D", "=").replaceAll("%2C", ",");
}

// What the API calls the same things.
const LONG = { n: "gpus", cap: "power_cap" };

export function question(extra = {}) {
  const asked = {};
  for (const [key, value] of Object.entries({ ...state.q, ...extra })) if (value) asked[LONG[key] || key] = value;
  if (state.set.length) asked.sets = state.set;
  return asked;
}

export function questionOf(text) {
  const params = new URLSearchParams(text), asked = {};
  for (const key of QUESTION) if (params.get(key)) asked[LONG[key] || key] = params.get(key);
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
  if (push) history.pushState(null, "", text); else history.replaceState(null, "", text);
}
