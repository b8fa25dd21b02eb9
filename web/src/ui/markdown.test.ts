import { describe, expect, it } from "vitest";
import { blocks, inline } from "./markdown";

describe("blocks", () => {
  it("reads a runbook", () => {
    const text =
      "# A gang hung\n\ngpt-1 (`x`):\nlast.\n\n## Look\n```sh\nmuster why\nmuster ls\n```\n- one\n  goes on\n- two\n";
    expect(blocks(text)).toEqual([
      { kind: "heading", level: 1, parts: [{ kind: "text", text: "A gang hung" }] },
      {
        kind: "paragraph",
        parts: [
          { kind: "text", text: "gpt-1 (" },
          { kind: "code", text: "x" },
          { kind: "text", text: "): last." },
        ],
      },
      { kind: "heading", level: 2, parts: [{ kind: "text", text: "Look" }] },
      { kind: "code", language: "sh", text: "muster why\nmuster ls" },
      {
        kind: "list",
        ordered: false,
        items: [[{ kind: "text", text: "one goes on" }], [{ kind: "text", text: "two" }]],
      },
    ]);
  });

  it("keeps a fence that is not closed, and takes nothing for markup", () => {
    expect(blocks("```\n<script>")).toEqual([{ kind: "code", language: "", text: "<script>" }]);
    expect(blocks("<img src=x onerror=alert(1)>")).toEqual([
      { kind: "paragraph", parts: [{ kind: "text", text: "<img src=x onerror=alert(1)>" }] },
    ]);
  });
});

describe("inline", () => {
  it("links only what can't run anything", () => {
    expect(inline("[a](https://x.org/b) [c](/runs/1)")).toEqual([
      { kind: "link", text: "a", href: "https://x.org/b" },
      { kind: "text", text: " " },
      { kind: "link", text: "c", href: "/runs/1" },
    ]);
    for (const href of ["javascript:alert", "//evil.org", "/\\evil.org", "data:text/html,x", "../diagnose.md"]) {
      expect(inline(`[a](${href})`)).toEqual([{ kind: "text", text: "a" }]);
    }
  });

  it("knows code and strong words", () => {
    expect(inline("**a** and ``b`c``")).toEqual([
      { kind: "strong", text: "a" },
      { kind: "text", text: " and " },
      { kind: "code", text: "b`c" },
    ]);
  });
});
