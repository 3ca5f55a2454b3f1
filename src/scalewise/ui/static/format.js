// Numbers as text: SI in, units out; three significant digits, as on the command line.

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const dash = "\u2013";

export function significant(value, digits = 3) {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(digits));
  const decimals = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(rounded))), 0);
  return rounded.toFixed(Math.min(decimals, 12));
}

// For values that were typed: "3", not "3.00".
export const trimmed = (value, digits = 3) => String(Number(significant(value, digits)));

// The largest of some steps, [size, unit], that leaves at least 1 before the unit.
function stepOf(value, steps) {
  let chosen = steps[0];
  for (const step of steps) if (Math.abs(value) >= step[0] * 0.9995) chosen = step;
  return chosen;
}

function prefixed(value, steps, show = significant) {
  const [size, unit] = stepOf(value, steps);
  return show(value / size) + unit;
}

// A format whose unit depends on the value, or on another value that is shown with it.
function scaled(step) {
  const format = (value, like = value) => {
    if (!known(value)) return dash;
    const [size, unit] = step(like);
    return significant(value / size) + unit;
  };
  return Object.assign(format, { scaled: true });
}

const COUNTS = [
  [1, ""],
  [1e3, "k"],
  [1e6, "M"],
  [1e9, "B"],
  [1e12, "T"],
];
const LONG_TIMES = [
  [86400, " days"],
  [3600, " h"],
  [60, " min"],
];
const SHORT_TIMES = [
  [1e-9, " ns"],
  [1e-6, " \u00b5s"],
  [1e-3, " ms"],
  [1, " s"],
];
const KWH = 3.6e6;
const ENERGIES = [
  [1e-3, " Wh"],
  [1, " kWh"],
  [1e3, " MWh"],
  [1e6, " GWh"],
];
const JOULES = [
  [1e-3, " mJ"],
  [1, " J"],
  [1e3, " kJ"],
];
const WATTS = [
  [1, " W"],
  [1e3, " kW"],
  [1e6, " MW"],
  [1e9, " GW"],
];

export const count = (v) => (known(v) ? Math.round(v).toLocaleString("en") : dash);

const isWhole = (v) => Math.abs(v) < 10000 && v === Math.round(v);
export const short = (v) => (!known(v) ? dash : isWhole(v) ? count(v) : prefixed(v, COUNTS));

// The same for values that were typed: "300B".
export const amount = (v) =>
  !known(v) ? dash : isWhole(v) ? count(v) : prefixed(v, COUNTS, trimmed);

export function grouped(v) {
  if (!known(v)) return dash;
  return Math.abs(v) >= 1000 ? Number(v.toPrecision(3)).toLocaleString("en") : significant(v);
}

export const gib = (v) => (known(v) ? `${(v / 2 ** 30).toFixed(1)} GiB` : dash);

// A unit of time starts at two of it: "90 s", not "1.50 min".
function timeStep(v) {
  const long = LONG_TIMES.find(([size]) => Math.abs(v) >= 2 * size);
  return long || (v === 0 ? [1, " s"] : stepOf(v, SHORT_TIMES));
}

export const seconds = scaled(timeStep);
export const days = scaled((v) => {
  const [size, unit] = timeStep(v * 86400);
  return [size / 86400, unit];
});

export function dollars(v) {
  if (!known(v)) return dash;
  const sign = v < 0 ? "\u2212" : "";
  const size = Math.abs(v);
  if (size < 1) return `${sign}$${significant(size)}`;
  if (size < 999.995) return `${sign}$${size.toFixed(2)}`;
  if (size < 999500) return `${sign}$${Math.round(size).toLocaleString("en")}`;
  return `${sign}$${prefixed(size, COUNTS.slice(2))}`;
}

export const energy = scaled((v) => {
  const [size, unit] = stepOf(v / KWH, ENERGIES);
  return [size * KWH, unit];
});
export const joules = scaled((v) => stepOf(v, JOULES));
export const watts = scaled((v) => stepOf(v, WATTS));
export const percent = (v, digits = 1) => (known(v) ? `${(v * 100).toFixed(digits)}%` : dash);

// With its sign; never "-0.0%".
export function signed(v, digits = 1) {
  if (!known(v)) return dash;
  const text = Math.abs(v * 100).toFixed(digits);
  if (Number(text) === 0) return `${text}%`;
  return `${v > 0 ? "+" : "\u2212"}${text}%`;
}

// An interval with its unit once: "1.23\u20131.60 s".
export function range(format, low, high) {
  if (!known(low) || !known(high)) return "";
  const [a, b] = [format.scaled ? format(low, high) : format(low), format(high)];
  const [, first, unit] = a.match(/^([^ ]+)( .*)?$/) || [];
  return unit && b.endsWith(unit) ? `${first}\u2013${b}` : `${a}\u2013${b}`;
}

// A number as it is typed: "1,024", "4k", "300B"; NaN if it is none.
export function read(text) {
  const match = String(text)
    .trim()
    .replace(/[,_\s]/g, "")
    .match(/^([0-9.]+(?:e[+-]?[0-9]+)?)([kmbgt]?)/i);
  if (!match) return NaN;
  return (
    Number(match[1]) * ({ k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12 }[match[2].toLowerCase()] || 1)
  );
}
