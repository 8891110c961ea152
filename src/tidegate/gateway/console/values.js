/** A JSON value for people: objects as pairs, lists of objects as tables, all else as text. */

import { h, pairs } from "./dom.js";
import { value } from "./format.js";

const isPlain = (of) => of === null || typeof of !== "object";

export function shown(of) {
  if (isPlain(of)) return h("span", { text: value(of) });
  if (Array.isArray(of)) {
    if (!of.length) return h("span", { class: "dim", text: "–" });
    if (of.every(isPlain)) return h("span", { text: of.map(value).join(", ") });
    return table(of);
  }
  return pairs(Object.entries(of).map(([name, each]) => [name.replaceAll("_", " "), shown(each)]));
}

/** Rows of objects: a column for each name that any of them has. */
export function table(rows) {
  const names = [...new Set(rows.flatMap((each) => (isPlain(each) ? [] : Object.keys(each))))];
  return h(
    "div",
    { class: "scroll" },
    h("table", { class: "plain" }, h("thead", {}, h("tr", {}, names.map((text) => h("th", { scope: "col", text: text.replaceAll("_", " ") })))), h("tbody", {}, rows.map((each) => h("tr", {}, names.map((name) => h("td", {}, shown(each?.[name] ?? null))))))),
  );
}
