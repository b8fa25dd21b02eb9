/** The axes of a study: parameters and objectives as places from 0 to 1, with the values that stand there; and brushes. */
import type { Schemas } from "../../api/client";
import { number } from "../../format";
import type { Parameter, Placed } from "./words";

export interface Tick {
  at: number;
  text: string;
}
export interface AxisOf {
  name: string;
  ticks: Tick[];
  place: (row: Placed) => number | null;
  /** What stands at a place, in words. */
  value: (at: number) => string;
}
/** Places between which a trial must be. */
export interface Brush {
  axis: string;
  low: number;
  high: number;
}
type Objective = Schemas["ObjectiveView"];

const LABELS = 8; // of values that are listed
const TICKS = 5;

/** The most important parameter first, then as they are in the study; each with its place there. */
export function byImportance(
  parameters: Parameter[],
  shares: { name: string; share: number }[],
): { one: Parameter; at: number }[] {
  const share = new Map(shares.map((each) => [each.name, each.share]));
  return parameters
    .map((one, at) => ({ one: { ...one, importance: share.get(one.name) ?? null }, at }))
    .sort((a, b) => (b.one.importance ?? -1) - (a.one.importance ?? -1));
}

export function parameterAxis(one: Parameter, index: number): AxisOf {
  return {
    name: one.name,
    ticks: one.listed ? listed(one) : ticks(one.low, one.high, one.log),
    place: (row) => row.places[index] ?? null,
    value: (at) => (one.listed ? (nearest(one, at)?.label ?? "") : number(valueAt(one.low, one.high, one.log, at), 3)),
  };
}

export function objectiveAxis(goal: Objective, index: number): AxisOf {
  const [low, high] = [goal.shown_low ?? 0, goal.shown_high ?? 1];
  return {
    name: goal.metric,
    ticks: ticks(low, high, goal.log),
    place: (row) => {
      const value = row.values?.[index];
      return typeof value === "number" ? clamped(placeOf(low, high, goal.log, value)) : null;
    },
    value: (at) => number(valueAt(low, high, goal.log, at), 3),
  };
}

export function valueAt(low: number, high: number, log: boolean, at: number): number {
  return log && low > 0 ? low * Math.pow(high / low, at) : low + (high - low) * at;
}

export function placeOf(low: number, high: number, log: boolean, value: number): number {
  if (high === low) return 0.5;
  if (log && low > 0) return value > 0 ? Math.log(value / low) / Math.log(high / low) : 0;
  return (value - low) / (high - low);
}

function clamped(at: number): number {
  return Math.min(1, Math.max(0, at));
}

/** At powers of ten, or at round numbers; where there are too few of them, at even places. */
export function ticks(low: number, high: number, log: boolean): Tick[] {
  const at = (value: number): Tick => ({
    at: placeOf(low, high, log, value),
    text: number(value, 3).replace(/\.?0+e/, "e"),
  });
  const round = log && low > 0 ? decades(low, high) : rounds(low, high);
  if (round.length >= 3) return round.map(at);
  return Array.from({ length: TICKS }, (_, index) => at(valueAt(low, high, log, index / (TICKS - 1))));
}

function decades(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first) / (TICKS + 1)));
  const found = [];
  for (let power = first; power <= last; power += every) found.push(Number(`1e${power}`));
  return found;
}

function rounds(low: number, high: number): number[] {
  const rough = (0.7 * (high - low)) / TICKS;
  if (!(rough > 0)) return [];
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? rough;
  const found = [];
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high + step * 1e-9; count += 1)
    found.push(Number((count * step).toPrecision(12)));
  return found;
}

function listed(one: Parameter): Tick[] {
  const every = Math.ceil(one.bins.length / LABELS);
  return one.bins
    .filter((_, index) => index % every === 0)
    .map((bin) => ({ at: (bin.start + bin.end) / 2, text: bin.label }));
}

function nearest(one: Parameter, at: number): Schemas["BinView"] | undefined {
  return one.bins.find((bin) => at <= bin.end) ?? one.bins.at(-1);
}

// --- brushes ---------------------------------------------------------------------------------------------------------
export function brushesOf(text: string): Brush[] {
  return text
    .split(",")
    .map((one) => one.split(":"))
    .flatMap(([axis, from, to]) => {
      const [low, high] = [Number(from), Number(to)];
      const good = axis && from && to && low >= 0 && high <= 1 && low < high;
      return good ? [{ axis: decodeURIComponent(axis), low, high }] : [];
    });
}

export function brushText(brushes: Brush[]): string {
  return brushes.map((one) => `${encodeURIComponent(one.axis)}:${short(one.low)}:${short(one.high)}`).join(",");
}

function short(place: number): string {
  return String(Number(place.toFixed(3)));
}

/** The brushes with another one for this axis; null takes it away, and so does all of the axis. */
export function brushed(brushes: Brush[], axis: string, range: [number, number] | null): Brush[] {
  const others = brushes.filter((one) => one.axis !== axis);
  if (range === null || (range[0] <= 0 && range[1] >= 1)) return others;
  return [...others, { axis, low: Math.max(0, range[0]), high: Math.min(1, range[1]) }];
}

export function isWithin(row: Placed, axes: AxisOf[], brushes: Brush[]): boolean {
  return brushes.every((brush) => {
    const at = axes.find((one) => one.name === brush.axis)?.place(row);
    return at === undefined ? true : at !== null && at >= brush.low && at <= brush.high;
  });
}

export function brushWords(brush: Brush, axis: AxisOf | undefined): string {
  if (!axis) return brush.axis;
  const [low, high] = [axis.value(brush.low + 1e-9), axis.value(brush.high - 1e-9)];
  return low === high ? `${brush.axis} ${low}` : `${brush.axis} ${low} to ${high}`;
}
