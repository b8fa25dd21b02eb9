import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { barsOf, hottest, treeOf } from "./profile";

function rank(stacks: [string, number][]): Schemas["RankStacks"] {
  const names = [...new Set(stacks.flatMap(([stack]) => stack.split(" ")))];
  return {
    rank: 0, time: 0, problem: "", processes: [],
    profile: {
      seconds: 1, samples: 0, left_out: 0, source: "py-spy", problem: "",
      frames: names.map((name) => ({ function: name, file: "train.py", line: 1 })),
      stacks: stacks.map(([stack, count]) => ({ at: stack.split(" ").map((name) => names.indexOf(name)), count })),
    },
  }; // prettier-ignore
}

test("stacks of all ranks are one tree", () => {
  const root = treeOf([rank([["main load", 1], ["main step", 5]]), rank([["main step", 2], ["main", 2]])]); // prettier-ignore
  expect(root.count).toBe(10);
  expect(root.calls.map((one) => [one.name, one.count])).toEqual([["main", 10]]);
  expect(root.calls[0]!.calls.map((one) => [one.name, one.count])).toEqual([["step", 7], ["load", 1]]); // prettier-ignore
});

test("bars lie below who called them, and narrow ones are left out", () => {
  const bars = barsOf(
    treeOf([
      rank([
        ["main load", 1],
        ["main step", 999],
      ]),
    ]),
  );
  expect(bars.map((one) => [one.call.name, one.depth, one.start])).toEqual([["main", 0, 0], ["step", 1, 0]]); // prettier-ignore
  expect(barsOf(treeOf([]))).toEqual([]);
});

test("the hottest functions are those in which stacks end", () => {
  const found = hottest([rank([["main load", 1], ["main step", 5]]), rank([["main step", 2], ["main", 4]])], 2); // prettier-ignore
  expect(found.map((one) => [one.name, one.own])).toEqual([["step", 7], ["main", 4]]); // prettier-ignore
});
