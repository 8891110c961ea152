/** The gateway's overview, polled every two seconds while the page is visible, with a history for charts. */

import { every, get } from "./api.js";

export const POLL_INTERVAL_MS = 2000;
/** Samples per service: five minutes. */
export const MAX_SAMPLES = 150;
/** The window of the rate of refused events: long enough that the warning does not flicker. */
const REFUSED_MS = 30_000;

/** Estimate a quantile from a cumulative histogram of seconds by upper bound; null if it is empty. */
export function quantile_ms(buckets, q) {
  const bounds = Object.entries(buckets)
    .map(([most, n]) => [most === "+Inf" ? Infinity : Number(most), n])
    .sort((a, b) => a[0] - b[0]);
  const all = bounds.at(-1)?.[1] ?? 0;
  if (!all) return null;
  let [below, before] = [0, 0];
  for (const [most, n] of bounds) {
    if (n >= q * all) {
      if (most === Infinity) return below * 1000;
      return (below + (most - below) * ((q * all - before) / (n - before || 1))) * 1000;
    }
    [below, before] = [most, n];
  }
  return below * 1000;
}

const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);

class Live {
  constructor() {
    this.overview = null;
    this.history = new Map();
    this.isLost = false;
    this.listeners = new Set();
    this.running = null;
  }

  /** Start polling, until `stop`. `seesStatus`: fill the history from the stream `_status` first. */
  start(seesStatus, looksAfter = true) {
    this.stop();
    this.looksAfter = looksAfter;
    this.running = new AbortController();
    void this.run(this.running.signal, seesStatus);
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  /** Call a listener after each poll, and now if there is an overview. Returns a function that removes it. */
  listen(listener) {
    this.listeners.add(listener);
    if (this.overview !== null) listener(this);
    return () => this.listeners.delete(listener);
  }

  async run(signal, seesStatus) {
    if (seesStatus) void this.remember(signal);
    await every(POLL_INTERVAL_MS, signal, () => this.look(signal));
  }

  tell() {
    for (const each of this.listeners) each(this);
  }

  /** Poll once, and call the listeners. */
  async look(signal) {
    try {
      this.take(await get("/v1/overview", {}, signal));
      this.isLost = false;
    } catch (problem) {
      if (signal?.aborted) return;
      this.isLost = problem.status === 0 || problem.status >= 500;
    }
    this.tell();
  }

  take(overview) {
    const before = this.overview;
    const seconds = before === null ? 0 : (Date.parse(overview.at) - Date.parse(before.at)) / 1000;
    const known = new Map(before?.services.map((each) => [each.name, each]));
    for (const service of overview.services) {
      const old = known.get(service.name);
      const isDown = service.lost || service.status?.state !== "running";
      if (service.status && isDown) Object.assign(service.status, { read_per_s: 0, written_per_s: 0 }); // the rates of a stopped service are out of date
      const passes = Object.fromEntries(
        Object.entries(service.dispatch).map(([most, n]) => [most, n - (old?.dispatch[most] ?? 0)]),
      );
      const restarted = sum(service.delivered) < sum(old?.delivered);
      const shown = restarted ? service.dispatch : passes;
      service.sent_per_s = old && seconds > 0 && !restarted ? (sum(service.delivered) - sum(old.delivered)) / seconds : null;
      service.dispatch_p50_ms = quantile_ms(shown, 0.5);
      service.dispatch_p99_ms = quantile_ms(shown, 0.99);
      if (!this.looksAfter) Object.assign(service, { failing: 0, disabled: 0 }); // a consumer is not shown problems of others' subscriptions
      this.note(service.name, { at: Date.parse(overview.at), ...figures(service.status), sent: service.sent_per_s, d50: service.dispatch_p50_ms, d99: service.dispatch_p99_ms });
      service.refused_per_s = this.refused_per_s(service.name);
    }
    this.overview = overview;
  }

  note(name, sample) {
    if (!this.history.has(name)) this.history.set(name, []);
    const kept = this.history.get(name);
    kept.push(sample);
    if (kept.length > MAX_SAMPLES) kept.splice(0, kept.length - MAX_SAMPLES);
  }

  /** Return the rate of refused events over the last `REFUSED_MS`. */
  refused_per_s(name) {
    const kept = (this.history.get(name) ?? []).filter((each) => each.refused !== null);
    const last = kept.at(-1);
    const first = kept.find((each) => each.at >= last?.at - REFUSED_MS);
    return last && last.at > first.at ? (Math.max(0, last.refused - first.refused) * 1000) / (last.at - first.at) : 0;
  }

  /** Fill the history with the recent events of `_status`. */
  async remember(signal) {
    try {
      const from = `${Math.round((MAX_SAMPLES * POLL_INTERVAL_MS) / 1000)}s`;
      const page = await get("/v1/services/_status/events", { from, format: "plain", max: 5000 }, signal);
      const older = new Map();
      for (const each of page.events) {
        if (!older.has(each.service)) older.set(each.service, []);
        older.get(each.service).push({ at: Date.parse(each.time), ...figures(each) });
      }
      for (const [name, samples] of older) {
        const now = this.history.get(name) ?? [];
        const first = now[0]?.at ?? Infinity;
        const thin = samples.filter((each, n) => each.at < first && n % 2 === 0);
        this.history.set(name, [...thin, ...now].slice(-MAX_SAMPLES));
      }
      if (this.overview !== null) this.tell();
    } catch {
      // No service has run yet, or the stream can't be read: charts start empty.
    }
  }

  /** Return the values of one attribute over a service's samples. */
  series(name, attribute) {
    return (this.history.get(name) ?? []).map((each) => each[attribute] ?? null);
  }

  service(name) {
    return this.overview?.services.find((each) => each.name === name);
  }
}

function figures(status) {
  return {
    in: status?.read_per_s ?? null,
    out: status?.written_per_s ?? null,
    p50: status?.latency_p50_ms ?? null,
    p99: status?.latency_p99_ms ?? null,
    r50: status?.processing_p50_ms ?? null,
    r99: status?.processing_p99_ms ?? null,
    lag: status?.behind_bytes ?? null,
    refused: status?.quarantined ?? null,
  };
}

export const live = new Live();

/** Return the problems of a service, worst first; empty if it is healthy. Each has a `kind` (bad, warn) and a `what`. */
export function troubles(service) {
  const status = service.status;
  const found = [];
  if (service.origin) return service.lost ? [{ kind: "warn", what: "unreached", value: service.origin }] : found; // its own broker reports the other problems
  if (status === null) found.push({ kind: "warn", what: "never" });
  else if (status.state !== "running") found.push({ kind: "bad", what: "state", value: status.state, more: status.error });
  else if (service.lost) found.push({ kind: "bad", what: "silent" });
  else if (status.error) found.push({ kind: "warn", what: "error", more: status.error });
  if (status?.missed_bytes) found.push({ kind: "warn", what: "missed", value: status.missed_bytes });
  if (service.behind) found.push({ kind: "warn", what: "behind", value: service.behind });
  for (const metric of service.broken ?? []) found.push({ kind: "warn", what: "broken", value: metric });
  if (service.disabled) found.push({ kind: "warn", what: "disabled", value: service.disabled });
  if (service.failing) found.push({ kind: "warn", what: "failing", value: service.failing });
  if (service.refused_per_s > 0) found.push({ kind: "warn", what: "refusing", value: service.refused_per_s });
  return found;
}

/** Return the severity of a service's problems: 2 bad, 1 warning, 0 healthy. */
export const severity = (service) => Math.max(0, ...troubles(service).map((each) => (each.kind === "bad" ? 2 : 1)));
