/** Links to other brokers: how each is, what is asked for over it, what it carried. */

import { every, get } from "../api.js";
import { add, badge, card, h, keyed, pairs, say } from "../dom.js";
import { count, rate } from "../format.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";

const EVERY_MS = 2000;

export async function show({ into, signal }) {
  const [links, none, wrong, name] = [h("div", { class: "columns" }), h("p", { class: "dim", text: t.federation.none }), h("div"), h("span", { class: "dim" })];
  add(into, h("header", { class: "head" }, h("h1", { text: t.nav.federation }), name), h("p", { class: "lead dim", text: t.federation.lead }), wrong, none, links);
  const look = async () => {
    try {
      const said = await get("/v1/links", {}, signal);
      say(name, said.broker);
      none.hidden = said.links.length > 0;
      keyed(links, said.links, (each) => each.name, link);
      wrong.replaceChildren();
    } catch (error) {
      if (!signal.aborted) wrong.replaceChildren(problem(error));
    }
  };
  await look();
  void every(EVERY_MS, signal, look);
}

/** Names, each with a number. */
const counted = (of) => Object.entries(of).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "–";

function link({ name }) {
  const [state, body] = [h("span"), h("div")];
  let before = null;
  return {
    node: h("section", { class: "card", data: { link: name } }, h("div", { class: "row" }, h("h2", { text: name }), state), body),
    update(each) {
      const now = performance.now();
      const per_s = (figure) => (before === null ? null : Math.max(0, ((each.figures[figure] - before.figures[figure]) * 1000) / (now - before.now)));
      state.replaceChildren(badge(t.federation.states[each.state] ?? each.state, each.state === "up" ? "good" : "bad"));
      body.replaceChildren(
        each.problem ? h("p", { class: "problem", text: each.problem }) : "",
        pairs([
          [t.federation.address, each.url ?? t.federation.dials],
          [t.federation.offers, each.offers.join(", ") || "–"],
          [t.federation.asked, counted(each.asked)],
          [t.federation.entries, counted(each.entries)],
          [t.federation.paths, each.paths.map((path) => path.join(" → ")).join(", ") || "–"],
          [t.federation.forwarded, `${count(each.figures.forwarded)} · ${rate(per_s("forwarded"))}`],
          [t.federation.received, `${count(each.figures.received)} · ${rate(per_s("received"))}`],
          [t.federation.rest, t.federation.figures(each.figures)],
        ]),
      );
      before = { figures: each.figures, now };
    },
  };
}
