import { describe, expect, it } from "vitest";
import { difference, near } from "./lines";

const shown = (before: string, after: string): string[] =>
  difference(before, after).map((line) => line.mark + line.text);

describe("difference", () => {
  it("keeps what stays, and says what goes and what is new", () => {
    expect(shown("a\nb\nc\nd\n", "a\nB\nc\ne\nd\n")).toEqual([" a", "-b", "+B", " c", "+e", " d"]);
    expect(shown("", "a\n")).toEqual(["+a"]);
    expect(shown("a\n", "")).toEqual(["-a"]);
    expect(shown("a\nb", "a\nb\n")).toEqual([" a", " b"]);
  });

  it("makes the new text from the old one", () => {
    const before = "x\ny\nz\nx\ny";
    const after = "y\nx\nz\nz\ny\nw";
    const lines = difference(before, after);
    const of = (mark: string): string =>
      lines.filter((line) => line.mark === " " || line.mark === mark).map((line) => line.text).join("\n"); // prettier-ignore
    expect([of("-"), of("+")]).toEqual([before, after]);
  });
});

describe("near", () => {
  it("leaves out what is far from a difference", () => {
    const lines = difference("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n7");
    expect(near(lines, 1)).toEqual([4, { mark: " ", text: "5" }, { mark: "-", text: "6" }, { mark: "+", text: "7" }]);
    expect(near(difference("a", "a"))).toEqual([1]);
  });
});
