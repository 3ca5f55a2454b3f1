// Inputs of a question besides its sentence, in the order of its fields.

import { h } from "./kit.js";
import { state } from "./state.js";
import { INPUTS } from "./tables.js";

function input(field, change) {
  const set = (event) => change({ [field.key]: event.target.value.trim() || null });
  if (field.choices.length)
    return h(
      "select",
      { "aria-label": field.label, title: field.help, onchange: set },
      h("option", { value: "", text: `default: ${field.default}` }),
      field.choices.map((word) => h("option", { value: word, text: word })),
    );
  return h("input", {
    type: "text",
    "aria-label": field.label,
    title: field.help,
    placeholder: field.default,
    autocomplete: "off",
    spellcheck: "false",
    size: 12,
    onchange: set,
  });
}

// The element, its inputs by key, and a function that shows the state in them.
export function furtherInputs(change) {
  const parts = Object.fromEntries(INPUTS.map((field) => [field.key, input(field, change)]));
  const title = h("summary", {});
  const el = h(
    "details",
    { class: "further" },
    title,
    h(
      "div",
      { class: "inputs" },
      INPUTS.map((field) =>
        h(
          "label",
          {},
          h("span", { class: "name", text: field.label }),
          parts[field.key],
          h("small", { class: "muted", text: field.help }),
        ),
      ),
    ),
  );
  const update = () => {
    const given = INPUTS.filter(({ key }) => state.q[key]);
    const words = given.map((f) => `${f.label.toLowerCase()} ${state.q[f.key]}`).join(", ");
    title.textContent = words ? `Further inputs: ${words}` : "Further inputs";
    for (const { key } of INPUTS)
      if (document.activeElement !== parts[key]) parts[key].value = state.q[key] || "";
  };
  return { el, parts, update };
}
