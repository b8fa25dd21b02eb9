/** The columns of the table of runs: their names, which are shown at first, and how a value is shown. */
import type { Schemas } from "../../api/client";
import { exact, exactTime, number, span, time } from "../../format";

export type Cell = Schemas["RunCells"]["cells"][string];
export type Row = Schemas["RunCells"];
type Run = Schemas["RunView"];

export const FACTS = ["phase", "user", "created", "duration"];
export const MOST = 50; // the server's limit
const VARIED = 4; // parameters, and metrics, that are shown at first
const LONG = 8; // characters of a number as it was given
const TIMES = ["created", "started", "ended"];

/** Names with commas between; one in backquotes may have a comma. */
export function namesOf(text: string): string[] {
  return (text.match(/(`[^`]*`|[^,`])+/g) ?? []).map((one) => one.trim()).filter(Boolean);
}

/** What tells these runs apart: parameters with several values, and the metrics that most of them have. */
export function suggested(runs: Run[]): string[] {
  const params = new Map<string, Set<string>>();
  const metrics = new Map<string, number>();
  for (const run of runs) {
    for (const [name, value] of Object.entries(run.params)) {
      const values = params.get(name) ?? new Set();
      params.set(name, values.add(value));
    }
    for (const name of Object.keys(run.metrics)) {
      if (!name.startsWith("system/") && name !== "ledger") metrics.set(name, (metrics.get(name) ?? 0) + 1);
    }
  }
  const told = [...params].sort((a, b) => Number(b[1].size > 1) - Number(a[1].size > 1)).map(([name]) => name);
  const had = [...metrics].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  return [
    ...FACTS,
    ...had.slice(0, VARIED).map((name) => `metrics.${named(name, true)}`),
    ...told.slice(0, VARIED).map((name) => `params.${named(name)}`),
  ];
}

function named(name: string, metric = false): string {
  const part = metric && /\.(last|min|max|step|time|points|nans)$/.test(name);
  return part || /[ ()<>=!~,'"`\t\n]/.test(name) ? `\`${name}\`` : name;
}

/** Headers: without `metrics.` and the like where that is clear. */
export function headers(columns: string[]): string[] {
  const short = columns.map((one) => one.replace(/^(metrics|params|tags)\./, "").replaceAll("`", ""));
  return short.map((one, at) => (short.indexOf(one) === short.lastIndexOf(one) ? one : columns[at]!));
}

export function isNumber(column: string): boolean {
  return column.startsWith("metrics.") || column === "duration" || column === "attempts" || TIMES.includes(column);
}

export function shown(column: string, value: Cell | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (TIMES.includes(column)) return time(value);
    return column === "duration" ? span(value) : number(value);
  }
  const found = value.length > LONG ? numeric(value) : null; // 0.00022148533753 is a number of a parameter
  return found === null ? value : number(found);
}

export function whole(column: string, value: Cell | undefined): string {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  return TIMES.includes(column) ? exactTime(value) : column === "duration" ? `${exact(value)} s` : exact(value);
}

/** How far a number is from the baseline's: as a share of it where that says something. */
export function difference(column: string, value: Cell | undefined, base: Cell | undefined): string {
  const [one, other] = [numeric(value), numeric(base)];
  if (one === null || other === null || TIMES.includes(column) || one === other) return "";
  const sign = one > other ? "+" : "−";
  if (other === 0 || one * other < 0) return `${sign}${number(Math.abs(one - other), 3)}`;
  const share = Math.abs((one - other) / other) * 100;
  return share >= 1000 ? `×${number(one / other, 3)}` : `${sign}${number(share, share < 1 ? 1 : 3)} %`;
}

/** Parameters are texts; one that is a number counts as it. */
export function numeric(value: Cell | undefined): number | null {
  if (typeof value === "boolean" || value === null || value === undefined || value === "") return null;
  const found = Number(value);
  return Number.isFinite(found) ? found : null;
}
