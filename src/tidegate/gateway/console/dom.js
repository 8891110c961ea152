/**
 * Creates DOM nodes from values, and never parses markup, so that text of events, names and filters can't inject any.
 * Only this module creates nodes; the page's content security policy refuses code that parses markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an element. Properties: `class`, `text`, `on` (listeners by event), `data` (by name), `prop` (of the node itself);
 * all others are attributes, left out if they are null, undefined or false.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...any} children nodes, texts, lists of them; null, undefined and false are left out
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** Create an SVG element; see `h`. */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = String(value);
    else if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "prop") Object.assign(node, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return add(node, ...children);
}

/** Append nodes, texts, or lists of them; null, undefined and false are left out. */
export function add(node, ...children) {
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** Set the text of a node, if it differs. */
export function say(node, text) {
  const said = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== said) node.textContent = said;
}

/** Set an attribute; remove it if the value is null, undefined or false. */
export function put(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Update a parent's children to a list of items. Nodes are reused by key, so that focus and pointers stay.
 * @param {Element} parent
 * @param {any[]} items
 * @param {(item: any) => string} key
 * @param {(item: any) => {node: Element, update: (item: any) => void}} make
 */
export function keyed(parent, items, key, make) {
  const known = (parent.keyed ??= new Map());
  const wanted = new Set(items.map(key));
  for (const [name, part] of known) {
    if (!wanted.has(name)) {
      part.node.remove();
      known.delete(name);
    }
  }
  let before = null;
  for (const item of items) {
    const name = key(item);
    if (!known.has(name)) known.set(name, make(item));
    const part = known.get(name);
    const place = before === null ? parent.firstElementChild : before.nextElementSibling;
    if (place !== part.node) parent.insertBefore(part.node, place);
    part.update(item);
    before = part.node;
  }
}

/** Debounce: run `call` with the last values after `quiet_ms` without a further call. */
export function debounced(call, quiet_ms) {
  let timer;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), quiet_ms);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Create a button. */
export function button(text, on, props = {}) {
  return h("button", { type: "button", text, on: { click: on }, ...props });
}

/** Create a label around a `control`, with an optional hint. */
export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", { class: "label", text: label }), control, hint ? h("small", { class: "dim", text: hint }) : null);
}

/** Create a section with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", { text: title }) : null, ...children);
}

/** Create a description list of names and values. */
export function pairs(entries) {
  return h(
    "dl",
    { class: "pairs" },
    entries.filter(Boolean).map(([name, value]) => [h("dt", { text: name }), h("dd", {}, value ?? "")]),
  );
}

/** Create a badge; `kind` is its colour: `good`, `warn`, `bad` or none. */
export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}`, text });
}
