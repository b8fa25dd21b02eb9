import { expect, test } from "vitest";
import { axisOf, place } from "./timeline";

test("now is at its left end, the last start at its right end, and places grow with time", () => {
  const axis = axisOf([1000 + 86_400, null, 1060], 1000);
  expect(place(axis, 500)).toBe(0);
  expect(place(axis, 1000 + 10 * 86_400)).toBe(1);
  const places = [1000, 1060, 4600, 80_000].map((time) => place(axis, time));
  expect(places).toEqual([...places].sort((a, b) => a - b));
});

test("names of ticks don't run into each other, and stay on the axis", () => {
  for (const length of [10, 600, 5000, 86_400, 40 * 86_400]) {
    const { ticks } = axisOf([length], 0);
    expect(ticks.length).toBeGreaterThan(0);
    for (const [index, tick] of ticks.entries()) {
      expect(tick.at).toBeGreaterThan(0);
      expect(tick.at).toBeLessThan(1);
      if (index) expect(tick.at - ticks[index - 1]!.at).toBeGreaterThan(0.1);
    }
  }
});
