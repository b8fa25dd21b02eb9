/** What a chart asks for, as text: the same question is not asked twice. */
import type { CurveOptions } from "../../../charts/curve";

export const BUCKETS = 600;
/** Of a chart as a page opens with it: all steps, not smoothed. */
export const FIRST: CurveOptions = { buckets: BUCKETS, axis: "step", range: null, smooth: 0 };

export function questionOf({ buckets, axis, range, smooth }: CurveOptions): string {
  return JSON.stringify({ buckets, axis, range: range ?? null, smooth: smooth ?? 0 });
}

export function earlyName(run: string, name: string, question: string): string {
  return `curve ${name} of ${run}: ${question}`;
}
