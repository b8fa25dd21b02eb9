/** Axes, brushes and the best so far. */
import { expect, it } from "vitest";
import {
  brushed,
  brushesOf,
  brushText,
  brushWords,
  isWithin,
  objectiveAxis,
  parameterAxis,
  placeOf,
  ticks,
  valueAt,
} from "./axes";
import { stairs, unitOf } from "./progress";
import { gradeOf, type Parameter, type Placed, type Trial } from "./words";

const LR = { name: "lr", low: 1e-4, high: 1, log: true, listed: false, bins: [] } as unknown as Parameter;
const KIND = {
  name: "kind",
  listed: true,
  bins: [
    { label: "a", start: 0, end: 0.5 },
    { label: "b", start: 0.5, end: 1 },
  ],
} as unknown as Parameter;
const GOAL = { metric: "loss", shown_low: 1, shown_high: 3, log: false } as never;

function row(places: (number | null)[], value: number | string): Placed {
  return { places, values: [value] } as Placed;
}

it("has places and values that are each other's inverse", () => {
  for (const log of [true, false]) expect(placeOf(1e-3, 10, log, valueAt(1e-3, 10, log, 0.3))).toBeCloseTo(0.3);
  expect(placeOf(2, 2, false, 2)).toBe(0.5);
});

it("has axes of parameters and objectives", () => {
  const [lr, kind, loss] = [parameterAxis(LR, 0), parameterAxis(KIND, 1), objectiveAxis(GOAL, 0)];
  expect(lr.ticks.map((tick) => tick.text)).toEqual(["0.0001", "0.001", "0.01", "0.1", "1"]);
  expect(kind.ticks).toEqual([
    { at: 0.25, text: "a" },
    { at: 0.75, text: "b" },
  ]);
  expect([kind.value(0.4), kind.value(0.6)]).toEqual(["a", "b"]);
  expect([loss.place(row([], 2)), loss.place(row([], 9)), loss.place(row([], "NaN"))]).toEqual([0.5, 1, null]);
});

it("has ticks at round numbers", () => {
  const words = (low: number, high: number, log: boolean) => ticks(low, high, log).map((tick) => tick.text);
  expect(words(0.0171, 0.559, false)).toEqual(["0.1", "0.2", "0.3", "0.4", "0.5"]);
  expect(words(0, 1, false)).toEqual(["0", "0.2", "0.4", "0.6", "0.8", "1"]);
  expect(words(1e-5, 1, true)[0]).toBe("1e-5");
  expect(words(2, 5, true).length).toBe(5);
});

it("keeps brushes in the address, one for each axis", () => {
  let brushes = brushed([], "lr", [0.25, 0.5]);
  brushes = brushed(brushes, "a:b", [-1, 0.123456]);
  expect(brushText(brushes)).toBe("lr:0.25:0.5,a%3Ab:0:0.123");
  expect(brushesOf(brushText(brushes)).map((one) => one.axis)).toEqual(["lr", "a:b"]);
  expect(brushed(brushes, "lr", [0, 1]).map((one) => one.axis)).toEqual(["a:b"]);
  expect(brushesOf("lr:1:0,x,lr:0:nan")).toEqual([]);
});

it("takes the trials that are within all brushes", () => {
  const axes = [parameterAxis(LR, 0), objectiveAxis(GOAL, 0)];
  const brushes = [
    { axis: "lr", low: 0, high: 0.5 },
    { axis: "loss", low: 0, high: 0.5 },
  ];
  expect(isWithin(row([0.2], 1.5), axes, brushes)).toBe(true);
  expect(isWithin(row([0.2], 2.5), axes, brushes)).toBe(false);
  expect(isWithin(row([null], 1.5), axes, brushes)).toBe(false);
  expect(brushWords(brushes[0]!, axes[0])).toBe("lr 0.0001 to 0.01");
});

it("draws the best so far as stairs until now", () => {
  const point = (ended: number, value: number) => ({ trial: 1, ended, seconds: ended * 60, cost: ended * 1e6, value });
  const best = { metric: "loss", points: [point(1, 3), point(4, 1)], ended: 6, seconds: 600, cost: 6e6 };
  expect(stairs(best, "trials")).toEqual([
    [1, 4, 4, 6],
    [3, 3, 1, 1],
  ]);
  expect(stairs(best, "time")[0]).toEqual([1, 4, 4, 10]);
  expect(stairs(best, "cost")[0]).toEqual([1, 4, 4, 6]);
  expect(unitOf(100).name + unitOf(9000).name + unitOf(90_000).name).toBe("sminh");
});

it("grades trials by their rank", () => {
  const of = (rank: number | null) => gradeOf({ rank } as Trial, 100);
  expect([of(1), of(6), of(40), of(90), of(null)]).toEqual([0, 1, 2, 3, 4]);
});
