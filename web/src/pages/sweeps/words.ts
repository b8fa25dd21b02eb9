/** Trials and their parameters in words. */
import type { Schemas } from "../../api/client";
import { number } from "../../format";

export type Report = Schemas["StudyReport"];
export type Status = Schemas["StudyStatus"];
export type Parameter = Schemas["ParameterView"];
export type Placed = Schemas["PlacedRow"];
export type Trial = Schemas["TrialRow"];
type Value = Trial["params"][string];

export function paramText(value: Value | undefined): string {
  return value === undefined ? "–" : typeof value === "number" ? number(value) : String(value);
}

export function paramsText(params: Trial["params"]): string {
  return Object.entries(params)
    .map(([name, value]) => `${name} ${paramText(value)}`)
    .join(", ");
}

/** Its values; of one that did not end, those so far. */
export function valuesText(trial: Trial): string {
  return trial.values ? trial.values.map((one) => number(one)).join(", ") : "–";
}

export function title(trial: Trial): string {
  const rank = trial.rank === null ? "" : `, rank ${trial.rank}`;
  return `trial ${trial.number}${rank}: ${valuesText(trial)}, ${trial.state}; ${paramsText(trial.params)}`;
}

/** How good a trial is among those that have a rank: 0 is the best twentieth, 3 the worse half; 4: it has none. */
export function gradeOf(trial: Trial, ranked: number): number {
  if (trial.rank === null) return 4;
  const share = (trial.rank - 1) / Math.max(ranked, 1);
  return share < 0.05 ? 0 : share < 0.2 ? 1 : share < 0.5 ? 2 : 3;
}

export const GRADES = ["best 5 %", "to 20 %", "to half", "worse"];
