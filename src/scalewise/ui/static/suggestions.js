// Suggestions: single changes of the strategy that raise throughput.

import * as k from "./kit.js";
import { WORTH_SAYING } from "./tables.js";

const { h, fill } = k;

export function suggestions(el, answer, ctx) {
  const { found, tried, next: after } = answer.suggestions;
  const gain = (each) =>
    [`${k.seconds(each.seconds)} per step`, k.dollars(each.usd), k.energy(each.joules)].join(", ");
  fill(
    el,
    h("h2", { text: "Suggestions" }),
    answer.headline.feasible &&
      !found.length &&
      h(
        "p",
        { class: "lead" },
        !answer.pinned && `Simplest of the best among ${k.count(answer.tried)} strategies. `,
        `None of ${tried} single changes gains more than ${k.percent(WORTH_SAYING, 0)}.`,
        after && after.gain > -1 && ` Closest: ${after.why}, ${k.signed(after.gain)}.`,
      ),
    !answer.headline.feasible &&
      h("p", { class: "muted", text: "None until the strategy fits in memory." }),
    h(
      "ol",
      { class: "plain suggestions" },
      found.map((each) =>
        h(
          "li",
          {},
          h(
            "div",
            {},
            h("b", { text: each.why[0].toUpperCase() + each.why.slice(1) }),
            h("code", { text: each.strategy }),
          ),
          h("span", { class: "delta good", text: `${k.signed(each.gain)} tok/s` }),
          h("span", { class: "muted saves" }, `saves ${gain(each)}`),
          h("button", {
            type: "button",
            text: "Apply",
            onclick: () => ctx.change({ strategy: each.strategy }),
          }),
        ),
      ),
    ),
    h(
      "p",
      {},
      h("button", {
        type: "button",
        class: "quiet",
        text: "Search all strategies",
        onclick: () => ctx.go("search"),
      }),
    ),
  );
}
