/** Runs in groups by one field: how many, and the mean and range of each column of numbers. */
import { quoted } from "./complete";
import { numeric, type Cell, type Row } from "./columns";

export interface Figures {
  count: number;
  mean: number;
  low: number;
  high: number;
}
export interface Group {
  value: Cell;
  ids: string[];
  figures: Record<string, Figures>;
}

export function grouped(rows: Row[], by: string, columns: string[]): Group[] {
  const groups = new Map<string, Group>();
  for (const row of rows) {
    const value = row.cells[by] ?? null;
    const key = JSON.stringify(numeric(value) ?? value); // 3e-4 and 0.0003 are one value
    const group = groups.get(key) ?? { value, ids: [], figures: {} };
    groups.set(key, group);
    group.ids.push(row.id);
    for (const column of columns) {
      const one = numeric(row.cells[column]);
      if (one !== null) group.figures[column] = added(group.figures[column], one);
    }
  }
  return [...groups.values()];
}

function added(before: Figures | undefined, value: number): Figures {
  if (!before) return { count: 1, mean: value, low: value, high: value };
  const count = before.count + 1;
  return {
    count,
    mean: before.mean + (value - before.mean) / count,
    low: Math.min(before.low, value),
    high: Math.max(before.high, value),
  };
}

/** `value`, `runs` or a column; `-` before it is from high to low. What has no value comes last. */
export function sorted(groups: Group[], sort: string): Group[] {
  const down = sort.startsWith("-");
  const name = down ? sort.slice(1) : sort;
  const of = (group: Group): number | string | null =>
    name === "runs"
      ? group.ids.length
      : name === "value"
        ? (numeric(group.value) ?? (group.value === null ? null : String(group.value)))
        : (group.figures[name]?.mean ?? null);
  return [...groups].sort((a, b) => {
    const [one, other] = [of(a), of(b)];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    const order = typeof one === "number" && typeof other === "number" ? one - other : text(one, other);
    return down ? -order : order;
  });
}

function text(one: number | string, other: number | string): number {
  return String(one) < String(other) ? -1 : String(one) > String(other) ? 1 : 0;
}

/** The query for the runs of one group. */
export function narrowed(query: string, by: string, value: Cell): string {
  const condition = value === null ? `${by} not exists` : `${by} = ${quoted(String(value))}`;
  return query.trim() ? `(${query.trim()}) and ${condition}` : condition;
}

/** Each value with how many runs have it, the most frequent first. */
export function counted(values: (string | null)[]): { value: string | null; runs: number }[] {
  const counts = new Map<string | null, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].map(([value, runs]) => ({ value, runs })).sort((a, b) => b.runs - a.runs);
}
