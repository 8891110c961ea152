/** The filter workbench: explains a filter while it is typed, and shows its past and live matches. */

import { RETRY_INTERVAL_MS, call, get, isTransient, mayHaveDurable, part, pause, secrets } from "./api.js";
import { flat, named } from "./attributes.js";
import { distribution, timeline } from "./charts.js";
import { client, curl } from "./code.js";
import { add, badge, button, card, field, h, say, debounced } from "./dom.js";
import { count, ms, percent } from "./format.js";
import { write } from "./json.js";
import { attempt, copy, problem } from "./notices.js";
import { comparedWith, isNumeric, parameters, reaches, reachOf, slider } from "./sliders.js";
import { tail } from "./tail.js";
import { t } from "./texts.js";

const QUIET_MS = 250;
const BACKTEST_MS = 450;
const SPANS = ["1m", "5m", "15m", "1h", "beginning"];

const AREA = /^(?:(.*\S)\s+AND\s+)?\([^()]*\)\s*INSIDE\s+(?:CIRCLE|BOX|POLYGON)\s*\([^()]*\)$/is;
const REST = /\s*(?:\bWITH\s+THEME\s*\((?:'(?:[^']|'')*'|[^()'])*\)\s*)?(?:\bTHRESHOLD\s+[\w.%]+\s*)?$/i;

/** True if a filter has an OR outside parentheses. */
function isLoose(text) {
  let [depth, bare] = [0, ""];
  for (const each of text.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"/g, "_")) {
    if (each === ")") depth -= 1;
    if (depth === 0) bare += each;
    if (each === "(") depth += 1;
  }
  return /\bOR\b/i.test(bare);
}

/** Return a filter with an area predicate: replaces the previous area; themes and threshold stay at the end. */
export function within(filter, area) {
  const rest = REST.exec(filter)[0];
  const asked = filter.slice(0, filter.length - rest.length);
  const [is, before] = AREA.exec(asked) ?? [];
  const kept = is === undefined || isLoose(before ?? "") ? asked : (before ?? "");
  const all = kept.trim() ? `${isLoose(kept) ? `(${kept})` : kept} AND ${area}` : area;
  return `${all}${rest.trim() ? ` ${rest.trim()}` : ""}`;
}

export function workbench({ into, service, signal, query, me }) {
  const at = `/v1/services/${part(service.name)}`;
  const text = h("textarea", { rows: 2, spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-describedby": "verdict", prop: { value: query.get("filter") ?? "" }, placeholder: t.workbench.placeholder, class: "filter" });
  const params = h("div", { class: "sliders params" });
  const verdict = h("div", { id: "verdict", class: "verdict", role: "status", "aria-live": "polite" });
  const span = h("select", { "aria-label": t.workbench.span }, SPANS.map((each) => h("option", { value: each, text: t.spans[each], selected: each === "5m" })));
  const past = h("div", { class: "past" });
  const chosen = h("div");
  const coming = tail({ service, signal, picked: (event) => explain(event), area: (said) => join(said) });
  const subscribe = button(t.workbench.subscribe, () => attempt(() => make({})), { class: "primary" });
  const options = button(t.workbench.options, () => ask(), { "aria-label": t.workbench.optionsLabel });
  const shell = button(t.workbench.curl, () => copy(curl(service.name, text.value.trim(), values()), t.workbench.copied));
  const program = button(t.workbench.python, () => copy(client(service.name, text.value.trim(), values()), t.workbench.copied));
  const dialog = h("div");
  let [asked, looked] = [new AbortController(), new AbortController()];
  /** The last valid filter, and its parameters. */
  let agreed = null;
  /** The selected event; it is explained again after each change of the filter. */
  let picked = null;
  /** True if the normal form is open: by default on wide screens. */
  let isWide = matchMedia("(min-width: 900px)").matches;
  /** The value range of each attribute in the backtest, for the sliders. */
  let known = new Map();
  const moved = [];

  const values = () => [...params.querySelectorAll("[data-param]")].map((each) => each.value);

  function fill() {
    const wanted = parameters(text.value);
    while (moved.length > wanted) moved.pop().node.remove();
    while (moved.length < wanted) moved.push(parameter(moved.length));
    moved.forEach((each, n) => {
      const of = comparedWith(text.value, n, service.schema);
      each.slider.node.hidden = of === undefined || !isNumeric(of);
      each.slider.reach(reachOf(known, of));
    });
  }

  function parameter(n) {
    const box = h("input", { size: 8, id: `param-${n}`, data: { param: n }, prop: { value: query.getAll("param")[n] ?? "" }, on: { input: () => changed() } });
    const made = slider(n, box, () => changed());
    const node = h("div", { class: "slider" }, h("label", { class: "label", for: box.id, text: `%${n}` }), made.node, box);
    params.append(node);
    return { node, slider: made };
  }

  function changed() {
    fill();
    look.cancel();
    looked.abort();
    check();
  }

  const check = debounced(async () => {
    asked.abort();
    asked = new AbortController();
    const filter = text.value.trim();
    try {
      const said = await get(`${at}/explain`, { filter, param: values() }, asked.signal);
      agree(filter, said);
      if (filter !== (query.get("filter") ?? "") || values().join() !== query.getAll("param").join()) remember(filter);
    } catch (error) {
      if (error.name !== "AbortError") refuse(error, asked.signal);
    }
  }, QUIET_MS);

  /** Write the filter into the address, so that it can be bookmarked and shared. */
  function remember(filter) {
    query = new URLSearchParams([...(filter ? [["filter", filter]] : []), ...values().map((each) => ["param", each])]);
    history.replaceState(null, "", `#/services/${part(service.name)}/workbench${query.size ? `?${query}` : ""}`);
  }

  function agree(filter, said) {
    const alternatives = said.normal_form.alternatives;
    text.setAttribute("aria-invalid", "false");
    verdict.replaceChildren(
      h("div", { class: "row" }, badge(t.workbench.parses, "good"), h("code", { text: said.canonical || t.workbench.everything })),
      ...said.warnings.map((each) => h("p", { class: "warn-text", text: each })),
      filter
        ? h(
            "details",
            { open: isWide, on: { toggle: (event) => (isWide = event.target.open) } },
            h("summary", { text: t.workbench.normal(alternatives.length) }),
            h("ul", { class: "alternatives" }, alternatives.map((each) => h("li", {}, h("code", { text: each.filter }), h("small", { class: "dim", text: Object.entries(each.sets).map(([name, set]) => `${name} ∈ ${set}`).join(";  ") }), each.verify.length ? h("small", { class: "dim", text: t.workbench.verify(each.verify.join(" AND ")) }) : null))),
            said.tree.length > 1 ? h("pre", { class: "tree dim", text: said.tree.join("\n") }) : null,
          )
        : "",
    );
    enable(true);
    if (picked !== null) void explain(picked);
    agreed = { filter, param: values() };
    coming.follow(filter, agreed.param);
    look();
  }

  /** Show the problem of the filter, or that the gateway can't be reached to check it. */
  function refuse(error, mine) {
    const isFilter = [400, 413, 422].includes(error.status);
    text.setAttribute("aria-invalid", String(isFilter));
    verdict.replaceChildren(isFilter ? h("div", { class: "row" }, badge(t.workbench.wrong, "bad")) : "", isTransient(error) ? h("p", { class: "problem", text: t.workbench.unchecked(error.message) }) : h("pre", { class: "caret", tabindex: "0", text: error.message }));
    enable(false);
    past.removeAttribute("aria-busy");
    if (!past.childElementCount && isFilter) past.append(h("p", { class: "dim", text: t.workbench.unparsed }));
    past.classList.toggle("stale", past.querySelector("figure") !== null);
    coming.stop();
    if (isTransient(error)) void again(mine, check);
  }

  /** Retry after a moment, unless the filter has changed meanwhile. */
  async function again(mine, what) {
    await pause(RETRY_INTERVAL_MS, mine);
    if (!mine.aborted && !signal.aborted) what();
  }

  function enable(is) {
    for (const each of [subscribe, options, shell, program]) each.disabled = !is;
    past.classList.toggle("stale", !is);
  }

  const look = debounced(async () => {
    looked.abort();
    looked = new AbortController();
    past.setAttribute("aria-busy", "true");
    try {
      const found = await get(`${at}/backtest`, { ...agreed, from: span.value, sample: 25 }, looked.signal);
      coming.seed(found.sample);
      known = reaches(found.attributes);
      fill();
      past.replaceChildren(
        h("p", { class: "result" }, h("b", { text: t.workbench.matched(count(found.matched), count(found.events)) }), " ", h("span", { class: "dim", text: `${percent(found.matched / found.events)} · ${ms(found.took_ms)}${found.complete ? "" : ` · ${t.workbench.partly}`}` })),
        timeline(found.timeline) ?? "",
        h("div", { class: "spreads" }, found.attributes.map((each) => distribution(each))),
      );
    } catch (error) {
      if (error.name === "AbortError") return;
      past.replaceChildren(problem(error));
      if (isTransient(error)) void again(looked.signal, look);
    }
    past.removeAttribute("aria-busy");
  }, BACKTEST_MS);

  /** Explain why the selected event matches. */
  async function explain(event) {
    picked = event;
    const said = await attempt(() => get(`${at}/explain`, { filter: text.value.trim(), param: values(), event: write(event) }));
    if (said && picked === event) chosen.replaceChildren(card(t.explain.title, verdicts(said.event), h("pre", { text: write(event, 1) })));
  }

  function join(said) {
    text.value = within(text.value.trim(), said);
    changed();
  }

  /** Create a subscription with the filter, and open its page. */
  async function make(more) {
    const made = await call("POST", `${at}/subscriptions`, { body: { filter: text.value.trim(), params: values(), ...more } });
    const secret = made.deliver?.webhook?.secret;
    if (secret) secrets.set(made.id, secret);
    location.hash = `#/subscriptions/${part(made.id)}`;
  }

  function ask() {
    const [description, url] = [h("input", { maxlength: 200 }), h("input", { type: "url", placeholder: t.subscribe.webhookExample })];
    const from = h("select", {}, h("option", { value: "now", text: t.subscribe.now }), h("option", { value: "beginning", text: t.subscribe.beginning }));
    const said = h("div");
    const form = h(
      "form",
      {
        class: "card ask",
        on: {
          submit: async (event) => {
            event.preventDefault();
            try {
              await make({ description: description.value, from: from.value, ...(url.value ? { deliver: { webhook: { url: url.value } } } : {}) });
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
  span.addEventListener("change", () => agreed !== null && look());
  signal.addEventListener("abort", () => {
    for (const each of [check, look]) each.cancel();
    for (const each of [asked, looked]) each.abort();
  });
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
        h("div", { class: "row actions" }, ...(mayHaveDurable(me) ? [subscribe, options] : []), shell, program),
        h("p", { class: "attributes dim" }, t.workbench.attributes, " ", flat(service.schema).map(({ path, type }) => [button(path.join("."), () => insert(named(path)), { class: "chip", title: type }), " "])),
        dialog,
      ),
      h("section", { class: "card" }, h("div", { class: "row spread" }, h("h2", { text: t.workbench.past }), span), past),
      h("section", { class: "card live" }, h("h2", { text: t.workbench.now }), coming.node, chosen),
    ),
  );

  function insert(name) {
    text.setRangeText(`${name} `, text.selectionStart, text.selectionEnd, "end");
    text.focus();
    changed();
  }

  say(verdict, t.workbench.checking);
  changed();
}

/** Show the result of each predicate for an event, and which of them decided. */
export function verdicts(event) {
  return h(
    "div",
    { class: "verdicts" },
    h("p", {}, badge(event.matches ? t.explain.matches : t.explain.not, event.matches ? "good" : "bad"), event.degree !== 0 && event.degree !== 1 ? ` ${t.explain.degree(event.degree.toFixed(3))}` : "", ...event.violations.map((each) => h("span", { class: "warn-text", text: ` ${each}` }))),
    h(
      "table",
      { class: "plain" },
      h("tbody", {}, event.predicates.map((each) => h("tr", {}, h("td", {}, badge(t.explain.truths[each.truth], { true: "good", false: "bad" }[each.truth] ?? "warn")), h("td", {}, h("code", { text: each.predicate })), h("td", { class: "dim", text: Object.entries(each.values).map(([name, value]) => `${name} = ${write(value)}`).join(", ") }), h("td", { text: each.decided ? t.explain.decided : "" })))),
    ),
  );
}
