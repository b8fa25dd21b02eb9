/** The best so far as the columns of a chart: a step down or up at each trial that was better than all before it. */
import type { Schemas } from "../../api/client";

type Best = Schemas["BestSoFar"];
export type Over = "trials" | "time" | "cost";

/** Seconds of the unit in which a time that long is read. */
export function unitOf(seconds: number): { name: string; seconds: number } {
  if (seconds < 180) return { name: "s", seconds: 1 };
  if (seconds < 3 * 3600) return { name: "min", seconds: 60 };
  return seconds < 3 * 86_400 ? { name: "h", seconds: 3600 } : { name: "d", seconds: 86_400 };
}

export function stairs(best: Best, over: Over): (number | null)[][] {
  const unit = unitOf(best.seconds).seconds;
  const place = (one: { ended: number; seconds: number; cost: number }): number =>
    over === "trials" ? one.ended : over === "time" ? one.seconds / unit : one.cost / 1e6;
  const x: number[] = [];
  const y: (number | null)[] = [];
  let before: number | null = null;
  for (const point of best.points) {
    if (typeof point.value !== "number") continue;
    if (before !== null) {
      x.push(place(point));
      y.push(before);
    }
    x.push(place(point));
    y.push((before = point.value));
  }
  if (before !== null) {
    x.push(Math.max(place(best), x.at(-1)!));
    y.push(before);
  }
  return [x, y];
}
