/**
 * Events as they come: a table, JSON, or a map. However many come, what is shown is bounded, and drawn once in a frame,
 * at most ten times a second, so that the page stays at hand.
 */

import { follow, part } from "./api.js";
import { button, h, say } from "./dom.js";
import { clock, count, rate, value } from "./format.js";
import { map, places } from "./map.js";
import { t } from "./texts.js";

export const ROWS = 100;
const FRAME_MS = 100;
const LINES = 40;

/** A table that is drawn again in place: cells stay, their texts change. */
function table(columns) {
  const body = h("tbody");
  const rows = [];
  const head = h("tr", {}, [t.tail.time, ...columns].map((text) => h("th", { scope: "col", text })));
  return {
    node: h("div", { class: "scroll tall", tabindex: "0", "aria-label": t.tail.table }, h("table", { class: "plain tail" }, h("thead", {}, head), body)),
    draw(events, picked) {
      while (rows.length < events.length) {
        const cells = [...columns, ""].map(() => h("td"));
        const row = { node: h("tr", { on: { click: () => picked(row.event) } }, cells), cells, event: null };
        rows.push(row);
        body.append(row.node);
      }
      while (rows.length > events.length) rows.pop().node.remove();
      events.forEach((event, n) => {
        const row = rows[n];
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
  return { node: text, draw: (events) => say(text, events.slice(0, LINES).map((each) => JSON.stringify(each)).join("\n")) };
}

/**
 * What comes of a service that matches a filter.
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
  const tabs = h("div", { class: "switch", role: "tablist", "aria-label": t.tail.views });
  const hold = button(t.tail.pause, () => pauseOrGo(), { "aria-pressed": "false" });
  let [shown, isHeld, following] = ["table", false, null];
  let [events, arrived, total, isDirty, drawnAt] = [[], [], 0, false, 0];

  for (const name of Object.keys(views)) tabs.append(button(t.tail[name], () => choose(name), { role: "tab", data: { view: name } }));

  function choose(name) {
    shown = name;
    for (const each of tabs.children) each.setAttribute("aria-selected", String(each.dataset.view === name));
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
    arrived.push(performance.now());
    if (isHeld) return;
    events.unshift(JSON.parse(block.data));
    if (events.length > ROWS * 2) events.length = ROWS;
    views.map?.take(events[0]);
    isDirty = true;
  }

  function frame(now) {
    if (signal.aborted) return;
    if (now - drawnAt >= FRAME_MS) {
      const since = now - 2000;
      const first = arrived.findIndex((each) => each >= since);
      arrived = first < 0 ? [] : arrived.slice(first);
      say(speed, rate(arrived.length / 2));
      speed.title = count(total);
      if (isDirty) {
        views[shown].draw(events.slice(0, ROWS), picked);
        isDirty = false;
      }
      drawnAt = now;
    }
    requestAnimationFrame(frame);
  }

  choose("table");
  requestAnimationFrame(frame);
  signal.addEventListener("abort", () => following?.abort());
  return {
    node: h("div", { class: "tail-box" }, h("div", { class: "row" }, tabs, hold, speed, state), stage),
    /** Follow another filter, from now on. */
    follow(filter, params) {
      following?.abort();
      following = new AbortController();
      [events, arrived, total, isDirty] = [[], [], 0, true];
      views.map?.clear();
      void follow(
        `/v1/services/${part(service.name)}/events`,
        { filter, param: params, format: "plain" },
        {
          signal: following.signal,
          on: take,
          state: (now, problem) => {
            state.className = now === "open" ? "dim" : "bad-text";
            say(state, now === "ended" ? problem.message : t.tail[now]);
          },
        },
      );
    },
    /** Show what came before, where nothing has come yet; the newest first. */
    seed(before) {
      if (events.length) return;
      events = [...before];
      for (const each of before.toReversed()) views.map?.take(each);
      isDirty = true;
    },
    stop() {
      following?.abort();
      say(state, t.tail.stopped);
    },
  };
}
