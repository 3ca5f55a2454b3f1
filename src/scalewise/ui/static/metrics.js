// Metrics of the scale view: label, axis, value of a point, format, interval.

import * as format from "./format.js";
import { METRICS as TABLE } from "./tables.js";

const MWH = 3.6e9;

// A metric of the package's table. Fractions are shown with a percent sign, others with their unit.
function metric(name, more) {
  const { label, head, axis, factor } = TABLE[name];
  const words = factor === 100 ? label : head;
  return {
    label: words[0].toUpperCase() + words.slice(1),
    axis,
    value: (p) => p[name],
    ideal: 0,
    ...(factor === 100 ? { format: format.percent, ticks: ".0%" } : {}),
    ...more,
  };
}

// `bound(p, f)` is the value at f times the predicted throughput; without it there is no interval.
// `ideal` is the exponent of perfect scaling: 1 grows with the GPUs, -1 shrinks, 0 stays.
export const SCALE_METRICS = {
  tokens_per_second: metric("tokens_per_second", {
    label: TABLE.tokens_per_second.unit,
    format: format.short,
    bound: (p, f) => p.tokens_per_second * f,
    ideal: 1,
    log: true,
  }),
  rate: metric("tokens_per_second_per_accelerator", {
    label: TABLE.tokens_per_second_per_accelerator.unit,
    format: format.grouped,
    bound: (p, f) => p.tokens_per_second_per_accelerator * f,
  }),
  mfu: metric("mfu", { bound: (p, f) => p.mfu * f }),
  days: {
    label: "Days",
    axis: "whole run (days)",
    value: (p) => p.days,
    format: format.days,
    bound: (p, f) => p.days / f,
    ideal: -1,
    log: true,
    ticks: "~g",
  },
  usd: {
    label: "Cost",
    axis: "cost of the whole run ($)",
    value: (p) => p.usd,
    format: format.dollars,
    bound: (p, f) => p.usd / f,
    ideal: 0,
  },
  joules: {
    label: "Energy",
    axis: "energy of the whole run (MWh)",
    value: (p) => p.joules && p.joules / MWH,
    format: (v) => format.energy(v * MWH),
    bound: (p, f) => p.joules && p.joules / MWH / f,
    ideal: 0,
  },
  returned: metric("marginal_return", { value: (p) => p.returned }),
};

// Cost and energy of the whole run.
export function addTotals(answer) {
  for (const curve of answer.curves)
    for (const p of curve.points) {
      p.usd = p.run_usd;
      p.joules = p.run_joules;
    }
}
