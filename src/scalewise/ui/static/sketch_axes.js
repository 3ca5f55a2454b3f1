// Axes of a sketch: ranges, ticks and positions as Plotly chooses them.

// The label of a tick.
function number(v, format = "") {
  const size = Math.abs(v),
    sign = v < 0 ? "\u2212" : format[0] === "+" ? "+" : "";
  if (format.endsWith("%")) return `${sign}${(100 * size).toFixed(0)}%`;
  const [unit, name] = [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ].find(([u]) => size >= u && (size >= 1e4 || format.endsWith("s"))) || [1, ""];
  return sign + Number((size / unit).toPrecision(6)) + name;
}

// Values as coordinates: names by their order, logarithms by their exponent.
export function axisOf(id, traces, layout) {
  const flat = id[0] === "x",
    letter = id[0],
    a = layout[`${letter}axis${id.slice(1)}`] || {},
    mine = traces.filter((t) => (t[`${letter}axis`] || letter) === id);
  const all = mine.flatMap((t) => t[letter]),
    names = all.some((v) => typeof v === "string") ? [...new Set(all)] : null,
    log = a.type === "log";
  const c = (v) =>
    v === null || v === undefined ? NaN : names ? names.indexOf(v) : log ? Math.log10(v) : v;
  let low = Infinity,
    high = -Infinity,
    pad = 0,
    dots = 0,
    zero = a.rangemode === "tozero" && !log;
  for (const t of mine) {
    const bar = t.type === "bar",
      along = bar && (t.orientation === "h") === flat,
      wide = t.type === "heatmap" || (bar && !along) ? 0.5 : 0;
    for (const v of t[letter].map(c))
      if (Number.isFinite(v)) {
        low = Math.min(low, v - wide);
        high = Math.max(high, v + wide);
      }
    if (along) {
      zero = true;
      low = Math.min(low, 0);
      high = Math.max(high, 0);
    }
    const marks = !wide && !bar && t.mode.includes("markers");
    if (along || marks || (!wide && !flat)) pad = 0.05;
    if (marks) dots = Math.max(dots, 0.8 * (t.marker.size || 6));
  }
  if (zero && low > 0) low = 0;
  return { a, flat, names, log, c, zero, pad, dots, reach: low > high ? [0, 1] : [low, high] };
}

// Give an axis its pixels: `p` of a coordinate, `d` of a value, ticks.
export function lay(axis, start, length) {
  const { a, flat, log, names, zero } = axis,
    [from, to] = a.domain || [0, 1],
    way = flat ? 1 : -1,
    room = length * (to - from),
    first = start + way * from * length;
  let [low, high] = a.range || axis.reach;
  if (!a.range) {
    const q = axis.pad && axis.pad + axis.dots / room,
      more = ((high - low || 1) * q) / (1 - 2 * q);
    if (!(zero && low === 0)) low -= more;
    if (!(zero && high === 0)) high += more;
  }
  const p = (v) => first + ((way * (v - low)) / (high - low)) * room;
  let ticks = [];
  if (a.visible === false) ticks = [];
  else if (a.tickvals) ticks = a.tickvals.map((v, i) => [axis.c(v), a.ticktext[i]]);
  else if (names) ticks = names.map((name, i) => [i, name]);
  else if (log) {
    for (let e = Math.floor(low); e <= high; e++)
      for (const m of high - low > 2 || a.dtick === 1 ? [1] : [1, 2, 5])
        ticks.push([e + Math.log10(m), number(m * 10 ** e, a.tickformat)]);
  } else {
    const rough =
        (high - low) / (a.nticks || Math.min(Math.max(room / (flat ? 80 : 40), 4), 9) + 1),
      unit = 10 ** Math.floor(Math.log10(rough)),
      step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough * 0.999);
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high; i++)
      ticks.push([i * step, number(i * step, a.tickformat)]);
  }
  Object.assign(axis, {
    p,
    d: (v) => p(axis.c(v)),
    edges: [first, first + way * room],
    ticks: ticks.filter(([v]) => v > low - 1e-9 && v < high + 1e-9),
  });
}
