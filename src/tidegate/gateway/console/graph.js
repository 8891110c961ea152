/** The graph of streams, services and subscribers: columns by distance from a raw stream, rates on the edges. */

import { mayHaveDurable } from "./api.js";
import { put, s, say } from "./dom.js";
import { byName, clipped, count, rate } from "./format.js";
import { severity } from "./live.js";
import { t } from "./texts.js";

const [WIDE, TALL, GAP, ACROSS, MARGIN] = [184, 46, 18, 92, 10];

/** Return the nodes and edges of an overview, before the layout. */
export function drawn(overview) {
  const services = new Map(overview.services.map((each) => [each.name, each]));
  const names = new Set([...services.keys(), ...overview.streams.map((each) => each.name)]);
  const depths = new Map();
  const depth = (name) => {
    const service = services.get(name);
    if (!service) return 0;
    if (!depths.has(name)) {
      depths.set(name, 1); // stops the recursion at a service that reads itself
      depths.set(name, 1 + Math.max(0, ...service.inputs.map(depth)));
    }
    return depths.get(name);
  };
  const nodes = [];
  const edges = [];
  for (const each of overview.streams) nodes.push({ id: `stream:${each.name}`, kind: "stream", name: each.name, note: each.source, column: 0 });
  for (const each of services.values()) {
    const status = each.status;
    const note = each.origin ? t.overview.origin(each.origin) : status?.state === "running" ? t.overview.p99(status.latency_p99_ms) : (t.states[status?.state] ?? status?.state ?? t.states.never);
    nodes.push({ id: `service:${each.name}`, kind: "service", name: each.name, note, column: depth(each.name), level: severity(each) });
    for (const input of each.inputs.filter((name) => names.has(name))) {
      const from = services.has(input) ? `service:${input}` : `stream:${input}`;
      edges.push({ id: `${from}>${each.name}`, from, to: `service:${each.name}`, per_s: each.inputs.length === 1 ? status?.read_per_s : (status?.read_per_s ?? 0) / each.inputs.length, about: each.inputs.length > 1 });
    }
  }
  for (const each of services.values()) {
    const listening = Object.values(each.subscribers).reduce((a, b) => a + b, 0);
    if (!listening && !each.durable.count) continue;
    const kinds = Object.entries(each.subscribers).map(([kind, n]) => `${count(n)} ${t.ways[kind] ?? kind}`);
    if (each.durable.count && listening) kinds.push(t.overview.durable(each.durable.count));
    if (!listening && each.durable.lag) kinds.push(t.overview.lagging(each.durable.lag));
    const id = `subscribers:${each.name}`;
    nodes.push({ id, kind: "subscribers", name: listening ? t.overview.subscribers(listening) : t.overview.away(each.durable.count), note: kinds.join(", "), column: depth(each.name) + 1, of: each.name, level: each.behind ? 1 : 0 });
    edges.push({ id: `${each.name}>${id}`, from: `service:${each.name}`, to: id, per_s: each.sent_per_s });
  }
  return { nodes, edges };
}

/** Limit a large graph to the services with problems or the most traffic, and their inputs. */
export function chief(overview, most) {
  if (overview.services.length <= most) return overview;
  const carries = (each) => (each.status?.written_per_s ?? 0) + (each.sent_per_s ?? 0);
  const ranked = [...overview.services].sort((a, b) => severity(b) - severity(a) || carries(b) - carries(a) || byName(a.name, b.name));
  const services = ranked.slice(0, most);
  const read = new Set(services.flatMap((each) => each.inputs));
  return { streams: overview.streams.filter((each) => read.has(each.name)), services };
}

/** Lay out the nodes: columns from left to right, each sorted to reduce edge crossings. */
export function placed({ nodes, edges }) {
  const all = [];
  for (const each of nodes) (all[each.column] ??= []).push(each);
  const columns = all.filter(Boolean); // a caller that may see no stream has no first column
  const places = new Map();
  const tallest = Math.max(1, ...columns.map((each) => each.length));
  const height = tallest * (TALL + GAP) - GAP;
  const into = Map.groupBy(edges, (each) => each.to);
  columns.forEach((column, x) => {
    const middle = (node) => {
      const from = (into.get(node.id) ?? []).map((edge) => places.get(edge.from)?.y ?? 0);
      return from.length ? from.reduce((a, b) => a + b, 0) / from.length : Number.MAX_VALUE; // nodes without visible inputs come last
    };
    const middles = new Map(column.map((each) => [each, middle(each)]));
    if (x > 0) column.sort((a, b) => middles.get(a) - middles.get(b) || byName(a.name, b.name));
    const offset = (height - (column.length * (TALL + GAP) - GAP)) / 2;
    column.forEach((node, y) => places.set(node.id, { x: x * (WIDE + ACROSS), y: offset + y * (TALL + GAP) }));
  });
  return { places, width: Math.max(1, columns.length) * (WIDE + ACROSS) - ACROSS + 2 * MARGIN, height: height + 2 * MARGIN };
}

/** Create the graph and its `update` function. Subscribers are links only for callers that may have subscriptions. */
export function graph(me) {
  const [lines, labels, boxes] = [s("g"), s("g"), s("g")];
  const svg = s("svg", { class: "graph", role: "group", "aria-label": t.overview.graph }, s("g", { transform: `translate(${MARGIN} ${MARGIN})` }, lines, labels, boxes));
  const known = new Map();
  let shape = "";
  return {
    node: svg,
    update(overview) {
      const what = drawn(overview);
      const now = JSON.stringify([what.nodes.map((each) => [each.id, each.column]), what.edges.map((each) => each.id)]);
      if (now !== shape) {
        shape = now;
        build(what, { svg, lines, labels, boxes, known, isKept: mayHaveDurable(me) });
      }
      for (const each of what.nodes) known.get(each.id).update(each);
      for (const each of what.edges) known.get(each.id).update(each);
    },
  };
}

function build(what, { svg, lines, labels, boxes, known, isKept }) {
  const { places, width, height } = placed(what);
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) svg.setAttribute(name, String(value));
  known.clear();
  const edges = what.edges.map((each) => edge(each, places, known));
  lines.replaceChildren(...edges.map(({ line }) => line));
  labels.replaceChildren(...edges.map(({ label }) => label));
  boxes.replaceChildren(...what.nodes.map((each) => box(each, places.get(each.id), known, isKept)));
}

/** Return the position of a rate on an edge: in the gap before its end, clear of boxes and other rates. */
function between([x1, y1], [x2, y2], bend) {
  const on = (t_, a, b, c, d) => (1 - t_) ** 3 * a + 3 * (1 - t_) ** 2 * t_ * b + 3 * (1 - t_) * t_ ** 2 * c + t_ ** 3 * d;
  const all = Array.from({ length: 51 }, (_, n) => n / 50);
  const found = all.find((each) => on(each, x1, x1 + bend, x2 - bend, x2) >= x2 - ACROSS / 2) ?? 1;
  return [on(found, x1, x1 + bend, x2 - bend, x2), on(found, y1, y1, y2, y2)];
}

function edge(each, places, known) {
  const [from, to] = [places.get(each.from), places.get(each.to)];
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + TALL / 2, to.x, to.y + TALL / 2];
  const bend = Math.max(40, (x2 - x1) / 2);
  const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const flow = s("path", { class: "flow", d, fill: "none" });
  const [x, y] = between([x1, y1], [x2, y2], bend);
  const label = s("text", { class: "rate", x, y: y + 4, "text-anchor": "middle" });
  known.set(each.id, {
    update(now) {
      say(label, now.per_s ? `${now.about ? "~" : ""}${rate(now.per_s)}` : "");
      put(flow, "class", now.per_s > 0 ? "flow runs" : "flow");
      flow.style.strokeWidth = String(1 + Math.min(4, Math.log10(1 + (now.per_s || 0))));
    },
  });
  return { line: s("g", { class: "edge" }, s("path", { class: "way", d, fill: "none" }), flow), label };
}

function box(each, place, known, isKept) {
  const name = s("text", { class: "name", x: 14, y: 19 });
  const note = s("text", { class: "note", x: 14, y: 35 });
  const shape = s("rect", { width: WIDE, height: TALL, rx: 8 });
  const title = s("title");
  const inside = [title, shape, s("rect", { class: "stripe", width: 4, height: TALL - 16, x: 0, y: 8, rx: 2 }), name, note];
  const at = { transform: `translate(${place.x} ${place.y})` };
  const to = each.kind === "service" ? `#/services/${encodeURIComponent(each.name)}` : each.kind === "subscribers" && isKept ? `#/subscriptions?service=${encodeURIComponent(each.of)}` : null;
  const node = to === null ? s("g", at, inside) : s("a", { ...at, href: to }, inside);
  known.set(each.id, {
    update(now) {
      put(node, "class", `node ${now.kind} level${now.level ?? 0}`);
      say(name, clipped(now.name, 22));
      say(note, clipped(now.note ?? "", 28));
      say(title, `${now.name} · ${now.note ?? ""}`);
    },
  });
  return node;
}

