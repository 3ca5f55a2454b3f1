// Horizontal lines of a chart that move by pointer and arrow keys.

import { fill, h } from "./kit.js";

// `lines`: key, value, name, words(value), step(value, way), live(value), done(value).
export function handles(el, place, lines) {
  const held = el.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const axis = () => place._fullLayout.yaxis,
    bounds = () => {
      const {
          range: [a, b],
          type,
        } = axis(),
        value = (r) => (type === "log" ? 10 ** r : r);
      return [Math.max(value(a), 0), value(b)];
    };
  const inside = (v) => {
    const [low, high] = bounds();
    return Math.min(Math.max(v, low), high);
  };
  const all = lines.map((line) => {
    let value = line.value;
    const label = h("span"),
      grip = h(
        "div",
        {
          class: "grip",
          role: "slider",
          tabindex: 0,
          "data-key": line.key,
          "aria-label": line.name,
          "aria-orientation": "vertical",
          title: "Drag, or use the arrow keys",
        },
        label,
        h("i", { "aria-hidden": "true", text: "\u2195" }),
      );
    const rule = h("div", { class: line.set === false ? "rule unset" : "rule" }, grip);
    const put = () => {
      const y = axis(),
        x = place._fullLayout.xaxis,
        [low, high] = bounds();
      rule.hidden = !(value >= low && value <= high) && line.set !== false;
      Object.assign(rule.style, {
        top: `${y._offset + y.d2p(inside(value))}px`,
        left: `${x._offset}px`,
        width: `${x._length}px`,
      });
      label.textContent = line.words(value);
      for (const [key, v] of [
        ["valuenow", value],
        ["valuemin", low],
        ["valuemax", high],
        ["valuetext", line.words(value)],
      ])
        grip.setAttribute(`aria-${key}`, v);
    };
    const move = (event) => {
      value = inside(
        axis().p2d(event.clientY - place.getBoundingClientRect().top - axis()._offset),
      );
      put();
      line.live(value);
    };
    grip.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      grip.focus();
      grip.setPointerCapture(event.pointerId);
      grip.addEventListener("pointermove", move);
    });
    grip.addEventListener("pointerup", () => {
      grip.removeEventListener("pointermove", move);
      line.done(value);
    });
    grip.addEventListener("keydown", (event) => {
      const way = {
        ArrowUp: 1,
        ArrowRight: 1,
        ArrowDown: -1,
        ArrowLeft: -1,
        PageUp: 4,
        PageDown: -4,
      }[event.key];
      if (!way) return;
      event.preventDefault();
      value = inside(line.step(value, way));
      put();
      line.done(value);
    });
    return { rule, grip, put };
  });
  fill(
    el,
    all.map((each) => each.rule),
  );
  const put = () => all.forEach((each) => each.put());
  put();
  place.on("plotly_afterplot", put);
  all.find((each) => each.grip.dataset.key === held)?.grip.focus();
}
