/** The overview: problems first, then the graph, then a row per service. */

import { sparkline } from "../charts.js";
import { add, badge, button, card, h, keyed, put, say } from "../dom.js";
import { byName, clipped, compact, count, ms, msPair, rate, size } from "../format.js";
import { chief, graph } from "../graph.js";
import { live, severity, troubles } from "../live.js";
import { t } from "../texts.js";

const GRAPHED = 40;
/** The maximum number of services in the graph, unless the user asks for all. */

const to = (name) => `#/services/${encodeURIComponent(name)}`;

export function show({ into, me, signal }) {
  const figures = tiles();
  const bad = h("ul", { class: "troubles" });
  const well = h("p", { class: "well", text: t.overview.well });
  const picture = graph(me);
  const [some, fewer] = [h("span", { class: "dim" }), button(t.overview.every, () => ((isWhole = !isWhole), draw(live)), { class: "quiet" })];
  const partly = h("p", { class: "row", hidden: true }, some, fewer);
  const drawing = card(t.overview.graph, partly, h("div", { class: "scroll" }, picture.node));
  let isWhole = false;
  const rows = h("tbody");
  const empty = h("p", { class: "dim", text: t.overview.empty, hidden: true });
  const table = h(
    "table",
    { class: "services wide" },
    h("thead", {}, h("tr", {}, t.overview.columns.map(([name, kind]) => h("th", { class: kind, scope: "col", text: name })))),
    rows,
  );
  add(
    into,
    h("h1", { text: t.nav.overview }),
    figures.node,
    h("section", { "aria-label": t.overview.attention, class: "attention" }, bad, well),
    drawing,
    card(t.nav.services, empty, h("div", { class: "scroll" }, table)),
  );
  const draw = ({ overview }) => {
    if (overview === null) return;
    const services = [...overview.services].sort((a, b) => severity(b) - severity(a) || byName(a.name, b.name));
    const sources = overview.streams.filter((stream) => ["restarting", "silent"].includes(stream.status?.state));
    const failed = sources.map((stream) => ({ stream, service: stream, trouble: { what: "source", kind: "bad", value: stream.status.state, more: stream.status.error } }));
    const wrong = [...failed, ...services.flatMap((service) => troubles(service).map((trouble) => ({ service, trouble })))];
    figures.update(overview);
    keyed(bad, wrong, ({ service, trouble }) => `${service.name} ${trouble.what} ${trouble.what === "broken" ? trouble.value : ""}`, (each) => troubleRow(each, me));
    well.hidden = wrong.length > 0 || !services.length;
    empty.hidden = services.length > 0;
    table.hidden = !services.length;
    drawing.hidden = !services.length && !overview.streams.length;
    partly.hidden = services.length <= GRAPHED;
    say(some, isWhole ? "" : t.overview.some(GRAPHED, services.length));
    say(fewer, isWhole ? t.overview.few : t.overview.every);
    picture.update(isWhole ? overview : chief(overview, GRAPHED));
    keyed(rows, services, (each) => each.name, serviceRow);
  };
  signal.addEventListener("abort", live.listen(draw));
}

function tiles() {
  const values = Object.keys(t.overview.tiles).map((name) => [name, h("b", { text: "–" }), h("small", { class: "dim" })]);
  const node = h("div", { class: "tiles" }, values.map(([name, value, note]) => h("div", { class: "tile", data: { tile: name } }, h("span", { text: t.overview.tiles[name] }), value, note)));
  const set = (name, value, note = "") => values.filter((each) => each[0] === name).forEach((each) => (say(each[1], value), say(each[2], note)));
  return {
    node,
    update({ services, streams }) {
      const sum = (of) => services.reduce((all, each) => all + (of(each) ?? 0), 0);
      const own = services.filter((each) => !each.origin);
      const running = own.filter((each) => each.status?.state === "running" && !each.lost).length;
      const seen = new Set(services.map((each) => each.name));
      const isFirst = ({ inputs }) => !inputs.length || inputs.some((input) => !seen.has(input));
      set("running", `${running} / ${own.length}`, t.overview.streams(streams.length));
      set("in", rate(sum((each) => (isFirst(each) ? each.status?.read_per_s : 0))));
      set("out", rate(sum((each) => each.status?.written_per_s)));
      set("sent", rate(services.some((each) => each.sent_per_s !== null) ? sum((each) => each.sent_per_s) : null), t.overview.subscribers(sum((each) => Object.values(each.subscribers).reduce((a, b) => a + b, 0))));
      const worst = services.reduce((most, each) => ((each.status?.latency_p99_ms ?? -1) > (most?.status?.latency_p99_ms ?? -1) ? each : most), null);
      set("latency", ms(worst?.status?.latency_p99_ms), worst?.status?.latency_p99_ms != null ? worst.name : "");
      const refused = sum((each) => each.refused_per_s);
      set("quarantined", compact(sum((each) => each.status?.quarantined)), refused > 0 ? rate(refused) : "");
    },
  };
}

function troubleRow({ service, trouble, stream }, me) {
  const what = h("span");
  const more = h("small", { class: "dim" });
  const mark = h("i", { class: "dot", "aria-hidden": "true" });
  const path = encodeURIComponent(service.name);
  const where = { refusing: me.role !== "consumer" && [`#/quarantine/services/${path}`, t.nav.quarantine], failing: [`#/subscriptions?service=${path}`, t.nav.subscriptions], disabled: [`#/subscriptions?service=${path}`, t.nav.subscriptions] }[trouble.what];
  const name = stream ? h("b", { text: stream.name }) : h("a", { href: to(service.name), text: service.name });
  const node = h("li", {}, mark, name, what, more, where ? h("a", { href: where[0], text: where[1] }) : null);
  return {
    node,
    update({ trouble: now }) {
      put(mark, "class", `dot ${now.kind}`);
      say(what, t.troubles[now.what](now.value));
      say(more, clipped(now.more ?? ""));
      put(more, "title", now.more);
    },
  };
}

function serviceRow({ name }) {
  const state = h("span");
  const cells = Object.fromEntries(["mode", "in", "out", "engine", "dispatch", "lag", "subscribers", "quarantined"].map((each) => [each, h("span")]));
  const [engine, dispatch] = [t.overview.engine(name), t.overview.dispatch(name)].map((label) => sparkline(["p99", "p50"], label, 60));
  const [, ...labels] = t.overview.columns.map(([label]) => label);
  const cell = (n, kind, ...inside) => h("td", { class: kind, data: { label: labels[n] } }, ...inside);
  const node = h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: to(name), text: name })),
    cell(0, "", state),
    cell(1, "dim", cells.mode),
    cell(2, "num", cells.in),
    cell(3, "num", cells.out),
    cell(4, "num latency", engine.node, cells.engine),
    cell(5, "num latency", dispatch.node, cells.dispatch),
    cell(6, "num", cells.lag),
    cell(7, "num", cells.subscribers),
    cell(8, "num", cells.quarantined),
  );
  return {
    node,
    update(service) {
      const status = service.status;
      const level = severity(service);
      if (service.origin) state.replaceChildren(badge(t.overview.origin(service.origin)));
      else state.replaceChildren(badge(service.lost && status?.state === "running" ? t.states.lost : (t.states[status?.state] ?? status?.state ?? t.states.never), ["good", "warn", "bad"][level]));
      say(cells.mode, t.modes[status?.mode] ?? status?.mode ?? "");
      say(cells.in, rate(status?.read_per_s));
      say(cells.out, rate(status?.written_per_s));
      say(cells.engine, msPair(status?.latency_p50_ms, status?.latency_p99_ms));
      say(cells.dispatch, msPair(service.dispatch_p50_ms, service.dispatch_p99_ms));
      say(cells.lag, size(status?.behind_bytes));
      say(cells.subscribers, count(Object.values(service.subscribers).reduce((a, b) => a + b, 0)) + (service.behind ? t.overview.behind(service.behind, service.lag) : ""));
      say(cells.quarantined, count(status?.quarantined ?? 0));
      engine.update([live.series(name, "p99"), live.series(name, "p50")]);
      dispatch.update([live.series(name, "d99"), live.series(name, "d50")]);
    },
  };
}
