/** Curves as the server sends them: buckets with their extremes, along steps or time. */
import { api, type Schemas } from "../api/client";
import type { Range } from "./chart";

export type CurveView = Schemas["CurveView"];
export type Axis = CurveView["axis"];

export interface CurveOptions {
  buckets: number;
  axis: Axis;
  range?: Range | null;
  rank?: number | null;
  attempt?: number;
  superseded?: boolean;
  smooth?: number;
}

export async function loadCurve(
  run: string,
  name: string,
  options: CurveOptions,
  signal: AbortSignal,
): Promise<CurveView> {
  const { buckets, axis, range, rank, attempt, superseded, smooth } = options;
  const query = {
    buckets,
    axis,
    ...(range ?? {}),
    ...(rank == null ? {} : { rank }),
    ...(attempt === undefined ? {} : { attempt }),
    ...(superseded ? { superseded } : {}),
    ...(smooth ? { smooth } : {}),
  };
  return api.get("/v1/runs/{ref}/metrics/{name}", { path: { ref: run, name }, query, signal });
}

/** NaN and infinities come as text; a chart has a gap there. */
export function finite(values: readonly (number | string | null)[]): (number | null)[] {
  return values.map((value) => (typeof value === "number" && Number.isFinite(value) ? value : null));
}
