/** Parameters of a filter: how many it names, what each stands for, and a slider beside the field of each number. */

import { flat, isNumber, named } from "./attributes.js";
import { h } from "./dom.js";
import { t } from "./texts.js";

/** How many parameters a filter's text names: one more than the highest `%n` outside of quotes. */
export function parameters(text) {
  const bare = text.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"/g, "");
  return Math.max(0, ...[...bare.matchAll(/%(\d{1,2})/g)].map((each) => Number(each[1]) + 1));
}

/** The attribute that a parameter is compared with: the last that a filter names before it; undefined where none is. */
export function comparedWith(filter, n, schema) {
  const before = filter.slice(0, filter.search(new RegExp(`%0?${n}(?!\\d)`)));
  const found = flat(schema).map(({ path, type }) => ({ at: Math.max(...[path.join("."), `"${path.at(-1)}"`].map((each) => before.lastIndexOf(each))), long: path.join(".").length, path, type }));
  const [last] = found.filter(({ at }) => at >= 0).sort((a, b) => b.at - a.at || b.long - a.long);
  return last;
}

/** Whether a parameter stands for a number, as far as that can be told. */
export const isNumeric = (of) => of === undefined || isNumber(of.type);

/** By attribute, the least and the greatest number of a backtest. */
export function reaches(attributes) {
  const spread = attributes.filter(({ bins }) => bins?.length && typeof bins[0].from === "number");
  return new Map(spread.map(({ name, bins }) => [name, [bins[0].from, bins.at(-1).to]]));
}

/** What a parameter's slider is to reach: as far as what it is compared with does. */
export const reachOf = (known, of) => (of === undefined ? undefined : known.get(named(of.path)));

/** A step of which some dozens to some hundreds are in a span: 1, 10, 100, 0.1... */
export const stepOf = (span) => Number(`1e${Math.floor(Math.log10(span / 50))}`);

/**
 * A slider for the number in a field; what is moved is typed there. It goes as far as the values that came, if those
 * are known, else twice as far as the first value, and always as far as what is typed.
 */
export function slider(n, box, changed) {
  const first = Number(box.value);
  const far = Math.max(1, Math.abs(first) * 2) || 1;
  let [least, greatest] = [first < 0 ? -far : 0, far];
  const node = h("input", { type: "range", "aria-label": t.subscription.slider(n), on: { input: () => ((box.value = node.value), changed()) } });

  /** Show what is typed; nothing can be moved where that is no number. */
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
    /** Reach as far as these do. */
    reach(ends) {
      if (ends === undefined || (ends[0] === least && ends[1] === greatest)) return;
      [least, greatest] = ends;
      fit();
    },
  };
}
