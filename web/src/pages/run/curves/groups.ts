/** The series of a run as the page shows them: which there are, in groups by the first part of their names. */
import type { Schemas } from "../../../api/client";

export type Series = Schemas["SeriesView"];
const SYSTEM = "system/";
const BOOKKEEPING = ["ledger"]; // of muster.train: proves something, and measures nothing
const COUNTED = /(^|[/_.])(tokens|samples|images|examples|cost|epoch|flops)$/i;

export interface Group {
  prefix: string;
  names: string[];
}

/** One for each metric, of the lowest rank that reported it; hardware has a tab of its own. */
export function measured(series: Series[]): Series[] {
  const found = new Map<string, Series>();
  for (const one of series) {
    if (one.name.startsWith(SYSTEM) || BOOKKEEPING.includes(one.name)) continue;
    const known = found.get(one.name);
    if (!known || one.rank < known.rank) found.set(one.name, one);
  }
  return [...found.values()];
}

/** Groups by what stands before the first `/`; what has no such part comes first. Losses lead each group. */
export function grouped(names: string[], filter: string): Group[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, string[]>();
  for (const name of names) {
    if (!words.every((word) => name.toLowerCase().includes(word))) continue;
    const slash = name.indexOf("/");
    const prefix = slash > 0 ? name.slice(0, slash) : "";
    groups.set(prefix, [...(groups.get(prefix) ?? []), name]);
  }
  return [...groups]
    .map(([prefix, of]) => ({ prefix, names: of.sort(before) }))
    .sort((a, b) => a.prefix.localeCompare(b.prefix));
}

function before(a: string, b: string): number {
  return Number(b.includes("loss")) - Number(a.includes("loss")) || a.localeCompare(b);
}

/** Series that only grow and count something: they can stand along the axis in place of steps. */
export function countable(series: Series[]): string[] {
  return series
    .filter((one) => COUNTED.test(one.name) && one.points > 1 && typeof one.last === "number" && one.last === one.high)
    .map((one) => one.name);
}
