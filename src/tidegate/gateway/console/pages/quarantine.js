/** Refused events by rule, with the reason; the user can correct and replay them. */

import { call, every, get, isTransient, part } from "../api.js";
import { add, badge, button, card, h, keyed, put, say } from "../dom.js";
import { byName, count, moment } from "../format.js";
import { parse, write } from "../json.js";
import { live } from "../live.js";
import { problem, toast } from "../notices.js";
import { t } from "../texts.js";

const PAGE = 200;
const POLL_INTERVAL_MS = 5000;

export async function show(page) {
  const [kind, name] = page.parts;
  return name && (kind === "services" || kind === "streams") ? one(page, kind, name) : list(page);
}

function list({ into, signal }) {
  const [services, streams] = [h("ul", { class: "cards" }), h("ul", { class: "cards" })];
  add(into, h("h1", { text: t.nav.quarantine }), h("p", { class: "lead dim", text: t.quarantine.lead }), h("h2", { text: t.nav.services }), services, h("h2", { text: t.quarantine.streams }), streams);
  const stop = live.listen(({ overview }) => {
    if (overview === null) return;
    const refused = (each) => each.status?.quarantined ?? 0;
    keyed(services, overview.services.filter((each) => !each.origin).sort((a, b) => refused(b) - refused(a) || byName(a.name, b.name)), (each) => each.name, (each) => entry("services", each.name, refused));
    keyed(streams, overview.streams, (each) => each.name, (each) => entry("streams", each.name, () => null));
  });
  signal.addEventListener("abort", stop);
}

function entry(kind, name, refused) {
  const number_ = h("b");
  return { node: h("li", { class: "card slim" }, h("a", { href: `#/quarantine/${kind}/${part(name)}`, text: name }), number_), update: (each) => say(number_, refused(each) === null ? "" : count(refused(each))) };
}

async function one({ into, signal, query }, kind, name) {
  const path = `/v1/${kind}/${part(name)}/quarantine`;
  const rules = h("div", { class: "chips", role: "group", "aria-label": t.quarantine.rules });
  const rows = h("ul", { class: "refused" });
  const [wrong, none, more, said] = [h("div"), h("p", { class: "dim", text: t.quarantine.none, hidden: true }), button(t.quarantine.more, () => load(), { hidden: true }), h("div", { role: "status" })];
  const patch = h("textarea", { rows: 2, class: "filter", spellcheck: "false", placeholder: t.quarantine.example, "aria-label": t.quarantine.patch });
  const left = h("input", { type: "checkbox", prop: { checked: true }, on: { change: () => restart() } });
  let [rule, cursor, entries, counts] = [query.get("rule"), null, [], new Map()];
  let [isLoading, isRefused] = [false, false];
  let turn = 0; // responses to requests of an earlier turn are ignored

  /** Load the next page, or, at the end, the events refused since. */
  async function load(isLater = false) {
    if (isLoading) return;
    isLoading = true;
    const mine = turn;
    try {
      const page = await get(path, { rule, cursor, max: PAGE, replayed: left.checked ? "false" : undefined }, signal);
      if (mine !== turn) return;
      entries = [...entries, ...page.quarantined];
      cursor = page.cursor;
      more.hidden = !page.more;
      none.hidden = entries.length > 0;
      wrong.replaceChildren();
      if (!isLater || page.quarantined.length) draw();
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      wrong.replaceChildren(problem(error));
      isRefused = !isTransient(error);
    }
    isLoading = false;
  }

  function restart() {
    [turn, isLoading, cursor, entries] = [turn + 1, false, null, []];
    return load();
  }

  function draw() {
    const found = new Map();
    for (const each of entries) for (const of of each.rules.length ? each.rules : ["event"]) found.set(of, (found.get(of) ?? 0) + 1);
    counts = rule === null ? found : new Map([...counts, [rule, found.get(rule) ?? 0]]); // the answer counts only this rule: keep the counts of the others
    const named = [...counts].sort((a, b) => b[1] - a[1]).map(([of, n]) => ({ of, text: `${of} ${count(n)}` }));
    keyed(rules, [{ of: null, text: t.quarantine.all }, ...named], ({ of }) => (of === null ? "" : `=${of}`), chip);
    all.textContent = rule === null ? t.quarantine.replayAll : t.quarantine.replayRule(rule);
    all.disabled = !entries.some((each) => !each.replayed);
    keyed(rows, entries, (each) => `${each.id} ${each.replayed ? 1 : 0}`, refused);
  }

  function chip({ of }) {
    const node = button("", () => ((rule = of), void restart()), { class: "chip" });
    return { node, update: ({ text }) => (say(node, text), put(node, "aria-pressed", String(rule === of))) };
  }

  async function send(body) {
    try {
      const done = await call("POST", `${path}/replay`, { query: { mode: "partial" }, body });
      const why = done.results.find((each) => each.errors)?.errors[0];
      said.replaceChildren(h("p", { class: done.refused ? "warn-text" : "good-text", text: t.quarantine.done(done.replayed, done.already, done.refused, why ? [why.pointer, why.detail ?? why.message].filter(Boolean).join(": ") : "") }));
      if (done.replayed) toast(t.quarantine.sent(done.replayed));
      await restart();
      return true;
    } catch (error) {
      said.replaceChildren(problem(error));
      return false;
    }
  }

  /** Return the patch that the user typed; undefined if it is not valid. */
  function typed(text, into_) {
    try {
      return text.trim() ? parse(text) : {};
    } catch (error) {
      into_.replaceChildren(problem(error));
      return undefined;
    }
  }

  function refused(each) {
    const shown = each.event ?? each.raw ?? each.raw64;
    const [mine, opened] = [h("div"), h("details")];
    const edit = h("textarea", { rows: 2, class: "filter", spellcheck: "false", placeholder: t.quarantine.example, "aria-label": t.quarantine.patchOf(each.id), prop: { value: each.event ? write(Object.fromEntries(each.rules.filter((name_) => name_ in each.event).map((name_) => [name_, each.event[name_]]))) : "" } });
    const go = button(t.quarantine.replay, () => {
      const change = typed(edit.value, mine);
      if (change !== undefined) void send({ events: [each.event || !edit.value.trim() ? { id: each.id, patch: change } : { id: each.id, event: change }] });
    }, { class: "primary" });
    const state = each.replayed ? badge(t.quarantine.replayed(moment(each.replayed.at), each.replayed.stream), "good") : null;
    return {
      node: h("li", {}, h("div", { class: "row" }, h("b", { class: "bad-text", text: each.reason }), h("span", { class: "dim", text: [moment(each.time), each.source].filter((of) => of && of !== "–").join(" · ") }), state, each.replayed ? null : [h("span", { class: "grow" }), button(t.quarantine.correct, () => ((opened.open = true), edit.focus()), { class: "small" })]), add(opened, h("summary", { text: typeof shown === "string" ? shown.slice(0, 120) : write(shown).slice(0, 120) }), h("pre", { text: typeof shown === "string" ? shown : write(shown, 1) }), each.replayed ? null : h("div", {}, h("label", { class: "field" }, h("span", { class: "label", text: t.quarantine.patch }), edit), mine, h("div", { class: "row" }, go)))),
      update: () => {},
    };
  }

  const all = button(t.quarantine.replayAll, () => {
    const change = typed(patch.value, said);
    if (change !== undefined) void send({ all: rule === null ? {} : { rule }, ...(patch.value.trim() ? { patch: change } : {}) });
  }, { disabled: true });
  add(
    into,
    h("header", { class: "head" }, h("h1", { text: t.quarantine.of(name) }), h("a", { href: "#/quarantine", text: t.quarantine.back })),
    card("", h("div", { class: "row spread" }, rules, h("label", { class: "check" }, left, t.quarantine.left)), wrong, said, h("details", {}, h("summary", { text: t.quarantine.together }), h("label", { class: "field" }, h("span", { class: "label", text: t.quarantine.patch }), patch), h("div", { class: "row" }, all)), none, rows, more),
  );
  await load();
  void every(POLL_INTERVAL_MS, signal, async () => more.hidden && !isRefused && load(true));
}
