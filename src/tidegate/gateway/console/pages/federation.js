/** Links to other brokers: state, filters in both directions, and traffic. */

import { every, get, part } from "../api.js";
import { add, badge, card, h, keyed, pairs, say } from "../dom.js";
import { count, rate } from "../format.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";

const POLL_INTERVAL_MS = 2000;

export async function show({ into, signal }) {
  const [links, none, wrong, name] = [h("div", { class: "columns" }), h("p", { class: "dim", text: t.federation.none }), h("div"), h("span", { class: "dim" })];
  add(into, h("header", { class: "head" }, h("h1", { text: t.nav.federation }), name), h("p", { class: "lead dim", text: t.federation.lead }), wrong, none, links);
  const look = async () => {
    try {
      const said = await get("/v1/links", {}, signal);
      say(name, said.broker);
      none.hidden = said.links.length > 0;
      keyed(links, said.links, (each) => each.name, (each) => link(each, signal));
      wrong.replaceChildren();
    } catch (error) {
      if (!signal.aborted) wrong.replaceChildren(problem(error));
    }
  };
  await look();
  void every(POLL_INTERVAL_MS, signal, look);
}

/** Show names with a number each. */
const counted = (of) => Object.entries(of).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "–";

/** Show the filters of one direction, by service. */
function asked(title, some, all) {
  return h("div", {}, h("h3", { text: t.federation.some(title, some.length, all) }), h("ul", { class: "alternatives" }, some.map((each) => h("li", {}, h("small", { class: "dim", text: each.service }), h("code", { text: each.filter || t.workbench.everything })))));
}

function link({ name }, signal) {
  const [state, body, routes] = [h("span"), h("div"), h("div")];
  const entries = h("details", { on: { toggle: () => void read() } }, h("summary", { text: t.federation.routes }), routes);
  let before = null;
  /** Show the filters of both directions; loaded when the user opens them. */
  async function read() {
    if (!entries.open) return;
    const found = await get(`/v1/links/${part(name)}/routes`, {}, signal).catch(() => null);
    if (found === null) return;
    const shown = JSON.stringify(found);
    if (shown !== routes.dataset.shown) routes.replaceChildren(asked(t.federation.asked, found.asked, found.total.asked), asked(t.federation.entries, found.entries, found.total.entries));
    routes.dataset.shown = shown;
  }
  return {
    node: h("section", { class: "card", data: { link: name } }, h("div", { class: "row" }, h("h2", { text: name }), state), body, entries),
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
      void read();
    },
  };
}
