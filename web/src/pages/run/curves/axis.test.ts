import { expect, test } from "vitest";
import type { CurveView } from "../../../charts/curve";
import { asked, costScale, type Axis } from "./axis";

function curve(points: [step: number, time: number][]): CurveView {
  return { last_step: points.map(([step]) => step), last_time: points.map(([, time]) => time) } as CurveView;
}

test("cost is spread over the time for which attempts held their nodes", () => {
  const attempts = [
    { attempt: 1, first_step: 0, planned_at: 100, ended_at: 200, nodes: ["a"] },
    { attempt: 2, first_step: 10, planned_at: 300, nodes: ["a", "b"] }, // twice as much in each second
  ];
  const scale = costScale(curve([[0, 100], [10, 200], [11, 300], [20, 350]]), attempts, 8); // prettier-ignore
  expect(scale.steps).toEqual([0, 10, 11, 20]);
  expect(scale.values).toEqual([0, 4, 4, 8]);
  const axis: Axis = { kind: "series", label: "cost", origin: 100, scale };
  expect(asked(axis, { start: 2, stop: 6 })).toEqual({ start: 5, stop: 15.5 });
});

test("without a known attempt nothing is spread", () => {
  expect(costScale(curve([[0, 100]]), [{ attempt: 1, first_step: 0 }], 8).values).toEqual([]);
});
