/** Links to other brokers: how each is, what is asked for over it, what it carried. */

import { get, pause } from "../api.js";
import { add, card, h } from "../dom.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";
import { shown, table } from "../values.js";

const EVERY_MS = 2000;

export async function show({ into, signal }) {
  const answer = h("div");
  add(into, h("h1", { text: t.nav.federation }), h("p", { class: "lead dim", text: t.federation.lead }), card("", answer));
  const look = async () => {
    try {
      const { links = [], ...rest } = await get("/v1/links", {}, signal);
      answer.replaceChildren(links.length ? table(links) : h("p", { class: "dim", text: t.federation.none }), Object.keys(rest).length ? shown(rest) : "");
    } catch (error) {
      if (!signal.aborted) answer.replaceChildren(problem(error));
    }
  };
  const watch = async () => {
    while (!signal.aborted) {
      await pause(EVERY_MS, signal);
      await look();
    }
  };
  await look();
  void watch();
}
