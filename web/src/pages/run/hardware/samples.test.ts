import { expect, test } from "vitest";
import type { CurveView } from "../../../charts/curve";
import type { Series } from "../curves/groups";
import { highest, inTurns, matrix, samplesOf, shownValue } from "./samples";

test("samples are told by what they measure, accelerators first", () => {
  const found = samplesOf(
    [["system/cpu", 1], ["system/cpu", 0], ["system/gpu.1", 0], ["loss", 0]].map(([name, rank]) => ({ name, rank }) as Series), // prettier-ignore
  );
  expect(found).toEqual([
    { name: "system/gpu.1", title: "Accelerator, use (1)", ranks: [0] },
    { name: "system/cpu", title: "Processors, cores", ranks: [0, 1] },
  ]);
  expect(shownValue("system/gpu", 0.5)).toBe("50 %");
  expect(shownValue("system/disk_read", 1.5e6)).toBe("1.5 MB/s");
});

test("ranks over time, with gaps where nothing was sampled", () => {
  const curve = (rank: number, times: number[], mean: number[]): CurveView =>
    ({
      rank,
      first_time: times,
      last_time: times,
      mean,
      high: mean,
      count: times.map(() => 1),
    }) as unknown as CurveView;
  const curves = [curve(0, [0, 10], [1, 3]), curve(1, [2, 4], [5, 7])];
  const found = matrix(curves, 2);
  expect(found.values).toEqual([[1, 3], [6, null]]); // prettier-ignore
  expect(found.times).toEqual([0, 5, 10]);
  expect(highest("system/cpu", curves)).toBe(7);
  expect(highest("system/gpu", curves)).toBe(1);
});

test("questions are asked a few at a time, and answered in order", async () => {
  let [running, most] = [0, 0];
  const found = await inTurns([1, 2, 3, 4, 5], 2, async (item) => {
    most = Math.max(most, ++running);
    await Promise.resolve();
    running -= 1;
    return item * 2;
  });
  expect(found).toEqual([2, 4, 6, 8, 10]);
  expect(most).toBe(2);
});
