import { expect, test } from "vitest";
import { flat, part } from "./flat";

test("nested values become rows", () => {
  expect(flat({ a: { b: 1, c: [1, 2], d: [] }, e: [{ f: true }], g: null })).toEqual([
    { name: "a.b", text: "1" },
    { name: "a.c", text: "1, 2" },
    { name: "e.0.f", text: "true" },
  ]);
  expect(part({ a: [1] }, "a")).toEqual({});
});
