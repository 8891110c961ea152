/** The filter workbench: what a filter means while it is typed, what it would have matched, what it matches now. */

import { call, get, part, secrets } from "./api.js";
import { distribution, timeline } from "./charts.js";
import { client, curl } from "./code.js";
import { add, badge, button, card, field, h, say, settled } from "./dom.js";
import { count, ms, percent } from "./format.js";
import { attempt, copy, problem } from "./notices.js";
import { tail } from "./tail.js";
import { t } from "./texts.js";

const QUIET_MS = 250;
const BACKTEST_MS = 450;
const SPANS = ["1m", "5m", "15m", "1h", "beginning"];

/** How many parameters a filter's text names: one more than the highest `%n` outside of quotes. */
export function parameters(text) {
  const bare = text.replace(/'(?:[^']|'')*'/g, "");
  return Math.max(0, ...[...bare.matchAll(/%(\d{1,2})/g)].map((each) => Number(each[1]) + 1));
}

export function workbench({ into, service, signal, query, me }) {
  const at = `/v1/services/${part(service.name)}`;
  const text = h("textarea", { rows: 2, spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-describedby": "verdict", prop: { value: query.get("filter") ?? "" }, placeholder: t.workbench.placeholder, class: "filter" });
  const params = h("div", { class: "row params" });
  const verdict = h("div", { id: "verdict", class: "verdict", role: "status", "aria-live": "polite" });
  const span = h("select", { "aria-label": t.workbench.span }, SPANS.map((each) => h("option", { value: each, text: t.spans[each], selected: each === "5m" })));
  const past = h("div", { class: "past" });
  const chosen = h("div");
  const coming = tail({ service, signal, picked: (event) => explain(event), area: (said) => join(said) });
  const subscribe = button(t.workbench.subscribe, () => ask(), { class: "primary" });
  const shell = button(t.workbench.curl, () => copy(curl(service.name, text.value.trim(), values()), t.workbench.copied));
  const program = button(t.workbench.python, () => copy(client(service.name, text.value.trim(), values()), t.workbench.copied));
  const dialog = h("div");
  let [asked, looked] = [new AbortController(), new AbortController()];

  const values = () => [...params.querySelectorAll("input")].map((each) => each.value);

  function fill() {
    const wanted = parameters(text.value);
    while (params.children.length > wanted) params.lastElementChild.remove();
    while (params.children.length < wanted) {
      const n = params.children.length;
      params.append(field(`%${n}`, h("input", { size: 8, prop: { value: query.getAll("param")[n] ?? "" }, on: { input: () => changed() } })));
    }
  }

  function changed() {
    fill();
    check();
  }

  const check = settled(async () => {
    asked.abort();
    asked = new AbortController();
    look.cancel();
    const filter = text.value.trim();
    try {
      const said = await get(`${at}/explain`, { filter, param: values() }, asked.signal);
      agree(filter, said);
    } catch (error) {
      if (error.name !== "AbortError") refuse(error);
    }
  }, QUIET_MS);

  function agree(filter, said) {
    const alternatives = said.normal_form.alternatives;
    text.setAttribute("aria-invalid", "false");
    verdict.replaceChildren(
      h("div", { class: "row" }, badge(t.workbench.parses, "good"), h("code", { text: said.canonical || t.workbench.everything })),
      ...said.warnings.map((each) => h("p", { class: "warn-text", text: each })),
      filter
        ? h(
            "details",
            {},
            h("summary", { text: t.workbench.normal(alternatives.length) }),
            h("ul", { class: "alternatives" }, alternatives.map((each) => h("li", {}, h("code", { text: each.filter }), h("small", { class: "dim", text: Object.entries(each.sets).map(([name, set]) => `${name} ∈ ${set}`).join(";  ") }), each.verify.length ? h("small", { class: "dim", text: t.workbench.verify(each.verify.join(" AND ")) }) : null))),
            said.tree.length > 1 ? h("pre", { text: said.tree.join("\n") }) : null,
          )
        : null,
    );
    enable(true);
    coming.follow(filter, values());
    look();
  }

  function refuse(error) {
    text.setAttribute("aria-invalid", "true");
    verdict.replaceChildren(h("div", { class: "row" }, badge(t.workbench.wrong, "bad")), h("pre", { class: "caret", text: error.message }));
    enable(false);
    coming.stop();
  }

  function enable(is) {
    for (const each of [subscribe, shell, program]) each.disabled = !is;
  }

  const look = settled(async () => {
    looked.abort();
    looked = new AbortController();
    past.setAttribute("aria-busy", "true");
    try {
      const found = await get(`${at}/backtest`, { filter: text.value.trim(), param: values(), from: span.value, sample: 25 }, looked.signal);
      coming.seed(found.sample);
      past.replaceChildren(
        h("p", { class: "result" }, h("b", { text: t.workbench.matched(count(found.matched), count(found.events)) }), " ", h("span", { class: "dim", text: `${percent(found.matched / found.events)} · ${ms(found.took_ms)}${found.complete ? "" : ` · ${t.workbench.partly}`}` })),
        timeline(found.timeline) ?? "",
        h("div", { class: "spreads" }, found.attributes.map((each) => distribution(each))),
      );
    } catch (error) {
      if (error.name !== "AbortError") past.replaceChildren(problem(error));
    }
    past.removeAttribute("aria-busy");
  }, BACKTEST_MS);

  /** Why an event that was picked matches. */
  async function explain(event) {
    const said = await attempt(() => get(`${at}/explain`, { filter: text.value.trim(), param: values(), event: JSON.stringify(event) }));
    if (said) chosen.replaceChildren(card(t.explain.title, verdicts(said.event), h("pre", { text: JSON.stringify(event, null, 1) })));
  }

  function join(said) {
    const before = text.value.trim();
    const without = before.replace(/(?:\s+AND\s+)?\([^()]*\)\s*INSIDE\s+(?:CIRCLE|BOX|POLYGON)\s*\([^()]*\)$/i, "");
    text.value = without ? `${/\bOR\b/i.test(without) && !/^\(.*\)$/.test(without) ? `(${without})` : without} AND ${said}` : said;
    changed();
  }

  function ask() {
    const [description, url] = [h("input", { maxlength: 200 }), h("input", { type: "url", placeholder: "https://example.com/in" })];
    const from = h("select", {}, h("option", { value: "now", text: t.subscribe.now }), h("option", { value: "beginning", text: t.subscribe.beginning }));
    const said = h("div");
    const form = h(
      "form",
      {
        class: "card ask",
        on: {
          submit: async (event) => {
            event.preventDefault();
            const body = { filter: text.value.trim(), params: values(), description: description.value, from: from.value };
            if (url.value) body.deliver = { webhook: { url: url.value } };
            try {
              const made = await call("POST", `${at}/subscriptions`, { body });
              const secret = made.deliver?.webhook?.secret;
              if (secret) secrets.set(made.id, secret);
              location.hash = `#/subscriptions/${part(made.id)}`;
            } catch (error) {
              said.replaceChildren(problem(error));
            }
          },
        },
      },
      h("h2", { text: t.subscribe.title }),
      h("code", { text: text.value.trim() || t.workbench.everything }),
      field(t.subscribe.description, description),
      field(t.subscribe.from, from),
      field(t.subscribe.webhook, url, t.subscribe.webhookHint),
      said,
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary", text: t.subscribe.make }), button(t.app.cancel, () => dialog.replaceChildren())),
    );
    dialog.replaceChildren(form);
    description.focus();
  }

  text.addEventListener("input", changed);
  span.addEventListener("change", () => look());
  signal.addEventListener("abort", () => [check, look].forEach((each) => each.cancel()));
  const mayKeep = me.known || me.role !== "consumer";
  add(
    into,
    h(
      "div",
      { class: "bench" },
      h(
        "section",
        { class: "card editor" },
        field(t.workbench.filter, text),
        params,
        verdict,
        h("div", { class: "row actions" }, mayKeep ? subscribe : null, shell, program),
        h("p", { class: "attributes dim" }, t.workbench.attributes, " ", Object.entries(service.schema).map(([name, type]) => [button(name, () => insert(name), { class: "chip", title: typeof type === "string" ? type : JSON.stringify(type) }), " "])),
        dialog,
      ),
      h("section", { class: "card" }, h("div", { class: "row spread" }, h("h2", { text: t.workbench.past }), span), past),
      h("section", { class: "card live" }, h("h2", { text: t.workbench.now }), coming.node, chosen),
    ),
  );

  function insert(name) {
    const [begin, end] = [text.selectionStart, text.selectionEnd];
    const said = /^[A-Za-z_]\w*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
    text.setRangeText(`${said} `, begin, end, "end");
    text.focus();
    changed();
  }

  say(verdict, t.workbench.checking);
  changed();
}

/** What each predicate says of an event, and which of them decided. */
export function verdicts(event) {
  return h(
    "div",
    { class: "verdicts" },
    h("p", {}, badge(event.matches ? t.explain.matches : t.explain.not, event.matches ? "good" : "bad"), event.degree !== 0 && event.degree !== 1 ? ` ${t.explain.degree(event.degree.toFixed(3))}` : "", ...event.violations.map((each) => h("span", { class: "warn-text", text: ` ${each}` }))),
    h(
      "table",
      { class: "plain" },
      h("tbody", {}, event.predicates.map((each) => h("tr", {}, h("td", {}, badge(t.explain.truths[each.truth], { true: "good", false: "bad" }[each.truth] ?? "warn")), h("td", {}, h("code", { text: each.predicate })), h("td", { class: "dim", text: Object.entries(each.values).map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join(", ") }), h("td", { text: each.decided ? t.explain.decided : "" })))),
    ),
  );
}
