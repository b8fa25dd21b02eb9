/** Curves over one another. */
import { expect, it } from "vitest";
import { bands, between, joined, places, type Curve } from "./overlay";

function curve(run: string, step: number[], mean: (number | string)[]): Curve {
  return { run, step, time: step.map((one) => 100 + one), low: mean, high: mean, mean } as Curve;
}

it("puts curves with other steps into one chart, with gaps only where a value is none", () => {
  const found = joined([curve("a", [1, 3], [1, 2]), curve("b", [2, 3], ["NaN", 5])], "step");
  expect(found).toEqual([
    [1, 2, 3],
    [1, undefined, 2],
    [undefined, null, 5],
  ]);
});

it("counts time from the first point of each run", () => {
  expect(places(curve("a", [5, 15], [1, 2]), "time")).toEqual([0, 10]);
});

it("reads a line between its points, and not beyond them", () => {
  expect(between([0, 2, 4], [0, null, 4], [-1, 0, 1, 4, 5])).toEqual([null, 0, 1, 4, null]);
});

it("has lowest, highest and mean of each group", () => {
  const found = bands([[curve("a", [0, 10], [0, 0]), curve("b", [0, 10], [2, 4])], []], "step");
  expect(found.length).toBe(7);
  expect([found[1]![0], found[2]![0], found[3]![0]]).toEqual([0, 2, 1]);
  expect([found[1]!.at(-1), found[2]!.at(-1), found[3]!.at(-1)]).toEqual([0, 4, 2]);
  expect(found[4]!.every((one) => one === null)).toBe(true);
});
