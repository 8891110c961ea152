/**
 * A map without tiles: a grid of degrees, the last positions of events, and an area that the user draws for a predicate.
 * It is a canvas, as there may be thousands of positions. The width of a degree of longitude is that at the map's centre.
 */

import { flat, isNumber, named, valueAt } from "./attributes.js";
import { button, h, say } from "./dom.js";
import { number } from "./format.js";
import { t } from "./texts.js";

const MAX_POINTS = 3000;
/** The newest positions, which are highlighted. */
const NEWEST = 25;
/** Metres per degree of latitude. */
const METRES = 111_195;
const PAIRS = [
  ["longitude", "latitude"],
  ["lon", "lat"],
  ["lng", "lat"],
  ["long", "lat"],
];

/** Return the paths of the longitude and latitude attributes in the same record of a schema; null if there are none. */
export function places(schema) {
  const numbers = flat(schema).filter(({ type }) => isNumber(type)).map(({ path }) => path);
  for (const [x, y] of PAIRS) {
    for (const path of numbers.filter((each) => each.at(-1).toLowerCase() === x)) {
      const beside = numbers.find((each) => each.at(-1).toLowerCase() === y && named(each.slice(0, -1)) === named(path.slice(0, -1)));
      if (beside) return { x: path, y: beside };
    }
  }
  return null;
}

const short = (n, digits = 5) => String(Number(n.toFixed(digits)));

/** Return a drawn area as a predicate of the filter language. */
export function predicate({ x, y }, area) {
  const of = `(${named(x)}, ${named(y)}) INSIDE`;
  if (area.kind === "circle") return `${of} CIRCLE(${short(area.at[0])}, ${short(area.at[1])}, ${Math.max(1, Math.round(area.metres))})`;
  if (area.kind === "box") {
    const [[x1, y1], [x2, y2]] = area.corners;
    return `${of} BOX(${[Math.min(x1, x2), Math.min(y1, y2), Math.max(x1, x2), Math.max(y1, y2)].map((each) => short(each)).join(", ")})`;
  }
  return `${of} POLYGON(${area.corners.map(([lon, lat]) => `${short(lon)} ${short(lat)}`).join(", ")})`;
}

const AREA = /\bINSIDE\s+(CIRCLE|BOX|POLYGON)\s*\(([^()]*)\)/i;

/** Return the area of a filter's predicate; null if it has none, or one with parameters. */
export function areaOf(filter) {
  const [, kind, inside] = AREA.exec(filter) ?? [];
  const numbers = (inside ?? "").split(/[\s,]+/).filter(Boolean).map(Number);
  if (kind === undefined || !numbers.every(Number.isFinite)) return null;
  const pairs = Array.from({ length: Math.floor(numbers.length / 2) }, (_, n) => numbers.slice(2 * n, 2 * n + 2));
  if (/circle/i.test(kind)) return numbers.length === 3 ? { kind: "circle", at: numbers.slice(0, 2), metres: numbers[2] } : null;
  if (/box/i.test(kind)) return numbers.length === 4 ? { kind: "box", corners: pairs } : null;
  return pairs.length > 2 && numbers.length % 2 === 0 ? { kind: "polygon", corners: pairs } : null;
}

/** Return the corners of an area's bounding box. */
function around(area) {
  if (area.kind !== "circle") return area.corners;
  const [[x, y], up] = [area.at, area.metres / METRES];
  const across = up / Math.max(0.05, Math.cos((y * Math.PI) / 180));
  return [[x - across, y - up], [x + across, y + up]];
}

/** Return the approximate distance of two positions in metres; precise enough for a city. */
export function distance([x1, y1], [x2, y2]) {
  const wide = Math.cos((((y1 + y2) / 2) * Math.PI) / 180);
  return Math.hypot((x2 - x1) * wide, y2 - y1) * METRES;
}

/** Return a round step in degrees that gives about `lines` grid lines in a span. */
export function step(span, lines) {
  const raw = span / lines;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
}

/** @param {{x: string[], y: string[]}} where the attributes @param {(predicate: string) => void} drawn */
export function map(where, drawn) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": t.map.label });
  const status = h("span", { class: "dim", role: "status" });
  /** `isFitted`: the map no longer follows the events, as it has enough positions, or the user has moved it. */
  let [middle, perPixel, points, isFitted] = [[0, 0], 0.5, [], false];
  let [tool, area, pull, corners] = ["move", null, null, []];
  const tools = h("div", { class: "switch", role: "group", "aria-label": t.map.tools });
  for (const each of ["move", "circle", "box", "polygon"]) tools.append(button(t.map[each], () => pick(each), { "aria-pressed": String(each === tool), data: { tool: each } }));
  /** The active pointers; two of them zoom. */
  const pointers = new Map();
  const use = button(t.map.use, () => drawn(predicate(where, area)), { class: "primary", disabled: true });
  const clear = button(t.map.clear, () => wipe(), { class: "quiet", disabled: true });
  const node = h(
    "div",
    { class: "map" },
    h("div", { class: "row" }, tools, button("+", () => zoom(0.6), { "aria-label": t.map.nearer }), button("−", () => zoom(1 / 0.6), { "aria-label": t.map.farther }), button(t.map.fit, () => fit()), use, clear, status),
    canvas,
  );

  const wide = () => Math.max(0.05, Math.cos((middle[1] * Math.PI) / 180));
  const size = () => [canvas.clientWidth || 600, canvas.clientHeight || 360];
  const at = ([x, y]) => [size()[0] / 2 + ((x - middle[0]) * wide()) / perPixel, size()[1] / 2 - (y - middle[1]) / perPixel];
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    return [middle[0] + ((event.clientX - box.left - size()[0] / 2) * perPixel) / wide(), middle[1] - (event.clientY - box.top - size()[1] / 2) * perPixel];
  };

  function pick(name_) {
    tool = name_;
    corners = [];
    pull = null;
    for (const each of tools.children) each.setAttribute("aria-pressed", String(each.dataset.tool === tool));
    say(status, t.map.hints[tool]);
    canvas.style.cursor = tool === "move" ? "grab" : "crosshair";
  }

  /** Zoom by a factor around a point. */
  function zoom(by, place = middle) {
    isFitted = true;
    const now = Math.max(1e-6, Math.min(1, perPixel * by));
    middle = place.map((each, n) => each + (middle[n] - each) * (now / perPixel));
    perPixel = now;
    paint();
  }

  function fit() {
    const corners_ = area === null ? [] : around(area);
    if (!points.length && !corners_.length) return;
    const xs = points.map((each) => each[0]).sort((a, b) => a - b);
    const ys = points.map((each) => each[1]).sort((a, b) => a - b);
    // Leaves out outliers, and includes the whole area.
    const ends = (sorted, n) => {
      const of = (share) => (sorted.length ? [sorted[Math.round((sorted.length - 1) * share)]] : []);
      const all = [...of(0.02), ...of(0.98), ...corners_.map((each) => each[n])];
      return [Math.min(...all), Math.max(...all)];
    };
    const [[west, east], [south, north]] = [ends(xs, 0), ends(ys, 1)];
    middle = [(west + east) / 2, (south + north) / 2];
    const [w, h_] = size();
    perPixel = Math.max(1e-5, ((east - west) * wide()) / (w * 0.85), (north - south) / (h_ * 0.85));
    isFitted = points.length > 20;
    paint();
  }

  function settle(made) {
    area = made;
    use.disabled = made === null;
    clear.disabled = made === null && !corners.length;
    say(status, made === null ? t.map.hints[tool] : predicate(where, made));
    paint();
  }

  /** Remove the drawn area. */
  function wipe() {
    corners = [];
    settle(null);
  }

  /** Undo: remove the last corner of a polygon, or any other area as a whole. */
  function undo() {
    if (tool !== "polygon" || !corners.length) return wipe();
    corners.pop();
    settle(corners.length > 2 ? { kind: "polygon", corners: [...corners] } : null);
  }

  /** Draw an area of half the map's size; without a pointer, the user moves the map under it. */
  function inTheMiddle() {
    const [w, h_] = size();
    const [across, up] = [((w / 4) * perPixel) / wide(), (h_ / 4) * perPixel];
    if (tool === "circle") settle({ kind: "circle", at: middle, metres: up * METRES });
    else settle({ kind: "box", corners: [[middle[0] - across, middle[1] - up], [middle[0] + across, middle[1] + up]] });
  }

  canvas.addEventListener("pointerdown", (event) => {
    isFitted = true;
    const place = under(event);
    pointers.set(event.pointerId, event);
    if (pointers.size > 1) {
      pull = null;
      return;
    }
    if (tool === "polygon") {
      corners.push(place);
      settle(corners.length > 2 ? { kind: "polygon", corners: [...corners] } : null);
      return;
    }
    canvas.setPointerCapture(event.pointerId);
    pull = { from: place, middle, at: [event.clientX, event.clientY] };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pointers.size > 1 && pointers.has(event.pointerId)) return pinch(event);
    if (pull === null) return;
    if (tool === "move") {
      middle = [pull.middle[0] - ((event.clientX - pull.at[0]) * perPixel) / wide(), pull.middle[1] + (event.clientY - pull.at[1]) * perPixel];
      paint();
    } else if (tool === "circle") settle({ kind: "circle", at: pull.from, metres: distance(pull.from, under(event)) });
    else settle({ kind: "box", corners: [pull.from, under(event)] });
  });
  for (const ending of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(ending, (event) => ((pull = null), pointers.delete(event.pointerId)));
  canvas.addEventListener("wheel", (event) => (event.preventDefault(), zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, under(event))), { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const by = perPixel * 40;
    const moves = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, by], ArrowDown: [0, -by] };
    isFitted = isFitted || event.key !== "Tab";
    if (event.key === "Enter" && (tool === "circle" || tool === "box")) inTheMiddle();
    else if (event.key === "+" || event.key === "=") zoom(0.8);
    else if (event.key === "-") zoom(1.25);
    else if (event.key === "Escape") wipe();
    else if (event.key === "Backspace") undo();
    else if (moves[event.key]) {
      middle = [middle[0] + moves[event.key][0] / wide(), middle[1] + moves[event.key][1]];
      paint();
    } else return;
    event.preventDefault();
  });

  /** Zoom with two fingers. */
  function pinch(event) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, each]) => each);
    const apart = (one) => Math.max(1, Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY));
    const by = apart(pointers.get(event.pointerId)) / apart(event);
    pointers.set(event.pointerId, event);
    zoom(by, under({ clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 }));
  }

  function paint() {
    const [w, h_] = size();
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h_ * ratio)) [canvas.width, canvas.height] = [Math.round(w * ratio), Math.round(h_ * ratio)];
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const colour = (name_) => style.getPropertyValue(name_);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h_);
    grid(pen, w, h_, colour);
    pen.fillStyle = colour("--accent");
    points.forEach(([x, y], n) => {
      const [px, py] = at([x, y]);
      const far = points.length - n;
      const wide_ = far <= NEWEST ? 6 : 4;
      pen.globalAlpha = far <= NEWEST ? 1 : 0.2 + (0.5 * n) / points.length;
      pen.fillRect(px - wide_ / 2, py - wide_ / 2, wide_, wide_);
    });
    pen.globalAlpha = 1;
    outline(pen, colour("--warn"));
  }

  function grid(pen, w, h_, colour) {
    const by = step((w * perPixel) / wide(), w / 140);
    const up = step(h_ * perPixel, h_ / 80);
    const digits = (of) => Math.max(0, -Math.floor(Math.log10(of)));
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--dim");
    pen.font = "10px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.beginPath();
    const left = middle[0] - (w / 2) * (perPixel / wide());
    for (let x = Math.ceil(left / by) * by; x < left + w * (perPixel / wide()); x += by) {
      const [px] = at([x, 0]);
      pen.moveTo(px, 0);
      pen.lineTo(px, h_);
      pen.fillText(`${x.toFixed(digits(by))}°`, px + 3, h_ - 4);
    }
    const bottom = middle[1] - (h_ / 2) * perPixel;
    for (let y = Math.ceil(bottom / up) * up; y < bottom + h_ * perPixel; y += up) {
      const [, py] = at([0, y]);
      pen.moveTo(0, py);
      pen.lineTo(w, py);
      pen.fillText(`${y.toFixed(digits(up))}°`, 4, py - 3);
    }
    pen.stroke();
    const metres = step(100 * perPixel * METRES, 1);
    const long = metres / METRES / perPixel;
    pen.fillRect(w - long - 12, 14, long, 2);
    pen.fillText(metres >= 1000 ? `${number(metres / 1000)} km` : `${number(metres)} m`, w - long - 12, 11);
  }

  function outline(pen, colour) {
    const open = tool === "polygon" && corners.length;
    if (area === null && !open) return;
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    if (open || area.kind === "polygon") (open ? corners : area.corners).map(at).forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    else if (area.kind === "circle") pen.arc(...at(area.at), area.metres / METRES / perPixel, 0, 7);
    else {
      const [[x1, y1], [x2, y2]] = area.corners.map(at);
      pen.rect(x1, y1, x2 - x1, y2 - y1);
    }
    if (area !== null) pen.closePath();
    pen.stroke();
    pen.globalAlpha = 0.12;
    if (area !== null) pen.fill();
    pen.globalAlpha = 1;
  }

  pick("move");
  new ResizeObserver(() => paint()).observe(canvas);
  return {
    node,
    take(event) {
      const [x, y] = [valueAt(event, where.x), valueAt(event, where.y)];
      if (!Number.isFinite(x) || !Number.isFinite(y)) return;
      points.push([x, y]);
      if (points.length > MAX_POINTS * 1.2) points = points.slice(-MAX_POINTS);
    },
    draw() {
      if (!isFitted && points.length) fit();
      else paint();
    },
    shown: () => requestAnimationFrame(() => (isFitted ? paint() : fit())),
    clear: () => (points = []),
    /** Draw the area of a filter, in place of the drawn one. */
    ask(filter) {
      const asked = areaOf(filter);
      if (asked === null) return;
      corners = [];
      settle(asked);
      if (!isFitted) fit();
    },
  };
}
