/** What curves are drawn along: steps, time, time since the start, or a series that counts something. */
import type { CurveView } from "../../../charts/curve";
import type { Range } from "../../../charts/chart";
import type { Schemas } from "../../../api/client";
import type { Series } from "./groups";

/** How far a counting series was at each step. */
export interface Scale {
  steps: number[];
  values: number[];
}

export interface Axis {
  kind: "step" | "time" | "since" | "series";
  label: string;
  /** Seconds since 1970 at which time since the start is 0. */
  origin: number;
  scale: Scale | null;
}

/** A range of the chart as the server's: along steps or time. */
export function asked(axis: Axis, range: Range | null): Range | null {
  if (!range) return null;
  if (axis.kind === "since") return { start: range.start + axis.origin, stop: range.stop + axis.origin };
  if (axis.kind === "series" && axis.scale) {
    const { values, steps } = axis.scale;
    return { start: between(values, steps, range.start), stop: between(values, steps, range.stop) };
  }
  return range;
}

/** Where a step or a time of a curve is on the chart. */
export function place(axis: Axis, step: number, time: number): number {
  if (axis.kind === "time") return time;
  if (axis.kind === "since") return time - axis.origin;
  if (axis.kind === "series" && axis.scale) return between(axis.scale.steps, axis.scale.values, step);
  return step;
}

/** A little more than what is seen, so that lines leave the chart at its edges. */
export function widened(range: Range): Range {
  const more = (range.stop - range.start) * 0.03;
  return { start: range.start - more, stop: range.stop + more };
}

/** All that there is to see, from the summaries of the series. */
export function extent(axis: Axis, series: Series[], started: number): Range | null {
  if (series.length === 0) return null;
  const steps = series.map((one) => one.last_step);
  const times = series.map((one) => one.last_time);
  if (axis.kind === "time") return { start: started, stop: Math.max(...times) };
  if (axis.kind === "since") return { start: 0, stop: Math.max(...times) - axis.origin };
  if (axis.kind === "series" && axis.scale?.values.length)
    return { start: axis.scale.values[0]!, stop: axis.scale.values.at(-1)! };
  return { start: 0, stop: Math.max(...steps) };
}

/** The range moved or scaled, and kept within the whole; null when it is the whole. */
export function moved(range: Range | null, whole: Range, by: { shift?: number; zoom?: number }): Range | null {
  const now = range ?? whole;
  const width = (now.stop - now.start) / (by.zoom ?? 1);
  const full = whole.stop - whole.start;
  if (width >= full) return null;
  const middle = (now.start + now.stop) / 2 + (by.shift ?? 0) * (now.stop - now.start);
  const start = Math.min(Math.max(middle - width / 2, whole.start), whole.stop - width);
  return { start, stop: start + width };
}

export function scaleOf(curve: CurveView): Scale {
  const steps: number[] = [];
  const values: number[] = [];
  for (const [at, value] of curve.last.entries()) {
    if (typeof value !== "number" || value < (values.at(-1) ?? -Infinity)) continue;
    steps.push(curve.last_step[at]!);
    values.push(value);
  }
  return { steps, values };
}

/** What the run had cost at each step: its amount, spread over the time for which its attempts held their nodes. */
export function costScale(curve: CurveView, attempts: Schemas["RunAttempt"][], amount: number): Scale {
  const last = Math.max(...curve.last_time);
  const held = attempts.flatMap((one) => {
    const from = one.planned_at ?? one.started_at ?? one.running_at;
    return from === undefined ? [] : [{ from, to: one.ended_at ?? last, nodes: Math.max(1, one.nodes?.length ?? 1) }];
  });
  const until = (time: number): number =>
    held.reduce((sum, one) => sum + Math.max(0, Math.min(time, one.to) - one.from) * one.nodes, 0);
  const whole = until(Infinity);
  const scale: Scale = { steps: [], values: [] };
  if (whole <= 0) return scale;
  for (const [at, step] of curve.last_step.entries()) {
    const value = (amount * until(curve.last_time[at]!)) / whole;
    if (value < (scale.values.at(-1) ?? -Infinity)) continue;
    scale.steps.push(step);
    scale.values.push(value);
  }
  return scale;
}

/** The value at `x` on the line through (from[i], to[i]); `from` does not fall. */
export function between(from: number[], to: number[], x: number): number {
  if (from.length === 0) return x;
  let low = 0;
  let high = from.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (from[middle]! < x) low = middle + 1;
    else high = middle;
  }
  if (low === 0 || from[low] === from[low - 1]) return to[low]!;
  const share = Math.min(1, (x - from[low - 1]!) / (from[low]! - from[low - 1]!));
  return to[low - 1]! + share * (to[low]! - to[low - 1]!);
}
