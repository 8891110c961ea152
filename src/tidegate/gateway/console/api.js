/** Client of the public HTTP API: calls, problem documents, and event streams that reconnect. */

import { parse, write } from "./json.js";
import { t } from "./texts.js";

const STORED = "tidegate.key";
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 8000;

/** The time between two attempts after a transient problem. */
export const RETRY_INTERVAL_MS = 2000;

/** A problem document of the gateway (RFC 9457). Status 0: the gateway can't be reached. */
export class ApiProblem extends Error {
  constructor(status, document) {
    super(document.detail ?? document.title ?? t.app.status(status));
    this.status = status;
    this.document = document;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED),
  set: (secret) => sessionStorage.setItem(STORED, secret),
  forget: () => sessionStorage.removeItem(STORED),
};

/** True for a transient problem: the gateway is unreachable, fails, or is overloaded. */
export const isTransient = (problem) => problem.status === 0 || problem.status === 429 || problem.status >= 500;

/** True if a caller may have durable subscriptions; guests may not. */
export const mayHaveDurable = (me) => me.known || me.role !== "consumer";

/** Secrets of webhooks that this page created, by subscription id. They are shown once, and not stored elsewhere. */
export const secrets = new Map();

/** `refused` is called with the reason when the gateway rejects the key (401). */
export const gate = { refused: () => {} };

/** Return the URL of a path of the gateway with a query. A list becomes repeated parameters. */
export function address(path, query = {}) {
  const url = new URL(`.${path}`, document.baseURI.replace(/#.*$/, ""));
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(each));
  }
  return url;
}

/** Encode one part of a path. */
export const part = encodeURIComponent;

function headers(more = {}) {
  const secret = key.get();
  return secret === null ? more : { ...more, authorization: `Bearer ${secret}` };
}

/**
 * Send a request, and return the JSON of the response; null if it is empty. Throws an `ApiProblem`.
 * @param {string} method
 * @param {string} path
 * @param {{query?: object, body?: any, signal?: AbortSignal, headers?: object}} [more]
 */
export async function call(method, path, more = {}) {
  const answer = await asked(address(path, more.query), {
    method,
    signal: more.signal,
    headers: headers({ accept: "application/json", ...(more.body === undefined ? {} : { "content-type": "application/json" }), ...more.headers }),
    body: more.body === undefined ? undefined : write(more.body),
  });
  const text = await answer.text();
  return text ? parse(text) : null;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });

async function asked(url, options) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "omit", cache: "no-store", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiProblem(0, { detail: t.app.away });
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ title: answer.statusText }));
  if (answer.status === 401) gate.refused(said.detail);
  throw new ApiProblem(answer.status, said);
}

/** Parser of a stream of server-sent events whose text arrives in pieces. */
export class Blocks {
  constructor() {
    this.rest = "";
  }

  /** Add a piece of text; return the blocks that it completes, each `{id, event, data}`. */
  take(piece) {
    const blocks = (this.rest + piece.replaceAll("\r", "")).split("\n\n");
    this.rest = blocks.pop();
    return blocks.map(block).filter((each) => each.id !== undefined || each.data !== undefined);
  }
}

function block(text) {
  const found = { event: "message" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(":");
    if (at < 1) continue;
    const name = line.slice(0, at);
    const value = line.slice(at + 1).replace(/^ /, "");
    if (name === "data") found.data = found.data === undefined ? value : `${found.data}\n${value}`;
    else if (name === "id" || name === "event") found[name] = value;
  }
  return found;
}

/**
 * Read a stream of events until `signal` aborts. Reconnects with backoff after the last received event, so no event is
 * missed or repeated. Uses fetch instead of EventSource, because EventSource can't send the key in a header.
 * @param {string} path
 * @param {object} query
 * @param {{signal: AbortSignal, on: (block: {id?: string, event: string, data?: string}) => void,
 *   state?: (state: "open" | "lost" | "ended", problem?: Error) => void, method?: string, body?: any}} how
 */
export async function follow(path, query, { signal, on, state = () => {}, method = "GET", body }) {
  let last = null;
  let wait_ms = MIN_BACKOFF_MS;
  while (!signal.aborted) {
    try {
      const answer = await asked(address(path, query), {
        method,
        signal,
        body: body === undefined ? undefined : write(body),
        headers: headers({ accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": last }) }),
      });
      state("open");
      wait_ms = MIN_BACKOFF_MS;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const blocks = new Blocks();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        for (const each of blocks.take(value)) {
          if (each.id) last = each.id;
          if (each.event === "error") {
            state("ended", new Error(JSON.parse(each.data).detail));
            return;
          }
          if (each.data !== undefined) on(each);
        }
      }
      state("lost");
    } catch (problem) {
      if (signal.aborted) return;
      if (problem instanceof ApiProblem && !isTransient(problem)) {
        state("ended", problem);
        return;
      }
      state("lost", problem);
    }
    await pause(wait_ms, signal);
    wait_ms = Math.min(MAX_BACKOFF_MS, wait_ms * 2);
  }
}

/** Wait, or until `signal` aborts. Removes its listener, as a signal may live as long as the page. */
export function pause(wait_ms, signal) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, wait_ms);
    signal.addEventListener("abort", end);
  });
}

/** Wait until the page is visible, or `signal` aborts. */
export function visible(signal) {
  return new Promise((done) => {
    const end = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", end);
      signal.removeEventListener("abort", end);
      done();
    };
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end);
    end();
  });
}

/** Call `work` repeatedly while the page is visible, and at once when it becomes visible again. Ends with `signal`. */
export async function every(wait_ms, signal, work) {
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    await work();
    await pause(wait_ms, signal);
  }
}
