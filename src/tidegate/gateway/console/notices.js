/** What is told for a moment, and what went wrong. */

import { h } from "./dom.js";
import { t } from "./texts.js";

const SHOWN_MS = 5000;

/** There from the beginning: what is put into it later is read out. */
const place = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(place);

/** Tell something that was done, for a moment. */
export function toast(text, kind = "good") {
  for (const each of place.children) if (each.textContent === text) each.remove(); // said again, and not twice
  const node = h("div", { class: `toast ${kind}`, text });
  place.append(node);
  setTimeout(() => node.remove(), SHOWN_MS);
}

/** A problem that the API tells, with every place of it; an empty node where there is none. */
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

/** Do something that may be refused, and tell how it went. */
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

/** Put a text where others can paste it from. */
export async function copy(text, done) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text).catch(() => copyChosen(text));
    else copyChosen(text);
    toast(done);
  } catch (error) {
    toast(error.message, "bad");
  }
}

/** The way of old, for pages that came over plain HTTP from another machine: browsers keep the other from them. */
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
