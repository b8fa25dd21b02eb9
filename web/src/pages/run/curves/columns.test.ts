import { expect, test } from "vitest";
import type { CurveView } from "../../../charts/curve";
import { asked, between, extent, moved, place, scaleOf, type Axis } from "./axis";
import { drawn, merged } from "./columns";
import { countable, grouped, measured, type Series } from "./groups";

const STEP: Axis = { kind: "step", label: "step", origin: 0, scale: null };

function curve(steps: number[], values: (number | string)[], more: Partial<CurveView> = {}): CurveView {
  return {
    id: "r", name: "loss", rank: 0, axis: "step", points: steps.length, raw: true, first_step: steps, last_step: steps,
    first_time: steps.map((step) => 1000 + step), last_time: steps.map((step) => 1000 + step),
    count: steps.map(() => 1), nans: steps.map(() => 0), low: values, high: values, mean: values, last: values,
    attempt: steps.map(() => 1), bands: [], ...more,
  } as CurveView; // prettier-ignore
}

function series(name: string, more: Partial<Series> = {}): Series {
  return {
    name, rank: 0, points: 10, nans: 0, last: 9, last_step: 9, last_time: 1009, last_attempt: 1, low: 0, low_step: 0,
    high: 9, high_step: 9, ...more,
  }; // prettier-ignore
}

test("series are grouped by the first part of their names, without hardware", () => {
  const found = measured([series("system/cpu"), series("val/loss"), series("lr"), series("loss"), series("loss", { rank: 1 })]); // prettier-ignore
  expect(found.map((one) => one.name)).toEqual(["val/loss", "lr", "loss"]);
  expect(grouped(["val/loss", "val/acc", "lr", "loss"], "")).toEqual([
    { prefix: "", names: ["loss", "lr"] },
    { prefix: "val", names: ["val/loss", "val/acc"] },
  ]);
  expect(grouped(["val/loss", "lr"], "L val")).toEqual([{ prefix: "val", names: ["val/loss"] }]);
});

test("what only grows can be an axis", () => {
  expect(
    countable([series("tokens"), series("loss"), series("train/samples"), series("tokens", { high: 20 })]),
  ).toEqual(["tokens", "train/samples"]);
});

test("ranges are asked for in the server's units", () => {
  const range = { start: 2, stop: 4 };
  expect(asked(STEP, range)).toEqual(range);
  expect(asked({ ...STEP, kind: "since", origin: 1000 }, range)).toEqual({ start: 1002, stop: 1004 });
  const scale = { steps: [0, 10, 20], values: [0, 100, 400] };
  expect(asked({ ...STEP, kind: "series", scale }, { start: 50, stop: 250 })).toEqual({ start: 5, stop: 15 });
  expect(place({ ...STEP, kind: "series", scale }, 15, 0)).toBe(250);
  expect(between([0, 10], [0, 100], 99)).toBe(100);
});

test("a range is moved and scaled within the whole", () => {
  const whole = { start: 0, stop: 100 };
  expect(moved(null, whole, { zoom: 2 })).toEqual({ start: 25, stop: 75 });
  expect(moved({ start: 25, stop: 75 }, whole, { zoom: 0.5 })).toBeNull();
  expect(moved({ start: 0, stop: 10 }, whole, { shift: -0.5 })).toEqual({ start: 0, stop: 10 });
  expect(moved({ start: 90, stop: 95 }, whole, { shift: 0.5 })).toEqual({ start: 92.5, stop: 97.5 });
  expect(extent(STEP, [series("a", { last_step: 7 }), series("b", { last_step: 70 })], 0)).toEqual({
    start: 0,
    stop: 70,
  });
});

test("a scale leaves out what falls", () => {
  expect(scaleOf(curve([0, 1, 2, 3], [0, 5, 4, 9]))).toEqual({ steps: [0, 1, 3], values: [0, 5, 9] });
});

test("places of several curves are joined without gaps", () => {
  expect(merged([[1, 3], [2, 3]])).toEqual([[1, 2, 3], [[0, 2], [1, 2]]]); // prettier-ignore
});

test("superseded points are lines of their own, and not finite ones are gaps", () => {
  const bands = [{ attempt: 1, first_step: 0, last_step: 1, superseded_from: 2 }];
  const main = curve([0, 1, 2, 3], [5, 4, "NaN", 3], { bands, smooth: [5, 4.5, "NaN", 4] });
  const old = curve([0, 1, 2, 4], [5, 4, 6, 7]);
  const found = drawn(main, [old], STEP, false);
  expect(found.data[0]).toEqual([0, 1, 2, 3, 4]);
  expect(found.data[3]).toEqual([5, 4, null, 3, undefined]);
  expect(found.data[4]).toEqual([5, 4.5, null, 4, undefined]);
  expect(found.data[5]).toEqual([undefined, undefined, 6, undefined, 7]);
  expect(found.lines.map((line) => line.name)).toEqual(["lowest", "highest", "mean", "smoothed", "attempt 1, superseded"]); // prettier-ignore
  expect([...found.buckets]).toEqual([0, 1, 2, 3, -1]);
  expect(drawn(curve([0, 1], [0, 1]), [], STEP, true).data[3]).toEqual([null, 1]);
});

test("along time there is a gap between attempts", () => {
  const main = curve([0, 1, 2], [3, 2, 1], { attempt: [1, 1, 2], last_time: [10, 11, 21] });
  const found = drawn(main, [], { ...STEP, kind: "since", origin: 10 }, false);
  expect(found.data[0]).toEqual([0, 1, 6, 11]);
  expect(found.data[3]).toEqual([3, 2, null, 1]);
  expect([...found.buckets]).toEqual([0, 1, -1, 2]);
});
