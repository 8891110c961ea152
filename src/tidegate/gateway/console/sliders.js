/** Parameters of a filter: their number, the attribute of each, and a slider for each number. */

import { flat, isNumber, named } from "./attributes.js";
import { h } from "./dom.js";
import { t } from "./texts.js";

/** Return the number of parameters of a filter: one more than the highest `%n` outside quotes. */
export function parameters(text) {
  const bare = text.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"/g, "");
  return Math.max(0, ...[...bare.matchAll(/%(\d{1,2})/g)].map((each) => Number(each[1]) + 1));
}

/** Return the attribute that a parameter is compared with, the last one before it; undefined if there is none. */
export function comparedWith(filter, n, schema) {
  const before = filter.slice(0, filter.search(new RegExp(`%0?${n}(?!\\d)`)));
  const found = flat(schema).map(({ path, type }) => ({ at: Math.max(...[path.join("."), `"${path.at(-1)}"`].map((each) => before.lastIndexOf(each))), long: path.join(".").length, path, type }));
  const [last] = found.filter(({ at }) => at >= 0).sort((a, b) => b.at - a.at || b.long - a.long);
  return last;
}

/** True if a parameter is probably a number. */
export const isNumeric = (of) => of === undefined || isNumber(of.type);

/** Return the minimum and maximum of each numeric attribute of a backtest. */
export function reaches(attributes) {
  const spread = attributes.filter(({ bins }) => bins?.length && typeof bins[0].from === "number");
  return new Map(spread.map(({ name, bins }) => [name, [bins[0].from, bins.at(-1).to]]));
}

/** Return the range of a parameter's slider: that of the attribute it is compared with. */
export const reachOf = (known, of) => (of === undefined ? undefined : known.get(named(of.path)));

/** Return a power of ten that divides a span into dozens to hundreds of steps. */
export const stepOf = (span) => Number(`1e${Math.floor(Math.log10(span / 50))}`);

/**
 * A slider for the number in a field; moving it changes the field. Its range is that of the received values, or up to
 * twice the first value if there are none, and always includes the value of the field.
 */
export function slider(n, box, changed) {
  const first = Number(box.value);
  const far = Math.max(1, Math.abs(first) * 2) || 1;
  let [least, greatest] = [first < 0 ? -far : 0, far];
  const node = h("input", { type: "range", "aria-label": t.subscription.slider(n), on: { input: () => ((box.value = node.value), changed()) } });

  /** Show the value of the field; disabled if that is no number. */
  function fit() {
    const value = Number(box.value);
    node.disabled = box.value.trim() === "" || !Number.isFinite(value);
    const [from, to] = node.disabled ? [least, greatest] : [Math.min(least, value), Math.max(greatest, value)];
    const step = stepOf(to - from || 1);
    const whole = (n) => Number((n * step).toPrecision(12));
    Object.assign(node, { min: whole(Math.floor(from / step)), max: whole(Math.ceil(to / step)), step: String(step) });
    if (!node.disabled) node.value = box.value;
  }

  box.addEventListener("input", fit);
  fit();
  return {
    node,
    /** Set the range. */
    reach(ends) {
      if (ends === undefined || (ends[0] === least && ends[1] === greatest)) return;
      [least, greatest] = ends;
      fit();
    },
  };
}
