/** SVG charts: sparklines, lines over time, and bars of matching events. */

import { h, s } from "./dom.js";
import { clock, compact, count, moment, number, percent } from "./format.js";
import { t } from "./texts.js";

const known = (values) => values.filter((each) => each !== null && each !== undefined && Number.isFinite(each));

/** Return an SVG path through the values; null values are gaps, and a single value is a dash. */
function path(values, x, y) {
  let [text, pen] = ["", false];
  const is = (value) => value !== null && value !== undefined && Number.isFinite(value);
  values.forEach((value, n) => {
    const [at, up] = is(value) ? [x(n).toFixed(1), y(value).toFixed(1)] : [];
    if (pen && is(value)) text += `L${at} ${up}`;
    else if (is(value)) text += is(values[n + 1]) ? `M${at} ${up}` : `M${at} ${up}h-4`;
    pen = is(value);
  });
  return text;
}

/**
 * A sparkline: lines without axes, one CSS class each, aligned right. `update` takes a list of values per line.
 * @param {string[]} classes
 */
export function sparkline(classes, label, width = 72, height = 22) {
  const lines = classes.map((each) => s("path", { class: `line ${each}`, fill: "none" }));
  const node = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, preserveAspectRatio: "none" }, s("path", { class: "base", d: `M1 ${height - 1}H${width - 1}`, fill: "none" }), lines);
  return {
    node,
    update(series, most = 60) {
      const shown = series.map((each) => each.slice(-most));
      const top = Math.max(1e-9, ...known(shown.flat()));
      shown.forEach((values, n) => {
        const x = (at) => width - 1 - ((values.length - 1 - at) * (width - 2)) / (most - 1);
        lines[n].setAttribute("d", path(values, x, (value) => height - 2 - (value / top) * (height - 4)));
      });
    },
  };
}

/** Return a round number at or above a value, for the top of an axis. */
export function rounded(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= value);
}

/**
 * Lines over time with an axis, a legend, and the values at the pointer.
 * @param {{name: string, class: string}[]} lines
 * @param {(value: number) => string} said formats a value
 */
export function timeChart(title, lines, said = number) {
  const [width, height, left, bottom] = [480, 150, 54, 18];
  const grid = s("g", { class: "grid" });
  const paths = lines.map((each) => s("path", { class: `line ${each.class}`, fill: "none" }));
  const hair = s("line", { class: "hair", y1: 6, y2: height - bottom, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, grid, paths, hair);
  const values = lines.map(() => h("b", { text: "–" }));
  const when = h("span", { class: "dim" });
  const legend = h("div", { class: "legend" }, lines.map((each, n) => h("span", {}, h("i", { class: `key ${each.class}` }), `${each.name} `, values[n])), when);
  const node = h("figure", { class: "chart" }, h("figcaption", { text: title }), svg, legend);
  let [moments, series, pointed] = [[], [], null];
  const span = () => Math.max(1, moments.at(-1) - moments[0]);
  const x = (n) => width - 6 - ((moments.at(-1) - moments[n]) / span()) * (width - left - 6);

  function tell() {
    const n = pointed === null ? moments.length - 1 : Math.min(pointed, moments.length - 1);
    series.forEach((each, at) => (values[at].textContent = each[n] === null || each[n] === undefined ? "–" : said(each[n])));
    when.textContent = pointed === null || n < 0 ? "" : clock(moments[n]);
    hair.setAttribute("visibility", pointed === null ? "hidden" : "visible");
    if (pointed !== null) for (const end of ["x1", "x2"]) hair.setAttribute(end, String(x(n)));
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const far = moments.map((_, n) => Math.abs(x(n) - at));
    pointed = far.length ? far.indexOf(Math.min(...far)) : null;
    tell();
  });
  svg.addEventListener("pointerleave", () => ((pointed = null), tell()));
  return {
    node,
    update(newMoments, newSeries) {
      [moments, series] = [newMoments, newSeries];
      const most = Math.max(0, ...known(series.flat()));
      const top = rounded(most);
      const y = (value) => height - bottom - (value / top) * (height - bottom - 8);
      grid.replaceChildren(
        ...(most > 0 ? [0, 0.5, 1] : [0]).flatMap((share) => [
          s("line", { x1: left, x2: width - 6, y1: y(top * share), y2: y(top * share) }),
          s("text", { x: left - 6, y: y(top * share) + 3, "text-anchor": "end", text: said(top * share) }),
        ]),
        ...(moments.length > 1
          ? [s("text", { x: left, y: height - 4, text: clock(moments[0]) }), s("text", { x: width - 6, y: height - 4, "text-anchor": "end", text: clock(moments.at(-1)) })]
          : []),
      );
      paths.forEach((each, n) => each.setAttribute("d", path(series[n], x, y)));
      tell();
    },
  };
}

/** Bars of all events, with the matching ones inside. Each bar has `events`, `matched` and a `title`. */
function bars(items, height, label) {
  const width = 480;
  const top = Math.max(1, ...items.map((each) => each.events));
  const step = width / Math.max(1, items.length);
  const bar = (n, value, kind) => {
    const tall = (value / top) * (height - 2);
    return s("rect", { class: kind, x: (n * step + 0.5).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(0.5, step - 1).toFixed(2), height: tall.toFixed(2) });
  };
  return s(
    "svg",
    { class: "bars", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    items.map((each, n) => s("g", {}, s("title", { text: each.title }), s("rect", { class: "hit", x: n * step, y: 0, width: step, height }), bar(n, each.events, "all"), bar(n, each.matched, "matched"))),
  );
}

/** A histogram of event times, with the matching ones. */
export function timeline(spans) {
  if (spans.length < 2) return null;
  const items = spans.map((each) => ({ ...each, title: t.chart.of(clock(each.at), count(each.matched), count(each.events)) }));
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", { text: t.chart.timeline }),
    bars(items, 56, t.chart.timeline),
    h("div", { class: "ends dim" }, h("span", { text: clock(spans[0].at) }), h("span", { text: clock(spans.at(-1).at) })),
  );
}

/** Return a formatter of bin edges: numbers, or times, without the date if all are of one day. */
function edge(ends) {
  if (typeof ends[0] !== "string") return number;
  const [first, last] = ends.map((each) => moment(each).slice(0, 10));
  return first === last ? clock : moment;
}

/** A histogram of an attribute's values, with the matching ones. */
export function distribution(attribute) {
  const missing = attribute.missing ? h("span", { class: "dim", text: t.chart.missing(count(attribute.missing)) }) : null;
  const caption = h("figcaption", {}, h("code", { text: attribute.name }), h("span", { class: "dim", text: ` ${attribute.type}` }), " ", missing);
  if (attribute.bins) {
    const bins = attribute.bins;
    const said = edge([bins[0].from, bins.at(-1).to]);
    const items = bins.map((each) => ({ ...each, title: t.chart.of(`${said(each.from)} … ${said(each.to)}`, count(each.matched), count(each.events)) }));
    const ends = h("div", { class: "ends dim" }, [...new Set([said(bins[0].from), said(bins.at(-1).to)])].map((text) => h("span", { text })));
    return h("figure", { class: "chart" }, caption, bars(items, 56, t.chart.spread(attribute.name)), ends);
  }
  const top = Math.max(1, ...attribute.values.filter((each) => each.value !== null).map((each) => each.events));
  const wide = (n) => `${Math.min(1, n / top) * 100}%`;
  const rows = attribute.values.map((each) => {
    const [all, matched] = [h("i", { class: "all" }), h("i", { class: "matched" })];
    all.style.width = wide(each.events);
    matched.style.width = wide(each.matched);
    return h("div", { class: "value", title: t.chart.of(each.value ?? t.chart.others, count(each.matched), count(each.events)) }, h("span", { class: each.value === null ? "dim" : "", text: each.value ?? t.chart.others }), h("span", { class: "track" }, all, matched), h("b", { text: compact(each.events) }));
  });
  return h("figure", { class: "chart" }, caption, h("div", { class: "values" }, rows));
}

/** A fraction as a bar. */
export function meter(share, label) {
  const fill = h("i");
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "meter", role: "img", "aria-label": label ?? percent(share) }, fill);
}
