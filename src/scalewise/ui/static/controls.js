// The question as one sentence whose words are controls.

import { furtherInputs } from "./inputs.js";
import { amount, count, debounce, fill, h, read } from "./kit.js";
import { score } from "./names.js";
import { state } from "./state.js";
import { FIELDS } from "./tables.js";

let serial = 0;

function noun(name, input, after) {
  return h("label", { class: "noun" }, h("span", { class: "name", text: name }), input, after);
}

const SIZES_ITSELF = CSS.supports("field-sizing", "content");

function fit(input) {
  if (!SIZES_ITSELF) input.style.width = `${Math.max(input.value.length, 2) + 0.6}ch`;
}

// A name of a list, found by parts of it.
function combo(name, options, value, change) {
  const id = `list-${++serial}`;
  const input = h("input", {
    type: "text",
    role: "combobox",
    value,
    autocomplete: "off",
    spellcheck: "false",
    "aria-expanded": "false",
    "aria-controls": id,
    "aria-autocomplete": "list",
    "aria-label": name,
  });
  const list = h("ul", { id, role: "listbox", class: "list", hidden: true, "aria-label": name });
  let shown = [],
    at = -1;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (option) => {
    input.value = option.name;
    fit(input);
    close();
    change(option.name);
  };
  const mark = () =>
    [...list.children].forEach((item, i) => {
      item.setAttribute("aria-selected", i === at);
      if (i === at) {
        input.setAttribute("aria-activedescendant", item.id);
        item.scrollIntoView({ block: "nearest" });
      }
    });
  const open = (all) => {
    const typed = all ? "" : input.value;
    shown = options()
      .map((o) => [
        Math.max(score(typed, o.name), typed ? 0.5 * score(typed, o.words || "") : 0),
        o,
      ])
      .filter(([s]) => s > 0)
      .sort((a, b) => b[0] - a[0])
      .slice(0, 60)
      .map(([, o]) => o);
    at = shown.length
      ? Math.max(
          shown.findIndex((o) => o.name === input.value),
          0,
        )
      : -1;
    fill(
      list,
      shown.length
        ? shown.map((o, i) =>
            h(
              "li",
              {
                id: `${id}-${i}`,
                role: "option",
                onmousedown: (event) => {
                  event.preventDefault();
                  choose(o);
                },
              },
              h("b", { text: o.name }),
              h("small", { text: o.words }),
            ),
          )
        : h("li", {
            role: "option",
            "aria-disabled": "true",
            "aria-selected": "false",
            text: `Nothing matches "${input.value}".`,
          }),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark();
  };
  input.addEventListener("focus", () => {
    input.select();
    open(true);
  });
  input.addEventListener("click", () => list.hidden && open(true));
  input.addEventListener("input", () => {
    fit(input);
    open(false);
  });
  input.addEventListener("blur", () => {
    close();
    if (input.value.trim() && input.value !== value) change(input.value.trim());
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open(true);
      else if (shown.length) {
        at = (at + (event.key === "ArrowDown" ? 1 : shown.length - 1)) % shown.length;
        mark();
      }
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!list.hidden && shown[at]) choose(shown[at]);
      else change(input.value.trim());
    } else if (event.key === "Escape") {
      input.value = value;
      fit(input);
      close();
    }
  });
  fit(input);
  const wrapped = h("span", { class: "combo" }, input, list);
  wrapped.set = (text) => {
    value = text;
    if (document.activeElement !== input) {
      input.value = text;
      fit(input);
    }
  };
  return wrapped;
}

// A number; arrow keys step through powers of two.
function quantity(name, value, change, { show = count, hint } = {}) {
  const input = h("input", {
    type: "text",
    inputmode: "numeric",
    autocomplete: "off",
    "aria-label": name,
    title: hint || `${name}: arrow keys double and halve`,
  });
  const later = debounce(() => change(input.value.trim()), 140);
  input.addEventListener("input", () => {
    fit(input);
    if (Number.isFinite(read(input.value))) later();
  });
  input.addEventListener("focus", () => input.select());
  input.addEventListener("change", () => input.value.trim() && change(input.value.trim()));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    const now = read(input.value) || 1,
      power = Math.log2(now);
    const next =
      2 **
      (event.key === "ArrowUp"
        ? Math.floor(power + 1e-9) + 1
        : Math.max(Math.ceil(power - 1e-9) - 1, 0));
    input.value = show(next);
    fit(input);
    change(String(next));
  });
  input.set = (text) => {
    if (document.activeElement === input && read(input.value) === read(text)) return;
    input.value = Number.isFinite(read(text)) ? show(read(text)) : text;
    fit(input);
  };
  input.set(value);
  return input;
}

export function build(el, catalog, change) {
  const q = state.q;
  const lists = () => catalog() || {};
  const hardware = () => [...(lists().clusters || []), ...(lists().accelerators || [])];
  const parts = {
    model: combo(
      "Model",
      () => lists().models || [],
      q.model,
      (v) => change({ model: v, tokens: null }),
    ),
    n: quantity("GPUs", q.n, (v) => change({ n: v })),
    on: combo("Hardware", hardware, q.on, (v) => change({ on: v })),
    batch: quantity("Global batch", q.batch || "", (v) => change({ batch: v })),
    seq: quantity("Sequence length", q.seq || "", (v) => change({ seq: v })),
    tokens: quantity("Token budget", q.tokens || "", (v) => change({ tokens: v || null }), {
      show: amount,
      hint: "Token budget: 300B, 15T",
    }),
    stack: combo(
      "Stack",
      () => lists().stacks || [],
      q.stack || "",
      (v) => change({ stack: v || null }),
    ),
    strategy: h("input", {
      type: "text",
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "Strategy",
      class: "code",
      title: "For example fsdp256-tp2-mb2",
    }),
    precision: h(
      "select",
      { "aria-label": "Precision", onchange: (event) => change({ precision: event.target.value }) },
      ["bf16", "fp16", "fp8", "fp8row", "fp8block", "mxfp8", "nvfp4", "tf32", "fp32"].map((p) =>
        h("option", { value: p, text: p }),
      ),
    ),
  };
  const further = furtherInputs(change);
  const pin = h("button", {
    type: "button",
    class: "chip",
    onclick: () => change({ strategy: state.q.strategy ? null : parts.strategy.value }),
  });
  parts.strategy.addEventListener("input", () => fit(parts.strategy));
  parts.strategy.addEventListener("change", () =>
    change({ strategy: parts.strategy.value.trim() || null }),
  );
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 16,
    step: 1,
    "aria-label": "GPUs, powers of two",
    id: "slider",
  });
  slider.addEventListener("input", () =>
    change({ n: String(2 ** Number(slider.value)) }, { quick: true }),
  );
  const w = (text) => h("span", { class: "w", text });
  const brief = h("button", {
    type: "button",
    class: "brief",
    "aria-expanded": "false",
    onclick: () => toggle(),
  });
  const shut = h("button", {
    type: "button",
    class: "primary done",
    text: "Show results",
    onclick: () => toggle(false),
  });
  const body = h(
    "div",
    { class: "sheet", tabindex: -1 },
    h(
      "p",
      { class: "sentence" },
      w("Train "),
      noun("Model", parts.model),
      w(" on "),
      noun("GPUs", parts.n),
      w("\u00d7 "),
      noun("Hardware", parts.on),
      w(", global batch "),
      noun("Global batch", parts.batch),
      w(" of sequence length "),
      noun("Sequence length", parts.seq),
      w(" in "),
      noun("Precision", parts.precision),
      w(", "),
      noun("Token budget", parts.tokens),
      w(" tokens, stack "),
      noun("Stack", parts.stack),
      w(", strategy "),
      noun("Strategy", parts.strategy),
      " ",
      pin,
    ),
    h(
      "div",
      { class: "slide" },
      h("span", { class: "name", text: "GPUs", "aria-hidden": "true" }),
      h("span", { "aria-hidden": "true", text: "1" }),
      slider,
      h("span", { "aria-hidden": "true", text: "65,536" }),
    ),
    further.el,
    shut,
  );
  const toggle = (open = !el.classList.contains("open")) => {
    el.classList.toggle("open", open);
    brief.setAttribute("aria-expanded", String(open));
    (open ? body : brief).focus({ preventScroll: true });
  };
  el.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && el.classList.contains("open")) toggle(false);
  });
  fill(el, brief, body);

  // Show the question as the server understood it.
  return function update(answer, refused) {
    const asked = answer ? answer.question : {};
    const q = state.q;
    parts.model.set(q.model);
    parts.on.set(q.on);
    parts.n.set(q.n);
    parts.batch.set(q.batch || String(asked.batch || ""));
    parts.seq.set(q.seq || String(asked.seq || ""));
    parts.tokens.set(q.tokens || String(asked.tokens || ""));
    parts.stack.set(q.stack || answer?.estimate.stack || "");
    parts.precision.value = q.precision || answer?.estimate.workload.precision || "bf16";
    if (document.activeElement !== parts.strategy || !refused) {
      parts.strategy.value = q.strategy || asked.strategy || "";
      fit(parts.strategy);
    }
    further.update();
    const pinned = Boolean(q.strategy);
    pin.textContent = pinned ? "pinned" : "default";
    pin.className = pinned ? "chip on" : "chip";
    pin.setAttribute("aria-pressed", String(pinned));
    pin.title = pinned
      ? "Click to use the default strategy"
      : `Simplest of the best among ${count(answer?.tried)} strategies. Click to pin it.`;
    const power = Math.log2(read(q.n) || 1);
    if (document.activeElement !== slider) slider.value = power;
    slider.setAttribute("aria-valuetext", `${q.n} GPUs`);
    for (const [key, input] of Object.entries({ ...parts, ...further.parts })) {
      const target = input.querySelector?.("input") || input;
      const wrong = refused && refused.field && refused.field.split(".").pop() === FIELDS[key];
      if (wrong) target.setAttribute("aria-invalid", "true");
      else target.removeAttribute("aria-invalid");
    }
    fill(
      brief,
      h(
        "span",
        {},
        h("b", { text: q.model }),
        ` on ${count(read(q.n))}\u00d7 `,
        h("b", { text: q.on }),
        h("br"),
        `batch ${count(read(q.batch || asked.batch))} \u00d7 ${count(read(q.seq || asked.seq))}, `,
        h("code", { text: q.strategy || asked.strategy || "" }),
      ),
      h("span", { class: "chip", text: "Change" }),
    );
  };
}
