/** Durable subscriptions: state, filter and live changes of each, and why an event matches. */

import { call, every, get, part, secrets } from "../api.js";
import { sparkline } from "../charts.js";
import { add, badge, button, card, field, h, keyed, pairs, put, say, debounced } from "../dom.js";
import { ago, clipped, clock, count, moment, rate, size } from "../format.js";
import { write } from "../json.js";
import { attempt, copy, problem } from "../notices.js";
import { comparedWith, isNumeric, parameters, reaches, reachOf, slider } from "../sliders.js";
import { t } from "../texts.js";
import { verdicts } from "../workbench.js";

const POLL_INTERVAL_MS = 2000;
const SURE_MS = 5000;
const LETTERS_MS = 10_000;
const RECENT_MS = 5000;

export async function show(page) {
  return page.parts.length ? one(page) : list(page);
}

/** Return the events per second since the previous response; null if there was none. */
class Rates {
  constructor() {
    this.before = new Map();
    this.series = new Map();
  }

  of({ id, delivered }, now = performance.now()) {
    const old = this.before.get(id);
    this.before.set(id, { delivered, now });
    const found = old && delivered >= old.delivered ? ((delivered - old.delivered) * 1000) / (now - old.now) : null;
    const kept = [...(this.series.get(id) ?? []), found].slice(-60);
    this.series.set(id, kept);
    return { now: found, kept };
  }
}

/** Return where a subscription is delivered: a URL or a topic; undefined if consumers fetch its events. */
const address = ({ deliver }) => {
  const target = Object.values(deliver === "pull" ? {} : deliver)[0];
  return target?.url ?? (target?.topic ? `${mode({ deliver })} ${target.connection}/${target.topic}` : undefined);
};
const mode = ({ deliver }) => (deliver === "pull" ? t.subscription.pull : t.ways[Object.keys(deliver)[0]] ?? Object.keys(deliver)[0]);
const isWell = (each) => each.state === "active" && !each.attempts;

function state(each) {
  if (each.state !== "active") return badge(t.subscription.disabled, "bad");
  return each.attempts ? badge(t.subscription.failing(each.attempts), "warn") : badge(t.subscription.active, "good");
}

async function list({ into, query, signal }) {
  const [rows, empty, total] = [h("tbody"), h("p", { class: "dim", text: t.subscription.none, hidden: true }), h("span", { class: "dim" })];
  const rates = new Rates();
  const service = query.get("service");
  const table = h("table", { class: "wide" });
  const find = h("input", { type: "search", placeholder: t.subscription.find, "aria-label": t.subscription.find, on: { input: () => draw() } });
  let [known, all] = [[], 0];
  const head = h("tr", {}, t.subscription.columns.map(([text, kind]) => h("th", { scope: "col", class: kind, text })));
  add(
    into,
    h("header", { class: "head" }, h("h1", { text: t.nav.subscriptions }), total, service ? h("a", { class: "chip", href: "#/subscriptions", text: `${service} ×`, "aria-label": t.subscription.all }) : null, h("span", { class: "grow" }), find),
    card("", empty, h("div", { class: "scroll" }, add(table, h("thead", {}, head), rows))),
  );
  const look = async () => {
    const found = await get("/v1/subscriptions", { max: 1000 }, signal).catch(() => null);
    if (found === null) return;
    known = found.subscriptions.map((each) => ({ ...each, rate: rates.of(each) })).sort((a, b) => Number(isWell(a)) - Number(isWell(b)));
    all = found.total;
    draw();
  };
  function draw() {
    const wanted = find.value.trim().toLowerCase();
    const says = (each) => `${each.id} ${each.service} ${told(each)} ${each.description}`.toLowerCase();
    const shown = known.filter((each) => (!service || each.service === service) && says(each).includes(wanted));
    say(total, shown.length === all ? count(all) : t.services.some(shown.length, all));
    say(empty, known.length ? t.subscription.noneSo : t.subscription.none);
    empty.hidden = shown.length > 0;
    table.hidden = !shown.length;
    keyed(rows, shown, (each) => each.id, row);
  }
  await look();
  void every(POLL_INTERVAL_MS, signal, look);
}

function row({ id, mine }) {
  const cells = Object.fromEntries(["service", "filter", "state", "mode", "lag", "rate", "connected"].map((each) => [each, h("span")]));
  const spark = sparkline(["c2"], t.subscription.rateOf(id), 64, 20);
  const name = mine ? h("a", { href: `#/subscriptions/${part(id)}` }) : h("span", { class: "dim", title: t.subscription.others });
  const below = h("small", { class: "dim" });
  const label = Object.fromEntries(t.subscription.columns.map(([text, , name]) => [name, text]));
  const cell = (name, kind, ...before) => h("td", { class: kind, data: { label: label[name] } }, before, cells[name]);
  return {
    node: h("tr", {}, h("th", { scope: "row", class: "filter-cell" }, name, below), cell("service", ""), cell("filter", "filter-cell"), cell("state", "filter-cell"), cell("mode", "dim"), cell("lag", "num"), cell("rate", "num latency", spark.node), cell("connected", "num")),
    update(each) {
      say(cells.service, each.service);
      say(name, each.description || id);
      say(below, each.description ? id : "");
      cells.filter.replaceChildren(h("code", { text: told(each) }));
      const wrong = each.reason ?? (each.last_error ? t.subscription.failed(each.last_error.detail, ago(each.last_error.at)) : "");
      cells.state.replaceChildren(state(each), wrong ? h("small", { class: "dim", text: clipped(wrong, 80), title: wrong }) : "");
      say(cells.mode, mode(each));
      say(cells.lag, each.lag === null ? "–" : size(each.lag));
      say(cells.rate, rate(each.rate.now));
      say(cells.connected, count(each.connected));
      spark.update([each.rate.kept]);
    },
  };
}

/** Return a filter with its parameters filled in, for reading. */
export function told({ filter, params }) {
  if (!filter.trim()) return t.workbench.everything;
  return filter.replace(/'(?:[^']|'')*'|%(\d{1,2})/g, (all, n) => (n === undefined || params[n] === undefined ? all : String(params[n])));
}

// One subscription ---------------------------------------------------------------------------

async function one({ into, parts, signal }) {
  const path = `/v1/subscriptions/${part(parts[0])}`;
  let record = await get(`${path}/status`, {}, signal);
  const schema = await get(`/v1/services/${part(record.service)}`, {}, signal).then((found) => found.schema, () => ({}));
  const rates = new Rates();
  const [head, title, id, secret] = [h("span"), h("h1"), h("span", { class: "dim" }), secrets.get(record.id)];
  const facts = Object.fromEntries(["mode", "lag", "delivered", "connected", "attempts", "version", "changed", "description"].map((each) => [each, h("span")]));
  Object.assign(facts, { rate: h("b"), lastError: h("span", { class: "bad-text" }), cursor: button("", () => copy(record.cursor, t.workbench.copied), { class: "chip", title: t.subscription.copyCursor }) });
  // These nodes are updated in place, so that focus and selection stay.
  const told_ = pairs([
    [t.subscription.service, h("a", { href: `#/services/${part(record.service)}`, text: record.service })],
    [t.subscription.mode, facts.mode],
    [t.subscription.lag, facts.lag],
    [t.subscription.rate, h("span", { class: "row" }, facts.rate, facts.delivered)],
    [t.subscription.connected, facts.connected],
    [t.subscription.attempts, facts.attempts],
    [t.subscription.lastError, facts.lastError],
    [t.subscription.cursor, facts.cursor],
    [t.subscription.version, facts.version],
    [t.subscription.changed, facts.changed],
    [t.subscribe.description, facts.description],
  ]);
  const spark = sparkline(["c2"], t.subscription.rateOf(record.id), 240, 40);
  const reason = h("p", { class: "problem", role: "alert", hidden: true });
  const enable = button(t.subscription.enable, () => attempt(() => call("POST", `${path}/enable`), t.subscription.enabled).then(look), { hidden: true });
  const remove = button(t.subscription.remove, () => gone(), { class: "danger" });
  let isSure = false;

  function gone() {
    if (!isSure) {
      isSure = true;
      say(remove, t.subscription.sure);
      setTimeout(() => ((isSure = false), say(remove, t.subscription.remove)), SURE_MS);
      return;
    }
    void attempt(() => call("DELETE", path).then(() => true), t.subscription.removed).then((is) => is && (location.hash = "#/subscriptions"));
  }

  function tell() {
    say(title, record.description || record.id);
    say(id, record.description ? record.id : "");
    head.replaceChildren(state(record));
    reason.hidden = !record.reason;
    say(reason, record.reason);
    enable.hidden = record.state === "active";
    const flow = rates.of(record);
    spark.update([flow.kept]);
    say(facts.mode, address(record) ?? mode(record));
    say(facts.lag, record.lag === null || record.lag === undefined ? "–" : size(record.lag));
    say(facts.rate, rate(flow.now));
    say(facts.delivered, t.subscription.delivered(count(record.delivered)));
    say(facts.connected, count(record.connected));
    say(facts.attempts, t.subscription.next(record.attempts, record.retry_at ? moment(record.retry_at) : "–"));
    say(facts.lastError, record.last_error ? t.subscription.failed(record.last_error.detail, ago(record.last_error.at)) : "");
    say(facts.cursor, record.cursor ? `${record.cursor.slice(0, 18)}…` : "–");
    facts.cursor.disabled = !record.cursor;
    say(facts.version, record.version);
    say(facts.changed, t.ago(ago(record.changed_at)));
    say(facts.description, record.description);
    for (const [fact, is] of [[facts.attempts, record.attempts], [facts.lastError, record.last_error], [facts.description, record.description]]) {
      for (const each of [fact.parentElement, fact.parentElement.previousElementSibling]) each.hidden = !is;
    }
  }

  async function look() {
    const found = await get(`${path}/status`, {}, signal).catch((error) => (error.status === 404 ? error : null));
    if (found === null) return;
    if (found instanceof Error) return say(reason, found.message), void (reason.hidden = false);
    const isOther = found.version !== record.version;
    record = found;
    tell();
    if (isOther) wanted.fill(); // another client has changed it
  }

  const change = async (said) => {
    const done = await attempt(() => call("PATCH", path, { body: { ...said, version: record.version } }), t.subscription.done);
    if (done) record = { ...record, ...done };
    else await look();
    tell();
    return Boolean(done);
  };
  const wanted = asks(() => record, schema, change, signal);

  add(
    into,
    h("header", { class: "head" }, title, id, head, h("span", { class: "grow" }), enable, remove),
    reason,
    secret ? card(t.subscription.secret, h("p", { class: "dim", text: t.subscription.secretWhy }), h("div", { class: "row" }, h("code", { text: secret }), button(t.workbench.copy, () => copy(secret, t.workbench.copied)))) : null,
    h("div", { class: "columns" }, card(t.subscription.how, spark.node, told_), card(t.subscription.asks, wanted.node), explaining(path, () => record, signal), record.deliver === "pull" ? null : letters(path, signal)),
  );
  tell();
  void every(POLL_INTERVAL_MS, signal, look);
}

/** The form of filter and parameters. `fill` shows the current ones, unless the user is editing. */
function asks(record, schema, change, signal) {
  const text = h("textarea", { rows: 2, class: "filter", spellcheck: "false", on: { input: () => offer(typed()) } });
  const params = h("div", { class: "sliders params" });
  const typed = () => [...params.querySelectorAll("[data-param]")].map((each) => (each.type === "number" ? Number(each.value) : each.value));
  // Parameters of an unsaved filter are saved together with it.
  const send = debounced(() => text.value === record().filter && change({ params: typed() }), 300);
  let [moved, known] = [[], new Map()];
  /** The shown parameters, and the value range of each attribute in recent events, for the sliders. */
  const offer = (values) => {
    moved = Array.from({ length: parameters(text.value) }, (_, n) => parameter(n, values[n] ?? "", comparedWith(text.value, n, schema), send));
    params.replaceChildren(...moved.map(({ node }) => node));
    reach();
  };
  const reach = () => moved.forEach((each) => each.reach(reachOf(known, each.of)));
  const save = button(t.subscription.save, () => change({ filter: text.value, params: typed() }).then((is) => is && offer(record().params)));
  const keys = h("select", {}, h("option", { value: "", text: "–" }), Object.keys(schema).map((name) => h("option", { value: name, text: name })));
  const every_ = h("input", { size: 6, placeholder: t.subscription.everyExample });
  const description = h("input", { maxlength: 200 });
  const bench = h("a", { text: t.subscription.bench });
  const node = h(
    "div",
    {},
    field(t.workbench.filter, text),
    params,
    h("details", {}, h("summary", { text: t.subscription.more }), field(t.subscription.every, every_, t.subscription.everyHint), field(t.subscription.key, keys), field(t.subscribe.description, description), button(t.subscription.save, () => change({ every: every_.value || null, key: every_.value ? keys.value || null : null, description: description.value }))),
    h("div", { class: "row" }, save, bench),
  );
  function fill() {
    const now = record();
    put(bench, "href", `#/services/${part(now.service)}/workbench?${new URLSearchParams([["filter", now.filter], ...now.params.map((each) => ["param", String(each)])])}`);
    if (node.contains(document.activeElement)) return;
    text.value = now.filter;
    offer(now.params);
    [every_.value, keys.value, description.value] = [now.every ?? "", now.key ?? "", now.description];
  }
  fill();
  const lately = { filter: record().filter, param: record().params.map(String), from: "1h", sample: 0, max: 2000 };
  if (parameters(lately.filter)) void get(`/v1/services/${part(record().service)}/backtest`, lately, signal).then((found) => ((known = reaches(found.attributes)), reach()), () => {});
  return { node, fill };
}

/** Create a field, and a slider if the parameter is a number. */
function parameter(n, value, of, send) {
  const number_ = Number(value);
  const isExact = Number.isFinite(number_) && (!Number.isInteger(number_) || Number.isSafeInteger(number_));
  if (!isNumeric(of) || typeof value === "boolean" || value === "" || !isExact) return { node: field(`%${n}`, h("input", { data: { param: n }, prop: { value: String(value) }, on: { change: send } })), of, reach: () => {} };
  const box = h("input", { type: "number", step: "any", data: { param: n }, size: 7, "aria-label": `%${n}`, prop: { value: number_ }, on: { input: send } });
  const made = slider(n, box, send);
  return { node: h("div", { class: "slider" }, h("span", { class: "label", text: `%${n}` }), made.node, box), of, reach: made.reach };
}

/** Explain why an event matches or not: a recent one, or one that the user enters. */
function explaining(path, record, signal) {
  const given = h("textarea", { rows: 3, class: "filter", spellcheck: "false", placeholder: t.explain.placeholder, "aria-label": t.explain.event });
  const recent = h("select", { "aria-label": t.explain.recent }, h("option", { value: "", text: t.explain.recent }));
  const answer = h("div");
  const ask = async () => {
    try {
      const said = await get(`${path}/explain`, { event: given.value.trim() || undefined }, signal);
      answer.replaceChildren(said.event ? verdicts(said.event) : h("pre", { text: said.tree.join("\n") }), h("details", {}, h("summary", { text: t.explain.index }), h("pre", { text: typeof said.index === "string" ? said.index : write(said.index, 1) })));
    } catch (error) {
      if (!signal.aborted) answer.replaceChildren(problem(error));
    }
  };
  let asked = -Infinity;
  const fill = async () => {
    if (performance.now() - asked < RECENT_MS) return;
    asked = performance.now();
    const found = await get(`/v1/services/${part(record().service)}/backtest`, { from: "1h", sample: 20, max: 1000 }, signal).catch(() => null);
    if (found) recent.replaceChildren(recent.firstElementChild, ...found.sample.map((each) => h("option", { value: write(each), text: `${clock(each._time)} ${clipped(write(Object.fromEntries(Object.entries(each).filter(([name]) => !name.startsWith("_")))), 80)}` })));
  };
  // Filled before the user opens it: browsers do not extend an open list.
  for (const near of ["pointerenter", "focus"]) recent.addEventListener(near, fill);
  void fill();
  recent.addEventListener("change", () => ((given.value = recent.value), void ask()));
  return card(t.explain.title, recent, given, h("div", { class: "row" }, button(t.explain.ask, ask)), answer);
}

/** Show the dead letters of a webhook. */
function letters(path, signal) {
  const [rows, none, said] = [h("ul", { class: "letters" }), h("p", { class: "dim", text: t.letters.none }), h("div", { role: "status" })];
  const look = async () => {
    const found = await get(`${path}/dead-letters`, { max: 100 }, signal).catch(() => null);
    if (found === null) return;
    none.hidden = found.dead_letters.length > 0;
    all.disabled = !found.dead_letters.length;
    keyed(rows, found.dead_letters, (each) => String(each.id), letter);
  };
  const send = async (ids) => {
    const done = await attempt(() => call("POST", `${path}/dead-letters/redeliver`, { body: { ids } }));
    if (done) say(said, t.letters.sent(done.delivered.length, done.failed.length + done.untried.length, done.failed[0]?.error));
    await look();
  };
  const all = button(t.letters.all, () => send("all"), { disabled: true });
  const letter = (each) => ({
    node: h("li", {}, h("div", { class: "row spread letter" }, h("div", {}, h("b", { text: `#${each.id}` }), " ", h("span", { class: "bad-text", text: each.error }), h("small", { class: "dim", text: t.letters.at(each.attempts, moment(each.at)) })), button(t.letters.again, () => send([each.id]), { class: "small" })), h("details", {}, h("summary", { text: t.letters.event }), h("pre", { text: write(each.event, 1) }))),
    update: () => {},
  });
  void every(LETTERS_MS, signal, look);
  return card(t.letters.title, h("div", { class: "row" }, all, said), none, rows);
}
