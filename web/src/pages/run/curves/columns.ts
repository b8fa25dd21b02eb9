/** The columns and lines of one chart: the mean with its extremes, smoothed or not, and what restarts went back behind. */
import type { Line } from "../../../charts/chart";
import { finite, type CurveView } from "../../../charts/curve";
import { place, type Axis } from "./axis";

/** `undefined` is no value at a place of another line, and no gap; null is a gap. */
type Cell = number | null | undefined;

export interface Drawn {
  data: Cell[][];
  lines: Line[];
  /** Of each place, the bucket of the curve; -1: it is of what was superseded. */
  buckets: Int32Array;
}

const COLOUR = "var(--accent)";
const OLD = "var(--dim)";

/** `old`: curves of single attempts; their points from `superseded_from` on are drawn faintly. */
export function drawn(curve: CurveView, old: CurveView[], axis: Axis, log: boolean): Drawn {
  const main = curve.count.map((_, at) => place(axis, curve.last_step[at]!, curve.last_time[at]!));
  const gaps = axis.kind === "time" || axis.kind === "since" ? betweenAttempts(curve, main) : [];
  const past = old.map((one) => superseded(one, curve, axis));
  const [xs, places] = merged([main, ...past.map((one) => one.x), gaps]);
  const shown = (values: readonly (number | string | null)[]): Cell[] =>
    finite(values).map((value) => (log && value !== null && value <= 0 ? null : value));
  const spread = (values: Cell[], at: number): Cell[] => {
    const column = new Array<Cell>(xs.length).fill(undefined);
    for (const [index, value] of values.entries()) column[places[at]![index]!] = value;
    if (at === 0) for (const gap of places.at(-1)!) column[gap] = null;
    return column;
  };
  const columns: Cell[][] = [
    spread(shown(curve.low), 0), spread(shown(curve.high), 0), spread(shown(curve.mean), 0),
  ]; // prettier-ignore
  const edge = curve.raw ? { hidden: true } : { faint: true }; // a spike of one bucket has to be seen
  const lines: Line[] = [
    { name: "lowest", colour: COLOUR, band: [2, 1], ...edge },
    { name: "highest", colour: COLOUR, ...edge },
    { name: "mean", colour: COLOUR, faint: curve.smooth !== undefined },
  ];
  if (curve.smooth) {
    columns.push(spread(shown(curve.smooth), 0));
    lines.push({ name: "smoothed", colour: COLOUR });
  }
  for (const [at, one] of past.entries()) {
    columns.push(spread(shown(one.values), at + 1));
    lines.push({ name: `attempt ${one.attempt}, superseded`, colour: OLD, faint: true });
  }
  const buckets = new Int32Array(xs.length).fill(-1);
  for (const [index, where] of places[0]!.entries()) buckets[where] = index;
  return { data: [xs, ...columns], lines, buckets };
}

/** Along time nothing is drawn from the end of an attempt to the first point of the next. */
function betweenAttempts(curve: CurveView, main: number[]): number[] {
  return main.flatMap((x, at) =>
    at > 0 && curve.attempt[at] !== curve.attempt[at - 1] && x > main[at - 1]! ? [(x + main[at - 1]!) / 2] : [],
  );
}

interface Past {
  attempt: number;
  x: number[];
  values: (number | string | null)[];
}

function superseded(one: CurveView, curve: CurveView, axis: Axis): Past {
  const attempt = one.attempt[0] ?? 0;
  const from = curve.bands.find((band) => band.attempt === attempt)?.superseded_from ?? Infinity;
  const kept = one.count.flatMap((_, at) => (one.last_step[at]! >= from ? [at] : []));
  const x = kept.map((at) => place(axis, one.last_step[at]!, one.last_time[at]!));
  return { attempt, x, values: kept.map((at) => one.mean[at]!) };
}

/** All places in order, each once, and for each list where its places are among them. */
export function merged(lists: number[][]): [number[], number[][]] {
  const xs = [...new Set(lists.flat())].sort((a, b) => a - b);
  const at = new Map(xs.map((x, index) => [x, index]));
  return [xs, lists.map((list) => list.map((x) => at.get(x)!))];
}
