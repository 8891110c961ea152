/** The console's frame: sign-in, navigation, and the page of the current address. */

import { RETRY_INTERVAL_MS, gate, get, isTransient, key, mayHaveDurable, pause } from "./api.js";
import { badge, button, field, h } from "./dom.js";
import { live } from "./live.js";
import { t } from "./texts.js";

const THEME = "tidegate.theme";

/** Pages by the first part of the address. A page's module is loaded when it is first shown. */
const PAGES = [
  { path: "", title: t.nav.overview, load: () => import("./pages/overview.js") },
  { path: "services", title: t.nav.services, load: () => import("./pages/services.js") },
  { path: "subscriptions", title: t.nav.subscriptions, load: () => import("./pages/subscriptions.js"), may: mayHaveDurable },
  { path: "discover", title: t.nav.discover, load: () => import("./pages/discover.js") },
  { path: "quarantine", title: t.nav.quarantine, load: () => import("./pages/quarantine.js"), may: (me) => me.role !== "consumer" },
  { path: "meaning", title: t.nav.meaning, load: () => import("./pages/meaning.js"), may: (me) => me.has.includes("semantics") },
  { path: "federation", title: t.nav.federation, load: () => import("./pages/federation.js"), may: (me) => me.has.includes("links") },
  { path: "keys", title: t.nav.keys, load: () => import("./pages/keys.js"), may: (me) => me.has.includes("keys") },
];

const root = document.getElementById("app");
/** Aborts the requests and timers of the current page. */
let leave = null;
/** The frame of the signed-in console: caller, page area, navigation, pages; null while the sign-in form is shown. */
let shell = null;

// Light and dark -----------------------------------------------------------------------------

function theme(wanted) {
  if (wanted) localStorage.setItem(THEME, wanted);
  const stored = wanted ?? localStorage.getItem(THEME);
  if (stored) document.documentElement.dataset.theme = stored;
}

function otherTheme() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  theme(dark === "dark" ? "light" : "dark");
}

// Sign-in ------------------------------------------------------------------------------------

async function begin() {
  theme();
  let me;
  try {
    me = await get("/v1/me");
  } catch (problem) {
    if (problem.status === 401 || problem.status === 403) {
      const hadKey = key.get() !== null;
      key.forget();
      return signIn(hadKey ? problem.message : "");
    }
    return root.replaceChildren(h("main", { class: "alone" }, h("p", { class: "problem", role: "alert", text: t.app.unreachable(problem.message) }), button(t.app.again, begin)));
  }
  await open(me);
}

/** Show the sign-in form. A guest needs no key, and can cancel. */
function signIn(problem = "", isGuest = false) {
  live.stop();
  leave?.abort();
  shell = null;
  const secret = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, id: "key" });
  const said = h("p", { class: "problem", role: "alert", text: problem, hidden: problem === "" });
  const form = h(
    "form",
    { class: "card sign-in", on: { submit: (event) => (event.preventDefault(), key.set(secret.value.trim()), begin()) } },
    mark(),
    h("h1", { text: t.signIn.title }),
    h("p", { class: "dim", text: t.signIn.why }),
    field(t.signIn.key, secret),
    said,
    h("button", { type: "submit", class: "primary", text: t.signIn.enter }),
    isGuest ? button(t.app.cancel, begin, { class: "quiet" }) : null,
  );
  root.replaceChildren(h("main", { class: "alone" }, form));
  document.title = t.title(t.signIn.title);
  secret.focus();
}

gate.refused = (detail) => {
  if (shell === null || key.get() === null) return; // a guest may see public services
  key.forget();
  signIn(detail);
};

function signOut() {
  key.forget();
  location.hash = "";
  void begin();
}

// Frame of all pages ----------------------------------------------------------------------------

const mark = () => h("span", { class: "mark", "aria-hidden": "true" });

async function open(me) {
  const pages = PAGES.filter((each) => !each.may || each.may(me));
  const main = h("main", { id: "main", tabindex: "-1" });
  const lost = h("div", { class: "lost", role: "status", hidden: true, text: t.app.lost });
  const nav = h("nav", { "aria-label": t.nav.label });
  const link = (each) => h("a", { href: `#/${each.path}`, text: each.title, data: { path: each.path } });
  nav.append(...pages.map(link));
  const who = h("div", { class: "who" }, h("span", { text: me.known ? me.name : t.app.anybody }), badge(t.roles[me.role]), me.known ? button(t.app.signOut, signOut, { class: "quiet" }) : key.get() === null && me.role === "consumer" ? button(t.signIn.enter, () => signIn("", true), { class: "quiet" }) : null);
  const aside = h("header", { class: "side" }, h("a", { class: "brand", href: "#/" }, mark(), h("b", { text: t.app.name }), h("small", { class: "dim", text: me.version })), nav, h("div", { class: "foot" }, who, button(t.app.theme, otherTheme, { class: "quiet", "aria-label": t.app.themeLabel })));
  root.replaceChildren(h("a", { class: "skip", href: "#main", text: t.app.skip, on: { click: (event) => (event.preventDefault(), main.focus()) } }), aside, h("div", { class: "body" }, lost, main));
  shell = { me, main, nav, pages };
  live.listeners.clear();
  live.listen((now) => (lost.hidden = !now.isLost));
  live.start(me.has.includes("_status"), me.role !== "consumer");
  await show();
  for (const each of pages) each.load().catch(() => {}); // loads all pages now, so that they open while the gateway is down
}

/** Return the parts of the address's path, and its query. */
function where() {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(location.hash);
  return { parts: path.split("/").filter(Boolean).map(plain), query: new URLSearchParams(query) };
}

/** Decode one part of an address; return it unchanged if it is not valid percent-encoding. */
function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Show the page of the current address. On a transient problem, retry until it works or the address changes. */
async function show(isMoved = false) {
  if (shell === null) return;
  const { parts, query } = where();
  const page = shell.pages.find((each) => each.path === (parts[0] ?? ""));
  leave?.abort();
  const mine = (leave = new AbortController());
  for (const each of shell.nav.children) each.dataset.path === (parts[0] ?? "") ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
  document.title = t.title(parts[1] ?? page?.title ?? t.app.noPageTitle);
  for (let isFirst = true; !mine.signal.aborted; isFirst = false) {
    const into = h("div", { class: "page" });
    const problem = await built(page, into, { me: shell.me, parts: parts.slice(1), query, signal: mine.signal });
    if (mine.signal.aborted) return;
    if (problem) into.replaceChildren(h("h1", { text: page?.title ?? t.app.noPageTitle }), h("p", { class: "problem", role: "alert", text: problem.message }));
    if (isFirst || !problem) {
      shell.main.replaceChildren(into);
      scrollTo(0, 0);
    }
    // Move the focus to the start of the new page, for keyboards and screen readers.
    if (isFirst && isMoved) shell.main.focus({ preventScroll: true });
    if (!problem || !isTransient(problem)) return;
    await pause(RETRY_INTERVAL_MS, mine.signal);
  }
}

/** Build a page. Returns the problem, or null. */
async function built(page, into, how) {
  try {
    if (!page) throw new Error(t.app.noPage);
    const { show: build } = await page.load();
    if (!how.signal.aborted) await build({ into, ...how });
    return null;
  } catch (problem) {
    return problem;
  }
}

addEventListener("hashchange", () => show(true));

void begin();
