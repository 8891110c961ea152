/** The console: who looks, where they are, and what is around every page. */

import { get, gate, key } from "./api.js";
import { badge, button, field, h } from "./dom.js";
import { live } from "./live.js";
import { t } from "./texts.js";

const THEME = "tidegate.theme";

/** Pages by the first part of the address; loaded when they are first asked for. */
const PAGES = [
  { path: "", title: t.nav.overview, load: () => import("./pages/overview.js") },
  { path: "services", title: t.nav.services, load: () => import("./pages/services.js") },
  { path: "subscriptions", title: t.nav.subscriptions, load: () => import("./pages/subscriptions.js"), may: (me) => me.known || me.role !== "consumer" },
  { path: "discover", title: t.nav.discover, load: () => import("./pages/discover.js") },
  { path: "quarantine", title: t.nav.quarantine, load: () => import("./pages/quarantine.js"), may: (me) => me.role !== "consumer" },
  { path: "meaning", title: t.nav.meaning, load: () => import("./pages/meaning.js"), probe: ["/v1/semantics", { term: "a", count: 0 }] },
  { path: "federation", title: t.nav.federation, load: () => import("./pages/federation.js"), probe: ["/v1/links"], may: (me) => me.role === "admin" },
];

const root = document.getElementById("app");
let leave = null;
/** Ends what the page that is shown has under way. */
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

// Who ----------------------------------------------------------------------------------------

async function begin() {
  theme();
  let me;
  try {
    me = await get("/v1/me");
  } catch (problem) {
    if (problem.status === 401 || problem.status === 403) return signIn(key.get() === null ? "" : problem.message);
    return root.replaceChildren(h("main", { class: "alone" }, h("p", { class: "problem", role: "alert", text: t.app.unreachable(problem.message) }), button(t.app.again, begin)));
  }
  await open(me);
}

function signIn(problem = "") {
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
  );
  root.replaceChildren(h("main", { class: "alone" }, form));
  document.title = t.title(t.signIn.title);
  secret.focus();
}

gate.refused = (detail) => {
  if (shell === null) return;
  key.forget();
  signIn(detail);
};

function signOut() {
  key.forget();
  location.hash = "";
  void begin();
}

// Around every page ----------------------------------------------------------------------------

const mark = () => h("span", { class: "mark", "aria-hidden": "true" });

async function open(me) {
  const pages = PAGES.filter((each) => !each.may || each.may(me));
  const main = h("main", { id: "main", tabindex: "-1" });
  const lost = h("div", { class: "lost", role: "status", hidden: true, text: t.app.lost });
  const nav = h("nav", { "aria-label": t.nav.label });
  const link = (each) => h("a", { href: `#/${each.path}`, text: each.title, data: { path: each.path } });
  nav.append(...pages.filter((each) => !each.probe).map(link));
  const who = h("div", { class: "who" }, h("span", { text: me.known ? me.name : t.app.anybody }), badge(t.roles[me.role]), me.known ? button(t.app.signOut, signOut, { class: "quiet" }) : key.get() === null && me.role === "consumer" ? button(t.signIn.enter, () => signIn(), { class: "quiet" }) : null);
  const aside = h("header", { class: "side" }, h("a", { class: "brand", href: "#/" }, mark(), h("b", { text: "Tidegate" }), h("small", { class: "dim", text: me.version })), nav, h("div", { class: "foot" }, who, button(t.app.theme, otherTheme, { class: "quiet", "aria-label": t.app.themeLabel })));
  root.replaceChildren(h("a", { class: "skip", href: "#main", text: t.app.skip, on: { click: (event) => (event.preventDefault(), main.focus()) } }), aside, h("div", { class: "body" }, lost, main));
  shell = { me, main, nav, pages };
  live.listeners.clear();
  live.listen((now) => (lost.hidden = !now.isLost));
  live.start();
  await show();
  for (const each of pages.filter((page) => page.probe)) {
    get(...each.probe).then(
      () => nav.append(link(each)),
      () => {}, // it is not installed here, or not for this caller
    );
  }
}

/** The page's path, as parts, and its query. */
function where() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

async function show() {
  if (shell === null) return;
  const { parts, query } = where();
  const page = shell.pages.find((each) => each.path === (parts[0] ?? ""));
  leave?.abort();
  const mine = (leave = new AbortController());
  for (const each of shell.nav.children) each.dataset.path === (parts[0] ?? "") ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
  const into = h("div", { class: "page" });
  try {
    if (!page) throw new Error(t.app.noPage);
    const { show: build } = await page.load();
    if (mine.signal.aborted) return;
    document.title = t.title(parts[1] ?? page.title);
    await build({ into, me: shell.me, parts: parts.slice(1), query, signal: mine.signal });
  } catch (problem) {
    if (mine.signal.aborted) return;
    into.append(h("p", { class: "problem", role: "alert", text: problem.message }));
  }
  if (mine.signal.aborted) return;
  shell.main.replaceChildren(into);
  scrollTo(0, 0);
}

// Whoever goes to another page by keyboard, or hears it read, goes on at its beginning.
addEventListener("hashchange", () => show().then(() => shell?.main.focus({ preventScroll: true })));

void begin();
