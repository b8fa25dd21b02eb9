/** What a run recorded to be looked at, as it is drawn. */
import type { Schemas } from "../../../api/client";

type Medium = Schemas["MediumView"];

/** Of each name what was recorded, in the order of the steps. */
export function byName(media: Medium[]): [string, Medium[]][] {
  const found = new Map<string, Medium[]>();
  for (const one of media) found.set(one.name, [...(found.get(one.name) ?? []), one]);
  return [...found]
    .map(([name, of]): [string, Medium[]] => [name, of.sort((a, b) => a.step - b.step || a.id - b.id)])
    .sort(([a], [b]) => a.localeCompare(b));
}

export interface Bars {
  counts: number[]; // 0 to 1, of the highest
  low: number;
  high: number;
  count: number;
}

export function bars(medium: Medium): Bars | null {
  const data = medium["data"] as { counts?: number[]; edges?: number[]; count?: number } | undefined;
  if (!data?.counts?.length || !data.edges?.length) return null;
  const most = Math.max(...data.counts, 1);
  return {
    counts: data.counts.map((one) => one / most),
    low: data.edges[0]!,
    high: data.edges.at(-1)!,
    count: data.count ?? 0,
  };
}

export function tableOf(medium: Medium): { columns: string[]; rows: string[][] } | null {
  const data = medium["data"] as { columns?: unknown[]; rows?: unknown[][] } | undefined;
  if (!data?.columns || !data.rows) return null;
  return { columns: data.columns.map(String), rows: data.rows.map((row) => row.map((cell) => String(cell ?? ""))) };
}
