/** API keys: create, rotate and revoke them; and the newest records of the audit log. */

import { call, every, get, part } from "../api.js";
import { add, badge, button, card, field, h, keyed, say } from "../dom.js";
import { ago, clock, moment } from "../format.js";
import { attempt, copy, problem } from "../notices.js";
import { t } from "../texts.js";

const POLL_INTERVAL_MS = 3000;
const SURE_MS = 5000;
const SHOWN_RECORDS = 50;
const COLOURS = { good: "good", expired: "warn", revoked: "bad", ok: "good", refused: "warn", failed: "bad" };

export async function show({ into, me, signal }) {
  const [rows, records, wrong, made] = [h("tbody"), h("tbody"), h("div"), h("div")];
  const none = h("p", { class: "dim", text: t.keys.auditNone, hidden: true });
  const overlap = h("select", {}, ["24h", "1h", "7d", "0s"].map((each) => h("option", { value: each, text: each })));
  const look = async () => {
    try {
      const { keys } = await get("/v1/keys", {}, signal);
      keyed(rows, keys.reverse(), (each) => each.id, (each) => row(each, { overlap, told, look }));
      if (me.has.includes("_audit")) tell(records, none, await latest(signal));
      wrong.replaceChildren();
    } catch (error) {
      if (!signal.aborted) wrong.replaceChildren(problem(error));
    }
  };
  /** Show a secret until the user confirms that it is copied. */
  const told = (key) => {
    const done = button(t.keys.hide, () => made.replaceChildren());
    const secret = h("code", { text: key.secret, data: { secret: key.id } });
    made.replaceChildren(card(t.keys.secretOf(key.name), h("p", { class: "dim", text: t.keys.secretWhy }), h("div", { class: "row" }, secret, button(t.workbench.copy, () => copy(key.secret, t.workbench.copied)), done)));
    made.scrollIntoView({ block: "nearest" });
  };
  add(
    into,
    h("header", { class: "head" }, h("h1", { text: t.nav.keys })),
    h("p", { class: "lead dim", text: t.keys.lead }),
    wrong,
    made,
    card("", h("div", { class: "row" }, field(t.keys.overlap, overlap)), h("div", { class: "scroll" }, table(t.keys.columns, rows))),
    form(async (key) => (told(key), await look())),
    me.has.includes("_audit") ? card(t.keys.audit, h("p", { class: "dim", text: t.keys.auditWhy }), none, h("div", { class: "scroll" }, table(t.keys.auditColumns, records))) : null,
  );
  await look();
  void every(POLL_INTERVAL_MS, signal, look);
}

function table(columns, body) {
  return h("table", { class: "wide" }, h("thead", {}, h("tr", {}, columns.map((text) => h("th", { scope: "col", text })))), body);
}

/** The form for a new key. */
function form(done) {
  const input = (props) => h("input", { autocomplete: "off", spellcheck: "false", ...props });
  const name = input({ required: true, maxlength: "200", data: { field: "name" } });
  const [services, expires] = [input({ data: { field: "services" } }), input({ data: { field: "expires" }, size: "8" })];
  const role = h("select", { data: { field: "role" } }, Object.entries(t.roles).map(([value, text]) => h("option", { value, text })));
  const submit = async (event) => {
    event.preventDefault();
    const names = services.value.split(",").map((each) => each.trim()).filter(Boolean);
    const body = { name: name.value.trim(), role: role.value, services: names.length ? names : null, expires: expires.value.trim() || null };
    const key = await attempt(() => call("POST", "/v1/keys", { body }));
    if (!key) return;
    event.target.reset();
    await done(key);
  };
  const fields = [field(t.keys.name, name, t.keys.nameHint), field(t.keys.role, role), field(t.keys.services, services, t.keys.servicesHint), field(t.keys.expires, expires, t.keys.expiresHint)];
  return h("form", { class: "card", data: { form: "key" }, on: { submit } }, h("h2", { text: t.keys.create }), h("div", { class: "row fields" }, fields), h("button", { type: "submit", class: "primary", text: t.keys.make }));
}

function row({ id }, { overlap, told, look }) {
  const [name, below, role, services, prefix, used, expires, state] = Array.from({ length: 8 }, () => h("span"));
  let [key, isSure] = [null, false];
  const rotate = button(t.keys.rotate, async () => {
    const made = await attempt(() => call("POST", `/v1/keys/${part(id)}/rotate`, { body: { overlap: overlap.value } }));
    if (made) told(made);
    await look();
  });
  const revoke = button(t.keys.revoke, async () => {
    if (!isSure) {
      isSure = true;
      say(revoke, t.keys.sure);
      setTimeout(() => ((isSure = false), say(revoke, t.keys.revoke)), SURE_MS);
      return;
    }
    await attempt(() => call("DELETE", `/v1/keys/${part(id)}`), t.keys.revoked(key.name));
    await look();
  }, { class: "danger" });
  const cell = (n, ...children) => h("td", { data: { label: t.keys.columns[n] } }, children);
  return {
    node: h("tr", { data: { key: id } }, h("th", { scope: "row" }, name, h("br"), h("small", { class: "dim" }, below)), cell(1, role), cell(2, services), cell(3, prefix), cell(4, used), cell(5, expires), cell(6, state), cell(7, h("div", { class: "row" }, rotate, revoke))),
    update(each) {
      key = each;
      say(name, each.name);
      say(below, id);
      say(role, t.roles[each.role] ?? each.role);
      say(services, each.services === null ? t.keys.all : each.services.join(", ") || "–");
      say(prefix, `tg_${each.prefix}_…`);
      say(used, each.last_used_at ? t.keys.used(ago(each.last_used_at), each.last_used_from) : t.keys.never);
      say(expires, each.expires_at ? moment(each.expires_at) : t.keys.never);
      state.replaceChildren(badge(t.keys.states[each.state] ?? each.state, COLOURS[each.state]), each.previous_until ? h("small", { class: "dim", text: t.keys.overlapping(moment(each.previous_until)) }) : "");
      for (const node of [rotate, revoke]) node.disabled = each.state === "revoked";
    },
  };
}

/** Show the newest records of the audit log. */
async function latest(signal) {
  let [cursor, found] = [null, []];
  for (;;) {
    const page = await get("/v1/services/_audit/events", { format: "plain", max: 1000, ...(cursor === null ? { from: "1h" } : { cursor }) }, signal);
    found = [...found, ...page.events].slice(-SHOWN_RECORDS);
    if (page.events.length < 1000) return found.sort((a, b) => (a.time < b.time ? 1 : -1));
    cursor = page.cursor;
  }
}

function tell(records, none, found) {
  none.hidden = found.length > 0;
  records.replaceChildren(
    ...found.map((each) => {
      const result = [badge(each.result, COLOURS[each.result]), each.count > 1 ? h("small", { class: "dim", text: t.keys.times(each.count) }) : ""];
      const cells = [clock(each.time), each.name ?? t.keys.nobody, each.address, each.action, [h("span", { text: each.target ?? "–" }), each.detail ? h("small", { class: "dim", text: ` ${each.detail}` }) : ""], result];
      return h("tr", {}, cells.map((value, n) => h("td", { data: { label: t.keys.auditColumns[n] } }, value)));
    }),
  );
}
