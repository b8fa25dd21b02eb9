/** Curves of several runs as the columns of one chart: over steps, or over the time since each began. */
import type { Schemas } from "../../api/client";
import { finite } from "../../charts/curve";

export type Curve = Schemas["ComparedCurve"];
export type Over = "step" | "time";
/** A value is undefined where only another run has one: a line goes on there. Null is a gap. */
export type Columns = (number | null | undefined)[][];

const GRID = 240; // places at which groups are compared

export function places(curve: Curve, over: Over): number[] {
  if (over === "step") return curve.step;
  const first = curve.time[0] ?? 0;
  return curve.time.map((one) => one - first);
}

/** One column for each curve. */
export function joined(curves: Curve[], over: Over): Columns {
  const all = curves.map((curve) => places(curve, over));
  const x = [...new Set(all.flat())].sort((a, b) => a - b);
  const at = new Map(x.map((one, index) => [one, index]));
  const columns: Columns = [x];
  for (const [index, curve] of curves.entries()) {
    const column = new Array<number | null | undefined>(x.length).fill(undefined);
    const mean = finite(curve.mean);
    for (const [point, place] of all[index]!.entries()) column[at.get(place)!] = mean[point]!;
    columns.push(column);
  }
  return columns;
}

/** For each group its lowest, its highest and its mean, on a grid; runs are taken where they have been. */
export function bands(groups: Curve[][], over: Over): Columns {
  const curves = groups.flat().filter((curve) => curve.step.length);
  if (curves.length === 0) return [[]];
  const all = curves.map((curve) => places(curve, over));
  const low = Math.min(...all.map((one) => one[0]!));
  const high = Math.max(...all.map((one) => one.at(-1)!));
  const wide = high > low ? GRID : 1;
  const x = Array.from({ length: wide }, (_, at) => low + ((high - low) * at) / Math.max(wide - 1, 1));
  const columns: Columns = [x];
  for (const group of groups) {
    const lines = group.map((curve) => between(places(curve, over), finite(curve.mean), x));
    const values = x.map((_, at) => lines.map((line) => line[at]).filter((one) => one !== null && one !== undefined));
    columns.push(values.map((some) => (some.length ? Math.min(...some) : null)));
    columns.push(values.map((some) => (some.length ? Math.max(...some) : null)));
    columns.push(values.map((some) => (some.length ? some.reduce((sum, one) => sum + one, 0) / some.length : null)));
  }
  return columns;
}

/** The values of a line at the places of a grid, straight between two points; null before its first and after its last. */
export function between(at: number[], values: (number | null)[], grid: number[]): (number | null)[] {
  const known = at.map((place, index) => ({ place, value: values[index] })).filter((one) => one.value !== null);
  let next = 0;
  return grid.map((x) => {
    while (next < known.length && known[next]!.place < x) next += 1;
    const [before, after] = [known[next - 1], known[next]];
    if (after?.place === x) return after.value!;
    if (!before || !after) return null;
    const share = (x - before.place) / (after.place - before.place);
    return before.value! + (after.value! - before.value!) * share;
  });
}
