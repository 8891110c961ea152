/**
 * Nodes, made of values and never of text that is parsed: whatever an event, a name or a filter says is shown as
 * it is. Nothing else in the console makes nodes, and the page's policy refuses whoever would parse one.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Properties: `class`, `text`, `on` (listeners by event), `data` (by name), `prop` (of the node itself);
 * all others are attributes, left out where they are null, undefined or false.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...any} children nodes, texts, lists of them, or nothing
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
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

/** Put more into a node: nodes, texts, lists of them; what is nothing is left out. */
export function add(node, ...children) {
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** Say something else in a node; nothing is touched where it says that already. */
export function say(node, text) {
  const said = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== said) node.textContent = said;
}

/** Set an attribute, or take it away where there is no value. */
export function put(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
}

/**
 * Bring a parent's children to a list of values: nodes stay, by key, so that focus and pointers stay where they are.
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

/** Call something once things have been quiet for a while; the last call's values count. */
export function settled(call, quiet_ms) {
  let timer;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), quiet_ms);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** A button. */
export function button(text, on, props = {}) {
  return h("button", { type: "button", text, on: { click: on }, ...props });
}

/** A labelled field: what is typed, chosen or moved is the `control`. */
export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", { class: "label", text: label }), control, hint ? h("small", { class: "dim", text: hint }) : null);
}

/** A part of a page with a heading. */
export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", { text: title }) : null, ...children);
}

/** A name and what it is. */
export function pairs(entries) {
  return h(
    "dl",
    { class: "pairs" },
    entries.filter(Boolean).map(([name, value]) => [h("dt", { text: name }), h("dd", {}, value ?? "")]),
  );
}

/** A badge in a colour of `good`, `warn`, `bad` or none. */
export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}`, text });
}
