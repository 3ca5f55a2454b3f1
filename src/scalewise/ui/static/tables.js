// Tables of the Python package that come with the page: fields, terms, metrics, ties.

const { tables } = JSON.parse(document.getElementById("first").textContent);
const byKey = (rows) => Object.fromEntries(rows.map((row) => [row.key, row]));

// Names in the API of the fields of a question, by their keys in the address.
export const FIELDS = tables.question;

// Keys of the fields that are plain numbers.
export const NUMBERS = new Set(tables.numbers);

// Keys of the fields that are on or off, and the word for on.
export const SWITCHES = new Set(tables.switches);
export const ON = tables.on;

// Fields of a question that are not in its sentence: key, label, help, default, choices.
export const INPUTS = tables.inputs;

// The question of an address without one.
export const FIRST = tables.first;

// By key: label, kind, color and communication group of a term.
export const TERMS = byKey(tables.terms);

// By key: label and color of a part of peak memory.
export const MEMORY_PARTS = byKey(tables.memory);

// Colors of the kinds of terms: compute, communication, waiting.
export const KINDS = tables.kinds;

// By name: label, unit, axis and column head of a metric.
export const METRICS = Object.fromEntries(tables.metrics.map((row) => [row.name, row]));

// Strategies whose throughput differs by less than this fraction tie.
export const NEAR_TIE = tables.near_tie;

// How far behind the best the safest strategy may lie, and the least gain that is suggested.
export const SAFE_WITHIN = tables.safe_within;
export const WORTH_SAYING = tables.worth_saying;
