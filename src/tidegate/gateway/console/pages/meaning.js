/** The installed semantic space: compare terms under themes, and see the concepts behind them. */

import { get } from "../api.js";
import { meter } from "../charts.js";
import { add, card, field, h } from "../dom.js";
import { count } from "../format.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";

const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

export function show({ into, signal, query }) {
  const [term, to, theme, toTheme] = ["term", "to", "theme", "to_theme"].map((name) => h("input", { spellcheck: "false", name, prop: { value: query.getAll(name).join(", ") } }));
  const answer = h("div", { role: "status" }, h("p", { class: "dim", text: t.meaning.begin }));
  const ask = async () => {
    try {
      answer.replaceChildren(...told(await get("/v1/semantics", { term: term.value.trim(), to: words(to.value), theme: words(theme.value), to_theme: words(toTheme.value) }, signal)));
    } catch (error) {
      if (!signal.aborted) answer.replaceChildren(problem(error));
    }
  };
  const form = h(
    "form",
    { class: "row fields", on: { submit: (event) => (event.preventDefault(), ask()) } },
    field(t.meaning.term, term),
    field(t.meaning.to, to),
    field(t.meaning.theme, theme),
    field(t.meaning.toTheme, toTheme),
    h("button", { type: "submit", class: "primary", text: t.meaning.ask }),
  );
  add(into, h("h1", { text: t.nav.meaning }), h("p", { class: "lead dim", text: t.meaning.lead }), card("", form, answer));
  if (term.value) void ask();
}

function told(said) {
  const related = said.related.map((each) =>
    h("li", { data: { to: each.to } }, h("div", { class: "row" }, h("b", { text: each.to }), meter(each.relatedness), h("b", { text: each.relatedness.toFixed(3) }), h("span", { class: "dim", text: each.relatedness >= said.threshold ? t.meaning.enough : t.meaning.few(said.threshold) })), concepts(each.concepts, "concept", "share")),
  );
  return [
    said.unknown.length ? h("p", { class: "warn-text", text: t.meaning.unknown(said.unknown.join(", ")) }) : "",
    h("ul", { class: "found" }, related),
    h("div", { class: "columns" }, card(t.meaning.concepts(said.term), h("p", { class: "dim", text: t.meaning.documents(count(said.documents), count(said.basis)) }), concepts(said.concepts, "concept", "weight")), card(t.meaning.nearest, concepts(said.nearest, "term", "relatedness"))),
  ];
}

/** Show names with their weights, highest first. */
function concepts(list, name, figure) {
  const top = Math.max(1e-9, ...list.map((each) => each[figure]));
  return h("ul", { class: "values" }, list.map((each) => h("li", { class: "value" }, h("span", { text: each[name] }), meter(each[figure] / top, each[figure].toFixed(3)), h("b", { text: each[figure].toFixed(3) }))));
}
