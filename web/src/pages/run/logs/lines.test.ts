import { expect, test } from "vitest";
import { lineAt, lineOfTime, linesOf, shown, type Chunk } from "./lines";

function chunk(id: number, text: string, more: Partial<Chunk> = {}): Chunk {
  return { id, attempt: 1, rank: 0, offset: 0, end: text.length, text, times: [[0, 100 + id]], ...more };
}

test("a line is whole, however it was cut, and ranks don't mix", () => {
  const lines = linesOf([
    chunk(1, "one\ntw"),
    chunk(2, "other ", { rank: 1 }),
    chunk(3, "o\nthree\n"),
    chunk(4, "rank\n", { rank: 1 }),
    chunk(5, "last", { attempt: 2 }),
  ]);
  expect(lines.map((line) => [line.rank, line.text])).toEqual([
    [0, "one"],
    [0, "two"],
    [1, "other rank"],
    [0, "three"],
    [-1, "attempt 2"],
    [0, "last"],
  ]);
  expect(new Set(lines.map((line) => line.key)).size).toBe(lines.length);
  expect(lines[1]!.time).toBe(101);
  expect(lineOfTime(lines, 102.5)).toBe(2);
  expect(lineOfTime(lines, 1)).toBe(0);
});

test("the line of a moment is the nearest that names its step", () => {
  const lines = linesOf([chunk(1, "step 12\nstep 1 of 2\nother\n"), chunk(2, "step 3\n")]);
  expect(lineOfTime(lines, 101.5, 1)).toBe(1);
  expect(lineOfTime(lines, 101.5, 3)).toBe(3);
  expect(lineOfTime(lines, 101.5, 99)).toBe(2);
});

test("a line of many chunks, and one that nothing ends", () => {
  expect(linesOf([chunk(1, "a"), chunk(2, "b"), chunk(3, "c\n"), chunk(4, "d")]).map((line) => line.text)).toEqual(["abc", "d"]); // prettier-ignore
  expect(linesOf([chunk(1, "a\n\n"), chunk(2, "\nb\n")]).map((line) => line.text)).toEqual(["a", "", "", "b"]);
});

test("what is missing ends a line", () => {
  const lines = linesOf([chunk(1, "a"), chunk(1, "[muster] 5 bytes are missing\n", { dropped: 5 }), chunk(2, "b\n")]);
  expect(lines.map((line) => line.text)).toEqual(["a", "[muster] 5 bytes are missing", "b"]);
});

test("lines are shown as a terminal leaves them", () => {
  expect(shown("\x1b[31mred\x1b[0m text\x07")).toBe("red text");
  expect(shown("10%\r50%\r90%\r")).toBe("90%");
  expect(shown("\x1b]8;;http://x\x1b\\link")).toBe("link");
  expect(shown("x".repeat(5000)).length).toBeLessThan(4100);
});

test("the line of a chunk that begins at a byte", () => {
  expect(lineAt(chunk(1, "é\nb\nc\n", { offset: 100 }), 105)).toBe(2);
  expect(lineAt(chunk(1, "a\n", { offset: 100 }), 90)).toBe(0);
});
