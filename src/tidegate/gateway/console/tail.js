/**
 * Live events as a table, JSON or a map. The number of shown events is bounded, and they are drawn at most ten times a
 * second, so that the page stays responsive at any rate.
 */

import { follow, part } from "./api.js";
import { button, h, say } from "./dom.js";
import { clock, count, rate, value } from "./format.js";
import { parse, write } from "./json.js";
import { map, places } from "./map.js";
import { t } from "./texts.js";

export const ROWS = 100;
const FRAME_MS = 100;
const LINES = 40;
const RATE_MS = 2000;

/** A table that is updated in place: cells stay, their texts change. Tab reaches one row; arrow keys move between rows. */
function table(columns) {
  const body = h("tbody", { on: { keydown } });
  const rows = [];
  /** The event of a row at pointer-down: the row may show another one at the click. */
  let pressed = null;
  const head = h("tr", {}, [t.tail.time, ...columns].map((text) => h("th", { scope: "col", text })));

  function keydown(event) {
    const row = event.target;
    const to = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (to) {
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    } else if (event.key === "Enter" || event.key === " ") row.click();
    else return;
    event.preventDefault();
  }

  return {
    node: h("div", { class: "scroll tall", role: "region", "aria-label": t.tail.table }, h("table", { class: "plain tail" }, h("caption", { class: "unseen", text: t.tail.pick }), h("thead", {}, head), body)),
    draw(events, picked, chosen) {
      while (rows.length < events.length) {
        const cells = [...columns, ""].map(() => h("td"));
        const row = { node: h("tr", { tabindex: rows.length ? "-1" : "0", on: { pointerdown: () => (pressed = row.event), click: (event) => picked((event.detail && pressed) || row.event) } }, cells), cells, event: null };
        rows.push(row);
        body.append(row.node);
      }
      while (rows.length > events.length) rows.pop().node.remove();
      if (rows.length && !rows.some((each) => each.node.tabIndex === 0)) rows[0].node.tabIndex = 0;
      events.forEach((event, n) => {
        const row = rows[n];
        row.node.classList.toggle("chosen", event === chosen);
        if (row.event === event) return;
        row.event = event;
        say(row.cells[0], clock(event._time));
        columns.forEach((column, at) => say(row.cells[at + 1], value(event[column])));
      });
    },
  };
}

function lines() {
  const text = h("pre", { class: "scroll tall json", tabindex: "0", "aria-label": t.tail.json });
  return { node: text, draw: (events) => say(text, events.slice(0, LINES).map((each) => write(each)).join("\n")) };
}

/**
 * A view of the live events of a service that match a filter.
 * @param {{service: {name: string, schema: object}, signal: AbortSignal, picked: (event: object) => void,
 *   area: (predicate: string) => void}} how
 */
export function tail({ service, signal, picked, area }) {
  const columns = Object.keys(service.schema);
  const where = places(service.schema);
  const views = { table: table(columns), json: lines(), ...(where ? { map: map(where, area) } : {}) };
  const state = h("span", { class: "dim", role: "status" });
  const speed = h("b", { text: rate(0) });
  const stage = h("div", { class: "stage" });
  const none = h("p", { class: "dim", text: t.tail.none, hidden: true });
  const tabs = h("div", { class: "switch", role: "group", "aria-label": t.tail.views });
  const hold = button(t.tail.pause, () => pauseOrGo(), { "aria-pressed": "false" });
  let [shown, isHeld, following, wanted] = ["table", false, null, null];
  let [events, total, isDirty, drawnAt] = [[], 0, false, 0];
  /** `counted`: time and total at each drawing of the last two seconds, for the rate. */
  let [counted, chosen] = [[], null];

  for (const name of Object.keys(views)) tabs.append(button(t.tail[name], () => choose(name), { data: { view: name } }));

  function choosing(event) {
    [chosen, isDirty] = [event, true];
    picked(event);
  }

  function choose(name) {
    shown = name;
    for (const each of tabs.children) each.setAttribute("aria-pressed", String(each.dataset.view === name));
    stage.replaceChildren(views[name].node);
    views[name].shown?.();
    isDirty = true;
  }

  function pauseOrGo() {
    isHeld = !isHeld;
    hold.setAttribute("aria-pressed", String(isHeld));
    say(hold, isHeld ? t.tail.go : t.tail.pause);
    isDirty = true;
  }

  function take(block) {
    if (block.event === "gap") return say(state, t.tail.gap);
    if (block.event !== "message") return;
    total += 1;
    if (isHeld) return;
    events.unshift(parse(block.data));
    if (events.length > ROWS * 2) events.length = ROWS;
    views.map?.take(events[0]);
    isDirty = true;
  }

  function frame(now) {
    if (signal.aborted) return;
    if (now - drawnAt >= FRAME_MS) {
      counted = [...counted.filter(([at]) => at > now - RATE_MS), [now, total]];
      const [[since, before]] = counted;
      say(speed, rate(now > since ? ((total - before) * 1000) / (now - since) : 0));
      speed.title = count(total);
      if (isDirty) {
        views[shown].draw(events.slice(0, ROWS), choosing, chosen);
        none.hidden = events.length > 0 || wanted === null || shown === "map";
        isDirty = false;
      }
      drawnAt = now;
    }
    requestAnimationFrame(frame);
  }

  /** Subscribe while the page is visible: a hidden page must not load the gateway. */
  async function listen() {
    following?.abort();
    const mine = (following = new AbortController());
    if (wanted === null) return;
    if (document.hidden) {
      say(state, t.tail.away);
      return;
    }
    counted = [];
    await follow(`/v1/services/${part(service.name)}/events`, { ...wanted, format: "plain" }, {
      signal: mine.signal,
      on: take,
      state: (now, problem) => {
        state.className = now === "open" ? "dim" : "bad-text";
        say(state, now === "ended" ? problem.message : t.tail[now]);
      },
    });
  }

  choose("table");
  requestAnimationFrame(frame);
  const turned = () => void listen();
  document.addEventListener("visibilitychange", turned);
  signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", turned);
    following?.abort();
  });
  return {
    node: h("div", { class: "tail-box" }, h("div", { class: "row" }, tabs, hold, speed, state), none, stage),
    /** Show the events of another filter, from now on. */
    follow(filter, params) {
      wanted = { filter, param: params };
      [events, total, isDirty] = [[], 0, true];
      views.map?.clear();
      views.map?.ask(filter);
      void listen();
    },
    /** Add past events, newest first, after the live ones. */
    seed(before) {
      const shown = new Set(events.map((each) => each._id));
      const older = before.filter((each) => !shown.has(each._id));
      events = [...events, ...older].slice(0, ROWS);
      for (const each of older.toReversed()) views.map?.take(each);
      isDirty = true;
    },
    stop() {
      [wanted, isDirty] = [null, true];
      following?.abort();
      say(state, t.tail.stopped);
    },
  };
}
