import { expect, test } from "vitest";
import type { Schemas } from "../../../api/client";
import { boxes } from "./lineage";

type Tree = Schemas["LineageNode"];
const node = (ref: string, nodes: Tree[] = [], more: Partial<Tree> = {}): Tree => ({
  ref, role: "reads", about: {}, nodes, left_out: 0, seen: false, cut: false, ...more,
}); // prettier-ignore

test("what a run was made from is at its left, what was made from it at its right", () => {
  const up = node("run:b", [node("data:c4@v1"), node("checkpoint:a/10", [node("run:a")])]);
  const down = node("run:b", [node("model:m/n/3", [], { left_out: 2, cut: true })]);
  const found = boxes("run:b", up, down);
  expect(found.map((box) => [box.ref, box.column, box.row, box.parent?.ref ?? null])).toEqual([
    ["run:b", 0, 0.5, null],
    ["data:c4@v1", -1, 0, "run:b"],
    ["checkpoint:a/10", -1, 1, "run:b"],
    ["run:a", -2, 1, "checkpoint:a/10"],
    ["model:m/n/3", 1, 0.5, "run:b"],
  ]);
  expect(found.map((box) => box.href)).toEqual([
    "/runs/b",
    "/data/c4%40v1",
    "/runs/a?tab=details",
    "/runs/a",
    "/models/m%2Fn",
  ]);
  expect(found[4]!.more).toBe("2 older left out, goes on");
});

test("what may not be seen has no link", () => {
  expect(boxes("run:b", node("run:b", [node("hidden")]), undefined)[1]).toMatchObject({ kind: "hidden", href: null });
});
