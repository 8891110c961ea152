/** Formats numbers, times and values for reading. */

import { write } from "./json.js";

const many = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A whole number: 12,345. */
export const count = (n) => (n === null || n === undefined ? "–" : many.format(n));

/** A number of any size in few characters: 12K. */
export const compact = (n) => (n === null || n === undefined ? "–" : short.format(n));

/** A rate per second. */
export function rate(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (n > 0 && n < 0.05) return "<0.1/s";
  return `${n !== 0 && n < 10 ? n.toFixed(1) : n < 1000 ? Math.round(n) : compact(n)}/s`;
}

/** Milliseconds. */
export function ms(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (n >= 1000) return `${(n / 1000).toFixed(n >= 10_000 ? 0 : 1)} s`;
  return `${n >= 100 ? Math.round(n) : n.toFixed(1)} ms`;
}

/** Two durations in milliseconds, with one unit if both have the same. */
export function msPair(a, b) {
  if ([a, b].every((each) => each === null || each === undefined)) return "–";
  const [one, other] = [ms(a), ms(b)];
  const unit = / m?s$/.exec(other)?.[0];
  return unit && one.endsWith(unit) ? `${one.slice(0, -unit.length)} / ${other}` : `${one} / ${other}`;
}

/** Bytes, as the log measures lag. */
export function size(n) {
  if (!n) return "0";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) [n, at] = [n / 1000, at + 1];
  return `${at === 0 ? n : n.toFixed(1)} ${units[at]}`;
}

/** A fraction as a percentage. */
export const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %` : "–");

/** A short form of a number; keeps all digits before the decimal point. */
export function number(n) {
  if (typeof n === "bigint") return String(n);
  if (typeof n !== "number" || !Number.isFinite(n)) return "–";
  if (Number.isInteger(n)) return Math.abs(n) < 1e7 ? many.format(n) : String(n);
  return String(Number(Math.abs(n) < 1000 ? n.toPrecision(4) : n.toFixed(1)));
}

/** Compares names with numbers in natural order: s2 before s10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** The time of day of a timestamp. */
export function clock(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? String(moment ?? "") : date.toLocaleTimeString("en-GB");
}

/** The date and time of a timestamp. */
export function moment(text) {
  const date = new Date(text);
  return !text || Number.isNaN(date.getTime()) ? "–" : `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

/** The time since a timestamp. */
export function ago(text, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(text).getTime()) / 1000);
  if (Number.isNaN(seconds)) return "–";
  if (seconds < 60) return `${Math.round(seconds)}\u00a0s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)}\u00a0min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)}\u00a0h` : `${Math.round(seconds / 86_400)}\u00a0d`;
}

const LONGEST = 200;

/** A text, cut to a maximum length. */
export const clipped = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** A value of an event, for a table cell. */
export function value(of) {
  if (of === null || of === undefined) return "";
  if (typeof of === "number") return Number.isInteger(of) ? String(of) : String(Number(Math.abs(of) < 1 ? of.toPrecision(7) : of.toFixed(6)));
  return clipped(typeof of === "object" ? write(of) : String(of));
}
