/** The axis of starts that all rows share: minutes and days fit on it, because it grows by powers. */
export interface Axis {
  now: number;
  /** Seconds from now to its end. */
  length: number;
  ticks: { at: number; name: string }[];
}

const NAMED: [number, string][] = [
  [60, "1 min"],
  [600, "10 min"],
  [3600, "1 h"],
  [6 * 3600, "6 h"],
  [86_400, "1 d"],
  [7 * 86_400, "7 d"],
  [30 * 86_400, "30 d"],
];
const SHORTEST = 600;
const UNIT = 60; // seconds that get about as much room as the next power of ten
const APART = 38; // pixels between two names, at least

/** `width`: of the axis in pixels. */
export function axisOf(times: (number | null)[], now: number, width = 200): Axis {
  const longest = Math.max(SHORTEST, ...times.map((time) => (time === null ? 0 : time - now))) * 1.05;
  const axis: Axis = { now, length: longest, ticks: [] };
  let last = 0;
  for (const [seconds, name] of NAMED) {
    const at = place(axis, now + seconds);
    if (seconds > longest || (at - last) * width < APART || at > 0.97) continue;
    axis.ticks.push({ at, name });
    last = at;
  }
  return axis;
}

/** From 0, which is now, to 1. */
export function place(axis: Axis, time: number): number {
  const seconds = Math.min(Math.max(0, time - axis.now), axis.length);
  return Math.log1p(seconds / UNIT) / Math.log1p(axis.length / UNIT);
}
