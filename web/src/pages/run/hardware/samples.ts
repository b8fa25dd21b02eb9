/** Samples of the hardware: which there are, their units, and matrices of ranks over time. */
import type { CurveView } from "../../../charts/curve";
import { bytes, number, percent } from "../../../format";
import type { Series } from "../curves/groups";

const SYSTEM = "system/";
export const RANKS = 64; // ranks that are asked for: the first of them

export interface Sample {
  name: string; // system/gpu.1
  title: string;
  ranks: number[];
}

const TITLES: Record<string, string> = {
  cpu: "Processors, cores",
  memory: "Memory",
  disk_read: "Read from disk, per second",
  disk_write: "Written to disk, per second",
  gpu: "Accelerator, use",
  gpu_memory: "Accelerator, memory",
  gpu_memory_share: "Accelerator, part of its memory",
  gpu_throttled: "Accelerator, held down by heat",
  gpu_power: "Accelerator, power, W",
  gpu_temperature: "Accelerator, temperature, °C",
  gpu_clock: "Accelerator, clock, MHz",
};

/** What was sampled, with the ranks that it was sampled of. */
export function samplesOf(series: Series[]): Sample[] {
  const found = new Map<string, number[]>();
  for (const one of series) {
    if (one.name.startsWith(SYSTEM)) found.set(one.name, [...(found.get(one.name) ?? []), one.rank]);
  }
  return [...found]
    .map(([name, ranks]) => ({ name, title: titleOf(name), ranks: ranks.sort((a, b) => a - b) }))
    .sort((a, b) => order(a.name) - order(b.name) || a.name.localeCompare(b.name));
}

function titleOf(name: string): string {
  const [kind, place] = name.slice(SYSTEM.length).split(".", 2);
  return `${TITLES[kind!] ?? kind!}${place ? ` (${place})` : ""}`;
}

/** Accelerators first, then what every machine has. */
function order(name: string): number {
  return name.startsWith("system/gpu") ? 0 : 1;
}

export function shownValue(name: string, value: number | null): string {
  const kind = name.slice(SYSTEM.length).split(".", 1)[0]!;
  if (value === null) return "–";
  if (kind === "gpu" || kind === "gpu_memory_share") return percent(value);
  if (kind === "memory" || kind === "gpu_memory") return bytes(value);
  return kind.startsWith("disk") ? `${bytes(value)}/s` : number(value, 4);
}

/** Whether its values lie from 0 to 1, or from 0 to the highest. */
export function highest(name: string, curves: CurveView[]): number {
  if (/^system\/gpu(_memory_share|_throttled)?(\.|$)/.test(name)) return 1;
  const values = curves.flatMap((curve) => curve.high.filter((value) => typeof value === "number"));
  return values.reduce((most, value) => Math.max(most, value), 0) || 1;
}

export interface Matrix {
  ranks: number[];
  times: number[]; // where each column begins, and where the last ends
  /** [rank][column]; null where nothing was sampled. */
  values: (number | null)[][];
}

/** Means of each rank in columns of equal time. */
export function matrix(curves: CurveView[], columns: number): Matrix {
  const there = curves.filter((curve) => curve.count.length);
  const begin = Math.min(...there.map((curve) => curve.first_time[0]!));
  const end = Math.max(...there.map((curve) => curve.last_time.at(-1)!));
  const wide = (end - begin) / columns || 1;
  const values = curves.map((curve) => {
    const sums = new Array<number>(columns).fill(0);
    const counts = new Array<number>(columns).fill(0);
    for (const [at, mean] of curve.mean.entries()) {
      if (typeof mean !== "number") continue;
      const middle = (curve.first_time[at]! + curve.last_time[at]!) / 2;
      const column = Math.min(columns - 1, Math.max(0, Math.floor((middle - begin) / wide)));
      sums[column]! += mean * curve.count[at]!;
      counts[column]! += curve.count[at]!;
    }
    return sums.map((sum, column) => (counts[column] ? sum / counts[column]! : null));
  });
  const times = Array.from({ length: columns + 1 }, (_, at) => begin + at * wide);
  return { ranks: curves.map((curve) => curve.rank), times, values };
}

/** Several at once, but not all: a gang of hundreds of ranks would ask as many questions. */
export async function inTurns<T, R>(items: T[], at_once: number, act: (item: T) => Promise<R>): Promise<R[]> {
  const found = new Array<R>(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const at = next++;
      found[at] = await act(items[at]!);
    }
  };
  await Promise.all(Array.from({ length: Math.min(at_once, items.length) }, worker));
  return found;
}
