/** What words mean to the space that is installed: two terms in their themes. */

import { get } from "../api.js";
import { meter } from "../charts.js";
import { add, card, field, h } from "../dom.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";
import { shown } from "../values.js";

export function show({ into, signal, query }) {
  const [term, to, theme] = ["term", "to", "theme"].map((name) => h("input", { spellcheck: "false", name, prop: { value: query.get(name) ?? "" } }));
  const answer = h("div", { role: "status" }, h("p", { class: "dim", text: t.meaning.begin }));
  const ask = async () => {
    try {
      const said = await get("/v1/semantics", { term: term.value.trim(), to: to.value.trim(), theme: theme.value.split(",").map((each) => each.trim()).filter(Boolean) }, signal);
      const { relatedness, ...rest } = said;
      answer.replaceChildren(typeof relatedness === "number" ? h("p", { class: "row" }, h("b", { text: t.meaning.relatedness }), meter(relatedness), h("b", { text: relatedness.toFixed(3) })) : "", shown(rest));
    } catch (error) {
      if (!signal.aborted) answer.replaceChildren(problem(error));
    }
  };
  const form = h("form", { class: "row fields", on: { submit: (event) => (event.preventDefault(), ask()) } }, field(t.meaning.term, term), field(t.meaning.to, to), field(t.meaning.theme, theme, t.meaning.themeHint), h("button", { type: "submit", class: "primary", text: t.meaning.ask }));
  add(into, h("h1", { text: t.nav.meaning }), h("p", { class: "lead dim", text: t.meaning.lead }), card("", form, answer));
  if (term.value) void ask();
}
