// Deadline and budget: which numbers of GPUs meet them, and the lines that set them on the chart.

import * as k from "./format.js";
import { state } from "./state.js";

export const limits = () => ({
  deadline: k.read(state.v.deadline) || null,
  budget: k.read(String(state.v.budget).replace("$", "")) || null,
});

const daysOf = (v) => `${k.trimmed(v)} days`;

// Sizes within both limits; if there are none, the reason.
export function meets(points, { deadline, budget }) {
  const runs = points.filter((p) => !p.infeasible),
    soon = runs.filter((p) => !deadline || p.days <= deadline),
    cheap = runs.filter((p) => !budget || (p.usd !== null && p.usd <= budget));
  const fine = soon.filter((p) => cheap.includes(p)).map((p) => p.accelerators);
  if (fine.length || !runs.length) return { fine };
  const smallest = (key) => runs.reduce((x, p) => (p[key] !== null && p[key] < x[key] ? p : x)),
    fastest = smallest("days"),
    cheapest = smallest("usd"),
    reasons = [];
  if (!soon.length)
    reasons.push(`the fastest, ${k.count(fastest.accelerators)}, takes ${k.days(fastest.days)}`);
  if (!cheap.length)
    reasons.push(
      cheapest.usd === null
        ? "the price is unknown"
        : `the cheapest, ${k.count(cheapest.accelerators)}, costs ${k.dollars(cheapest.usd)}`,
    );
  if (soon.length && cheap.length)
    reasons.push(
      `the deadline needs at least ${k.count(soon[0].accelerators)} (${k.dollars(soon[0].usd)})`,
      `the budget allows up to ${k.count(cheap.at(-1).accelerators)} (${k.days(cheap.at(-1).days)})`,
    );
  return { fine, why: reasons.join("; ") };
}

// The same as a sentence; empty without limits.
export function limitSentence(points) {
  const { deadline, budget } = limits();
  if (!deadline && !budget) return "";
  const { fine, why } = meets(points, { deadline, budget }),
    both = [deadline && daysOf(deadline), budget && k.dollars(budget)]
      .filter(Boolean)
      .join(" and ");
  if (!fine.length) return `No number of GPUs meets ${both}: ${why}.`;
  const last = fine.length > 1 ? ` to ${k.count(fine.at(-1))}` : "";
  return `${k.count(fine[0])}${last} GPUs meet ${both}.`;
}

const ROUND = {
  deadline: (v) => k.trimmed(v),
  budget: (v) => Number(v.toPrecision(3)).toFixed(0),
  knee: (v) => String(Math.min(Math.max(Math.round(v * 20) / 20, 0.05), 0.95)),
};

// The line that belongs to the metric on the chart: deadline on days, budget on cost, knee on
// marginal efficiency. `live(key)` runs while it moves, `done()` when it was moved.
export function movingLine(curve, gpus, { live, done }) {
  const { deadline, budget } = limits(),
    runs = curve.points.filter((p) => !p.infeasible),
    here = runs.find((p) => p.accelerators === gpus) || runs[0];
  const line = (key, name, value, first, words, step) => {
    if (!value && !first) return [];
    const keep = (v) => {
      state.v[key] = ROUND[key](v);
      live(key);
    };
    return [
      {
        key,
        name,
        value: value || first,
        set: Boolean(value),
        words: (v) => (value || state.v[key] ? words(v) : `set a ${key}`),
        step,
        live: keep,
        done: (v) => {
          keep(v);
          done();
        },
      },
    ];
  };
  const scaled = (v, way) => v * 1.05 ** way;
  switch (state.v.metric) {
    case "days":
      return line(
        "deadline",
        "Deadline",
        deadline,
        here?.days,
        (v) => `deadline ${daysOf(v)}`,
        scaled,
      );
    case "usd":
      return line("budget", "Budget", budget, here?.usd, (v) => `budget ${k.dollars(v)}`, scaled);
    case "returned":
      return line(
        "knee",
        "Knee",
        Number(state.v.knee),
        0.5,
        (v) => `knee below ${k.percent(v, 0)}`,
        (v, way) => v + 0.05 * way,
      );
    default:
      return [];
  }
}
