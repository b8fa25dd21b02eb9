/** Numbers, times and amounts as people read them; exact values go into the `title` of what shows them. */

const whole = new Intl.NumberFormat("en");
const exactNumber = new Intl.NumberFormat("en", { maximumSignificantDigits: 17, useGrouping: true });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** 1,234,567 */
export function count(n: number): string {
  return whole.format(n);
}

/** 0.01234, 12.35, 1.2e-7; `NaN` and infinities come as text, and stay it. */
export function number(value: number | string | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (value === 0 || Number.isInteger(value))
    return Math.abs(value) < 1e15 ? whole.format(value) : value.toExponential(3);
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e9 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

/** 1.5M, 12k, 0.0123: for an axis, where there is little room. */
export function compact(value: number): string {
  return Math.abs(value) >= 1e4 && Math.abs(value) < 1e15 ? short.format(value) : number(value, 3);
}

export function exact(value: number | string | null | undefined): string {
  return typeof value === "number" ? exactNumber.format(value) : (value ?? "");
}

/** 1.5 GB */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  let left = n;
  while (Math.abs(left) >= 1000 && at < units.length - 1) {
    left /= 1000;
    at += 1;
  }
  return `${left >= 100 || at === 0 ? Math.round(left) : left.toFixed(1)} ${units[at]}`;
}

/** 45 s, 12 min 3 s, 3 h 12 min, 2 d 4 h */
export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.abs(seconds);
  const sign = seconds < 0 ? "-" : "";
  if (s < 10) return `${sign}${Number(s.toFixed(s < 1 ? 2 : 1))} s`;
  const t = Math.round(s);
  if (t < 60) return `${sign}${t} s`;
  if (t < 3600) return `${sign}${parts(t, 60, "min", "s")}`;
  if (t < 86_400) return `${sign}${parts(Math.round(t / 60), 60, "h", "min")}`;
  return `${sign}${parts(Math.round(t / 3600), 24, "d", "h")}`;
}

function parts(n: number, base: number, large: string, small: string): string {
  return n % base ? `${Math.floor(n / base)} ${large} ${n % base} ${small}` : `${n / base} ${large}`;
}

/** "3 min ago", "in 2 h"; seconds since 1970. */
export function ago(time: number, now: number): string {
  const seconds = now - time;
  if (Math.abs(seconds) < 5) return "now";
  const words = span(rounded(Math.abs(seconds)));
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

/** Two units say too much of what is long ago. */
function rounded(s: number): number {
  if (s < 60) return Math.round(s);
  if (s < 3600) return Math.round(s / 60) * 60;
  return s < 86_400 ? Math.round(s / 3600) * 3600 : Math.round(s / 86_400) * 86_400;
}

export function time(seconds: number): string {
  return clock.format(seconds * 1000);
}

export function date(seconds: number): string {
  return day.format(seconds * 1000);
}

/** With the zone, and as UTC. */
export function exactTime(seconds: number): string {
  return `${zoned.format(seconds * 1000)} (${new Date(seconds * 1000).toISOString()})`;
}

/** Whole millionths of a currency. */
export function money(millionths: number | null | undefined, currency: string): string {
  if (millionths === null || millionths === undefined) return "–";
  const amount = millionths / 1e6;
  const small = amount !== 0 && Math.abs(amount) < 0.01;
  const shown = new Intl.NumberFormat(
    "en",
    small ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 },
  );
  return `${shown.format(amount)} ${currency}`;
}

export function percent(share: number | null | undefined, digits = 0): string {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(digits)} %`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
