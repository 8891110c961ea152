/** Toasts, problem messages, and the clipboard. */

import { h } from "./dom.js";
import { t } from "./texts.js";

const SHOWN_MS = 5000;

/** Exists from the start, so that screen readers announce what is added later. */
const place = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(place);

/** Show a message for five seconds. */
export function toast(text, kind = "good") {
  for (const each of place.children) if (each.textContent === text) each.remove(); // replaces an equal message
  const node = h("div", { class: `toast ${kind}`, text });
  place.append(node);
  setTimeout(() => node.remove(), SHOWN_MS);
}

/** Return a node with a problem of the API and all its details; a hidden node if there is no problem. */
export function problem(error) {
  if (!error) return h("div", { hidden: true });
  const places = error.document?.errors ?? [];
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("pre", { text: error.message }),
    places.length > 1 ? h("ul", {}, places.map((each) => h("li", { text: [each.pointer, each.detail].filter(Boolean).join(": ") }))) : null,
  );
}

/** Run `work`, and show a toast with the outcome. Returns its result; undefined if it failed. */
export async function attempt(work, done) {
  try {
    const result = await work();
    if (done) toast(typeof done === "function" ? done(result) : done);
    return result;
  } catch (error) {
    toast(error.message, "bad");
    return undefined;
  }
}

/** Copy a text to the clipboard. */
export async function copy(text, done) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text).catch(() => copyChosen(text));
    else copyChosen(text);
    toast(done);
  } catch (error) {
    toast(error.message, "bad");
  }
}

/** Copy by `execCommand`: browsers offer `navigator.clipboard` only on https and localhost. */
function copyChosen(text) {
  const before = document.activeElement;
  const box = h("textarea", { class: "unseen", readonly: true, "aria-hidden": "true", prop: { value: text } });
  document.body.append(box);
  box.select();
  const isDone = document.execCommand("copy");
  box.remove();
  before?.focus();
  if (!isDone) throw new Error(t.app.notCopied);
}
