/** Search for services by requirements and weights; ranked again as the weights change. */

import { RETRY_INTERVAL_MS, call, isTransient, part, pause } from "../api.js";
import { meter } from "../charts.js";
import { add, badge, button, card, field, h, say, debounced } from "../dom.js";
import { percent } from "../format.js";
import { problem } from "../notices.js";
import { t } from "../texts.js";

const GLIDE_MS = 220;

/** Parse `speed, vid:string` into the attributes of a request. */
export function attributes(text) {
  const wanted = text.split(",").map((each) => each.trim()).filter(Boolean);
  return wanted.map((each) => {
    const at = each.lastIndexOf(":");
    return at > 0 ? { name: each.slice(0, at).trim(), type: each.slice(at + 1).trim() } : each;
  });
}

const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

export function show({ into, signal }) {
  const input = (placeholder) => h("input", { placeholder, spellcheck: "false", on: { input: () => later() } });
  const [names, filter, themes] = t.discover.examples.map(input);
  const least = weights([["coverage", t.discover.least, 0.5]], () => later(), 1, 0.1);
  const near = h("input", { type: "checkbox", on: { change: () => later() } });
  const parts = weights(t.discover.parts.map(([name, title]) => [name, title, 1]), () => later());
  const metrics = weights(t.metrics.map(([name, title]) => [name, title, name === "latency" ? 1 : 0]), () => later());
  const limits = new Map(t.metrics.map(([name, title]) => [name, [title, input(t.discover.limits[name])]]));
  const results = h("div");
  const heard = h("span", { class: "dim", role: "status" });
  let asked = new AbortController();

  const later = debounced(async () => {
    asked.abort();
    asked = new AbortController();
    const body = { explain: true, limit: 50, names: near.checked ? "edits" : "exact", weights: parts.values() };
    if (names.value.trim()) Object.assign(body, { attributes: attributes(names.value), ...least.values() });
    if (filter.value.trim()) body.filter = filter.value;
    if (words(themes.value).length) body.themes = words(themes.value);
    const most = Object.fromEntries(Object.entries(metrics.values()).filter(([, weight]) => weight > 0));
    const bounds = Object.fromEntries([...limits].filter(([, [, box]]) => box.value.trim()).map(([name, [, box]]) => [name, box.value.trim()]));
    if (Object.keys(most).length || Object.keys(bounds).length) body.qos = { ...(Object.keys(most).length ? { weights: most } : {}), ...(Object.keys(bounds).length ? { limits: bounds } : {}) };
    try {
      const answer = await call("POST", "/v1/discover", { body, signal: asked.signal });
      glide(results, () => results.replaceChildren(...told(answer)));
      say(heard, answer.results.length ? t.discover.found(answer.results.length, answer.results[0].name) : t.discover.none);
    } catch (error) {
      if (error.name === "AbortError") return;
      say(heard, "");
      results.replaceChildren(problem(error));
      const mine = asked.signal;
      if (isTransient(error)) void pause(RETRY_INTERVAL_MS, mine).then(() => mine.aborted || later());
    }
  }, 120);

  signal.addEventListener("abort", () => (later.cancel(), asked.abort()));
  add(
    into,
    h("h1", { text: t.nav.discover }),
    h(
      "div",
      { class: "finder" },
      h(
        "div",
        { class: "wants" },
        card(t.discover.wants, field(t.discover.attributes, names, t.discover.attributesHint), least.node, h("label", { class: "check" }, near, t.discover.near), field(t.discover.filter, filter, t.discover.filterHint), field(t.discover.themes, themes)),
        card(t.discover.matters, parts.node),
        card(t.discover.quality, metrics.node, h("details", {}, h("summary", { text: t.discover.limitsTitle }), [...limits.values()].map(([title, box]) => field(title, box)))),
      ),
      h("section", { class: "card" }, h("div", { class: "row spread" }, h("h2", { text: t.discover.answer }), heard), results),
    ),
  );
  later();
}

/** Create a slider for each weight. */
function weights(list, changed, max = 5, step = 0.5) {
  const sliders = list.map(([name, title, value]) => {
    const said = h("output", { text: String(value) });
    const slider = h("input", { type: "range", min: 0, max, step, "aria-label": title, name, prop: { value }, on: { input: () => ((said.textContent = slider.value), changed()) } });
    return { name, slider, node: h("div", { class: "slider" }, h("span", { class: "label", text: title }), slider, said) };
  });
  return { node: h("div", { class: "sliders" }, sliders.map((each) => each.node)), values: () => Object.fromEntries(sliders.map((each) => [each.name, Number(each.slider.value)])) };
}

/** Reorder a list with an animation, so that changes of rank are visible. */
function glide(list, change) {
  const services = () => [...list.querySelectorAll("[data-service]")];
  const before = new Map(services().map((each) => [each.dataset.service, each.getBoundingClientRect().top]));
  change();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const each of services()) {
    const by = (before.get(each.dataset.service) ?? NaN) - each.getBoundingClientRect().top;
    if (by) each.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: GLIDE_MS, easing: "ease-out" });
  }
}

function told(answer) {
  const hints = answer.hints.map((each) => h("p", { class: "warn-text", text: `${each.path}: ${each.message}` }));
  const near = answer.near.length ? [h("h3", { text: t.discover.nearest }), h("ol", { class: "found" }, answer.near.map((each) => result(each)))] : [];
  return [...hints, h("ol", { class: "found" }, answer.results.map((each) => result(each))), ...near];
}

function result(each) {
  const share = (title, value) => (value === null || value === undefined ? null : h("span", { class: "share" }, h("small", { class: "dim", text: title }), meter(value, `${title} ${percent(value)}`), h("small", { text: percent(value) })));
  const weighed = Object.entries(each.figures ?? {}).filter(([, of]) => of.value !== null && of.weight > 0);
  const figures = weighed.length > 1 ? weighed : []; // a single score needs no breakdown
  return h(
    "li",
    { data: { service: each.name } },
    h("div", { class: "row" }, h("b", { class: "rank", text: String(each.rank ?? "") }), h("a", { href: `#/services/${part(each.name)}`, text: each.name }), each.match && each.match !== "full" ? badge(t.discover.matches[each.match] ?? each.match, "warn") : null, (each.promises ?? []).map((one) => (one.verdict === "unmeasured" ? null : badge(`${one.metric} ${t.verdicts[one.verdict]}`, one.verdict === "kept" ? "good" : "bad"))), h("span", { class: "grow" }), button(t.service.workbench, () => (location.hash = `#/services/${part(each.name)}/workbench`), { class: "quiet" }), h("b", { text: percent(each.score) })),
    h("div", { class: "shares" }, share(t.discover.coverage, each.coverage), share(t.discover.degree, each.degree), share(t.discover.qos, each.qos)),
    h("ul", { class: "why" }, (each.why ?? []).map((text) => h("li", { text })), (each.missing ?? []).length ? h("li", { class: "bad-text", text: t.discover.missing(each.missing.join(", ")) }) : null, figures.map(([metric, of]) => h("li", { class: "dim", text: t.discover.figure(metric, t.metrics.find(([name]) => name === metric)?.[2](of.value) ?? String(of.value), of.measured, percent(of.adds)) }))),
  );
}
