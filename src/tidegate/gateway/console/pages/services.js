/** The list of services, the page of one service, and its workbench. */

import { every, get, mayHaveDurable, part } from "../api.js";
import { notation } from "../attributes.js";
import { timeChart } from "../charts.js";
import { add, badge, card, h, keyed, pairs, say } from "../dom.js";
import { byName, count, ms, rate, size } from "../format.js";
import { write } from "../json.js";
import { live, severity, troubles } from "../live.js";
import { t } from "../texts.js";
import { workbench } from "../workbench.js";

const QUALITY_MS = 10_000;

export async function show(page) {
  if (!page.parts.length) return list(page);
  const [name, tab] = page.parts;
  const service = await get(`/v1/services/${part(name)}`, {}, page.signal);
  const at = `#/services/${part(name)}`;
  const state = h("span", { class: "row" });
  add(
    page.into,
    h("header", { class: "head" }, h("h1", { text: name }), state, h("span", { class: "dim", text: t.service.version(service.version) })),
    service.definition.description ? h("p", { class: "lead", text: service.definition.description }) : null,
    h("nav", { class: "tabs", "aria-label": t.service.tabs }, tabLink(at, t.service.about, tab === undefined), tabLink(`${at}/workbench`, t.service.workbench, tab === "workbench")),
  );
  const stop = live.listen((now) => {
    const found = now.service(name);
    if (!found) return;
    const wrong = troubles(found);
    const isDown = wrong.some(({ what }) => ["never", "state", "silent"].includes(what));
    const first = found.origin ? [badge(t.overview.origin(found.origin))] : isDown ? [] : [badge(t.states.running, "good")];
    state.replaceChildren(...first, ...wrong.map(({ what, value, kind }) => badge(t.troubles[what](value), kind)));
  });
  page.signal.addEventListener("abort", stop);
  if (tab === "workbench") workbench({ ...page, service });
  else about({ ...page, service });
}

const tabLink = (href, text, is) => h("a", { href, text, "aria-current": is ? "page" : null });

function list({ into, signal }) {
  const [rows, total, none] = [h("ul", { class: "cards" }), h("span", { class: "dim", role: "status" }), h("p", { class: "dim", hidden: true })];
  const find = h("input", { type: "search", placeholder: t.services.find, "aria-label": t.services.find, on: { input: () => draw(live) } });
  const draw = ({ overview }) => {
    if (overview === null) return;
    const wanted = find.value.trim().toLowerCase();
    const services = overview.services.filter((each) => `${each.name} ${each.description}`.toLowerCase().includes(wanted));
    services.sort((a, b) => severity(b) - severity(a) || byName(a.name, b.name));
    say(total, wanted ? t.services.some(services.length, overview.services.length) : count(services.length));
    say(none, wanted ? t.services.none : t.overview.empty);
    none.hidden = services.length > 0;
    keyed(rows, services, (each) => each.name, listed);
  };
  add(into, h("header", { class: "head" }, h("h1", { text: t.nav.services }), total, h("span", { class: "grow" }), find), none, rows);
  signal.addEventListener("abort", live.listen(draw));
}

function listed({ name }) {
  const [mark, rates, text] = [h("i", { "aria-hidden": "true" }), h("span", { class: "dim" }), h("p", { class: "dim" })];
  const at = `#/services/${part(name)}`;
  return {
    node: h("li", { class: "card" }, h("h2", {}, mark, h("a", { href: at, text: name })), text, h("footer", {}, rates, h("a", { href: `${at}/workbench`, text: t.service.workbench }))),
    update(service) {
      mark.className = `dot ${["good", "warn", "bad"][severity(service)]}`;
      say(text, service.description || (service.inputs.length ? t.service.from(service.inputs.join(", ")) : ""));
      say(rates, t.service.rates(rate(service.status?.read_per_s), rate(service.status?.written_per_s)));
    },
  };
}

// One service -------------------------------------------------------------------------------

function about({ into, service, signal, me }) {
  const { name, definition } = service;
  const quantiles = t.service.quantiles.map(([kind, name_]) => ({ name: name_, class: kind }));
  const charts = [
    [timeChart(t.service.throughput, [{ name: t.service.in, class: "c1" }, { name: t.service.out, class: "c2" }, { name: t.service.sent, class: "c3" }], rate), ["in", "out", "sent"]],
    [timeChart(t.service.engine, quantiles, ms), ["p50", "p99"]],
    [timeChart(t.service.processing, quantiles, ms), ["r50", "r99"]],
    [timeChart(t.service.dispatch, quantiles, ms), ["d50", "d99"]],
    [timeChart(t.service.lag, [{ name: t.service.behind, class: "c1" }], size), ["lag"]],
  ];
  const counts = eventCounts();
  const [mode, why, errors] = [h("b"), h("p", { class: "dim bounded" }), h("p", { class: "problem", hidden: true })];
  add(
    into,
    h("div", { class: "charts" }, charts.map(([each]) => each.node)),
    h(
      "div",
      { class: "columns" },
      card(t.service.pipeline, errors, h("p", {}, mode), why, steps(definition)),
      card(t.service.quality, quality(name, signal)),
      card(t.service.counts, counts.node),
      card(t.service.schema, schema(service)),
      card(t.service.more, more(service, me)),
    ),
  );
  const stop = live.listen((now) => {
    const found = now.service(name);
    const kept = now.history.get(name) ?? [];
    const moments = kept.map((each) => each.at);
    for (const [chart, names] of charts) chart.update(moments, names.map((each) => now.series(name, each)));
    const status = found?.status;
    say(mode, status ? (t.modes[status.mode] ?? status.mode) : found?.origin ? t.overview.origin(found.origin) : t.states.never);
    say(why, status?.reason);
    counts.update(status);
    say(errors, status?.error);
    errors.hidden = !status?.error;
  });
  signal.addEventListener("abort", stop);
}

function steps(definition) {
  if (!definition.pipeline && !definition.from) return null;
  const inputs = [definition.from].flat().join(", ");
  const all = [[t.service.reads, inputs], ...(definition.pipeline ?? []).map((each) => step(each))];
  if (definition.constraints) all.push([t.service.constraints, Object.entries(definition.constraints).map(([name, rest]) => `${name} ${rest}`).join("\n")]);
  if (definition.mask) all.push([t.service.mask, Object.entries(definition.mask).map(([name, how]) => `${name}: ${how}`).join("\n")]);
  return h("ol", { class: "steps" }, all.map(([name, text]) => h("li", {}, h("b", { text: name }), text ? h("pre", { text }) : null)));
}

function step(each) {
  if (typeof each === "string") return [each, ""];
  const [[name, how]] = Object.entries(each);
  if (typeof how !== "object" || how === null) return [name, String(how)];
  return [name, Object.entries(how).map(([key, value]) => `${key}: ${typeof value === "object" ? write(value) : value}`).join("\n")];
}

function schema({ schema: attributes, definition }) {
  const rows = Object.entries(attributes).map(([name, type]) =>
    h("tr", {}, h("th", { scope: "row" }, h("code", { text: name })), h("td", {}, h("code", { text: notation(type) })), h("td", {}, h("code", { text: definition.constraints?.[name] ?? "" }))),
  );
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, t.service.columns.map((text) => h("th", { scope: "col", text })))), h("tbody", {}, rows));
}

/** Flatten nested records to lines: `speed.slow: TRAPEZOID(0, 0, 15, 30)`. */
const listed_ = (of, above = "") => Object.entries(of).map(([name, value]) => (value !== null && typeof value === "object" && !Array.isArray(value) ? listed_(value, `${above}${name}.`) : `${above}${name}: ${typeof value === "string" ? value : write(value)}`)).join("\n");

function more({ definition, name }, me) {
  const list_ = (of) => (of ? [of].flat().join(", ") : null);
  const entries = [
    definition.themes && [t.service.themes, list_(definition.themes)],
    definition.categories && [t.service.categories, list_(definition.categories)],
    definition.properties && [t.service.properties, h("pre", { text: listed_(definition.properties) })],
    definition.terms && [t.service.terms, h("pre", { text: listed_(definition.terms) })],
    definition.on_violation && [t.service.violation, definition.on_violation],
    definition.access && [t.service.access, h("pre", { text: write(definition.access, 1) })],
    mayHaveDurable(me) && [t.nav.subscriptions, h("a", { href: `#/subscriptions?service=${part(name)}`, text: t.service.who })],
    me.role !== "consumer" && definition.from && [t.nav.quarantine, h("a", { href: `#/quarantine/services/${part(name)}`, text: t.service.refused })],
  ];
  return pairs(entries);
}

/** Show what became of the events that a service read. A count that is not known says so. */
function eventCounts() {
  const rows = t.service.outcomes.map(([key, title]) => ({ key, title, value: h("td", { class: "num", text: "–" }) }));
  const body = h("tbody", {}, rows.map((each) => h("tr", {}, h("th", { scope: "row", text: each.title }), each.value)));
  return {
    node: h("table", { class: "plain" }, body),
    update(status) {
      for (const { key, value } of rows) say(value, status ? (status[key] == null ? t.service.unknown : count(status[key])) : "–");
    },
  };
}

/** Show promised and measured quality; polled while the page is visible. */
function quality(name, signal) {
  const rows = t.metrics.map(([metric, title, said]) => ({ metric, said, promised: h("td", { class: "num", text: "–" }), measured: h("td", { class: "num", text: "–" }), verdict: h("td"), title }));
  const look = async () => {
    const found = await get(`/v1/services/${part(name)}/status`, {}, signal).catch(() => null);
    for (const each of rows) {
      const { promised, measured, verdict } = found?.quality[each.metric] ?? {};
      if (promised === undefined) continue;
      say(each.promised, promised === null ? "–" : each.said(promised));
      say(each.measured, measured === null ? "–" : each.said(measured));
      each.verdict.replaceChildren(verdict === null ? "" : badge(t.verdicts[verdict], { kept: "good", broken: "bad" }[verdict] ?? ""));
    }
  };
  void every(QUALITY_MS, signal, look);
  const body = h("tbody", {}, rows.map((each) => h("tr", {}, h("th", { scope: "row", text: each.title }), each.promised, each.measured, each.verdict)));
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, t.service.promises.map(([text, kind]) => h("th", { scope: "col", class: kind, text })))), body);
}
