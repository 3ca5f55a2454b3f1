// The share dialog: address, command, Python, TOML and files of the current answer.

import { copy, csv, fill, h, save } from "./kit.js";

export function share(answer) {
  const dialog = h("dialog", { class: "drawer", "aria-labelledby": "share-title" });
  const texts = answer?.copy;
  const item = (title, text, name, type) =>
    h(
      "section",
      {},
      h("h3", { text: title }),
      h("pre", { tabindex: 0, text }),
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", text: "Copy", onclick: () => copy(text, title) }),
        name &&
          h("button", {
            type: "button",
            text: `Save ${name}`,
            onclick: () => save(name, text, type),
          }),
      ),
    );
  fill(
    dialog,
    h(
      "div",
      { class: "head" },
      h("h2", { id: "share-title", text: "Share" }),
      h("button", {
        type: "button",
        class: "close",
        "aria-label": "Close",
        text: "\u00d7",
        onclick: () => dialog.close(),
      }),
    ),
    h("p", { class: "muted", text: "All of these give the same numbers." }),
    item("Address", location.href),
    texts && [
      item("Command line", texts.cli),
      item("Python", texts.python, "plan.py", "text/x-python"),
      item("TOML, for --plan plan.toml", texts.toml, "plan.toml", "application/toml"),
      h(
        "section",
        {},
        h("h3", { text: "Files" }),
        h(
          "div",
          { class: "row" },
          h("button", {
            type: "button",
            text: "Save estimate.json",
            onclick: () =>
              save("estimate.json", JSON.stringify(answer, null, 2), "application/json"),
          }),
          h("button", {
            type: "button",
            text: "Save estimate.csv",
            onclick: () => save("estimate.csv", csv(numbers(answer)), "text/csv"),
          }),
        ),
      ),
    ],
  );
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
}

// Headline, terms and memory as rows.
function numbers(answer) {
  const rows = Object.entries(answer.headline)
    .filter(([, v]) => v !== null && typeof v !== "boolean" && typeof v !== "string")
    .map(([key, v]) => ({
      part: "headline",
      key,
      value: Array.isArray(v) ? v[0] : v,
      low: Array.isArray(v) && v.length === 3 ? v[1] : null,
      high: Array.isArray(v) && v.length === 3 ? v[2] : null,
    }));
  return [
    ...rows,
    ...answer.waterfall.map((t) => ({
      part: "term, seconds",
      key: t.key,
      value: t.seconds,
      low: null,
      high: null,
    })),
    ...answer.memory.map((m) => ({
      part: "memory, bytes",
      key: m.key,
      value: m.bytes,
      low: null,
      high: null,
    })),
  ];
}
