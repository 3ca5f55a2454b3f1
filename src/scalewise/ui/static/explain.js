// Derivations: formula, inputs and source of every number of the estimate.

import { ask } from "./api.js";
import * as k from "./kit.js";
import { question } from "./state.js";

const { h, fill } = k;

// A dialog with the derivation of one term, and the others below it.
export async function explain(key) {
  const dialog = h(
    "dialog",
    { class: "drawer", "aria-labelledby": "explain-title" },
    h("p", { text: "Loading the derivation \u2026" }),
  );
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
  try {
    const answer = await ask("explain", question(), { kind: "explain" });
    const mine = answer.explained.find((e) => e.key === key),
      others = answer.explained.filter((e) => e !== mine);
    fill(
      dialog,
      h(
        "div",
        { class: "head" },
        h("h2", { id: "explain-title", text: mine?.title || "Derivation" }),
        h("button", {
          type: "button",
          class: "close",
          "aria-label": "Close",
          text: "\u00d7",
          onclick: () => dialog.close(),
        }),
      ),
      mine && derivation(mine),
      h("h3", { text: "Other quantities" }),
      others.map((e) =>
        h(
          "details",
          {},
          h(
            "summary",
            {},
            h("span", { text: e.title }),
            h("span", { class: "num", text: e.result }),
          ),
          derivation(e),
        ),
      ),
    );
    dialog.querySelector(".close").focus();
  } catch (error) {
    fill(
      dialog,
      k.refusal(error),
      h("button", { type: "button", text: "Close", onclick: () => dialog.close() }),
    );
  }
}

const FUNCTIONS = new Set(["ceil", "exp", "log2", "max", "min", "sqrt"]);
const NAMES = /(?<![\w.])[A-Za-z_]\w*/g;
const typeset = (formula) => formula.replaceAll(" * ", " \u00d7 ");

// The formula with numbers in place of its letters; null where that says nothing new.
export function substituted({ formula, letters }) {
  const values = new Map(letters.map(({ name, value }) => [name, value])),
    names = formula.match(NAMES) || [];
  if (names.length < 2 || names.some((name) => !values.has(name) && !FUNCTIONS.has(name)))
    return null;
  return typeset(formula.replace(NAMES, (name) => values.get(name) || name));
}

// Formula, table of letters, notes, result and source. A letter that is itself derived unfolds.
export function derivation(e) {
  const put = substituted(e);
  return h(
    "article",
    { class: "worked" },
    h(
      "p",
      { class: "formula" },
      typeset(e.formula),
      put && [h("br"), h("span", { class: "muted", text: `= ${put}` })],
    ),
    e.letters.length > 0 &&
      h(
        "table",
        {},
        h(
          "tbody",
          {},
          e.letters.map(({ name, value, meaning, because }) =>
            h(
              "tr",
              {},
              name ? h("th", { scope: "row", text: name }) : h("td"),
              h("td", { class: "num", text: value }),
              h(
                "td",
                {},
                because
                  ? h("details", {}, h("summary", { text: meaning }), derivation(because))
                  : meaning,
              ),
            ),
          ),
        ),
      ),
    e.working.map((line) => h("p", { class: "line", text: line })),
    h("p", { class: "result", text: `= ${e.result}` }),
    e.source && h("p", { class: "muted small" }, "Source: ", k.linked(e.source)),
  );
}
