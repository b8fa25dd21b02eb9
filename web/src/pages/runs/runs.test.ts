/** Completion, mistakes, columns and groups. */
import { describe, expect, it } from "vitest";
import { ApiError } from "../../api/client";
import { difference, headers, namesOf, shown, suggested, type Row } from "./columns";
import { accepted, complete, fieldAt, quoted, type FieldView } from "./complete";
import { grouped, narrowed, sorted } from "./groups";
import { mistakeOf } from "./mistake";

const FIELDS: FieldView[] = [
  { field: "phase", kind: "phase" },
  { field: "created", kind: "time" },
  { field: "name", kind: "column" },
  { field: "valid", kind: "flag" },
  { field: "metrics.val_loss", kind: "metric" },
  { field: "metrics.loss", kind: "metric" },
  { field: "params.lr", kind: "param" },
  { field: "params.`a b`", kind: "param" },
];

function offered(text: string, caret = text.length, seen?: (field: string) => string[]): string[] {
  return complete(text, caret, FIELDS, seen).options.map((one) => one.text);
}

describe("completion", () => {
  it("offers fields at the start, after joiners, not, has and parentheses", () => {
    for (const before of ["", "failed and ", "not ", "(", "has ", "params.lr = 3 or ", "valid and "])
      expect(offered(before)).toContain("metrics.loss");
  });
  it("puts what begins with the typed text first", () => {
    expect(offered("metrics.l")[0]).toBe("metrics.loss");
    expect(offered("loss").slice(0, 2)).toEqual(["metrics.loss", "metrics.val_loss"]);
    expect(offered("fai")).toEqual(["failed"]);
  });
  it("offers the parts of a metric", () => {
    expect(offered("metrics.loss.m")).toEqual(["metrics.loss.min", "metrics.loss.max"]);
  });
  it("offers operators by the kind of the field", () => {
    expect(offered("metrics.loss ")).not.toContain("~");
    expect(offered("name ")).toContain("~");
    expect(offered("valid ")).toEqual(["=", "and", "or"]);
    expect(offered("params.lr not ")).toContain("in");
  });
  it("offers values: phases, times, and what was seen", () => {
    expect(offered("phase = ")).toContain("succeeded");
    expect(offered("phase in (failed, sto")).toEqual(["stopped", "stopping"].sort().reverse());
    expect(offered("created > ")).toContain("-7d");
    expect(offered("params.lr = ", undefined, (field) => (field === "params.lr" ? ["0.1", "a b"] : []))).toEqual([
      "0.1",
      '"a b"',
    ]);
    expect(offered("metrics.loss<")).toEqual([]);
  });
  it("replaces the word at the caret, and nothing else", () => {
    const text = "params.lr = 3 and val and failed";
    const caret = text.indexOf("val") + 2;
    const found = complete(text, caret, FIELDS);
    expect(accepted(text, found, { text: "valid", note: "" })).toEqual({
      text: "params.lr = 3 and valid and failed",
      caret: text.indexOf("val") + 6,
    });
  });
  it("knows when a field is typed, and what of it", () => {
    expect(fieldAt("params.`a", 9)).toBe("params.a");
    expect(fieldAt("params.lr = ", 12)).toBeNull();
    expect(fieldAt('name = "it', 10)).toBeNull();
  });
  it("quotes what needs it", () => {
    expect([quoted("a-1"), quoted("and"), quoted('say "x" \\')]).toEqual(["a-1", '"and"', '"say \\"x\\" \\\\"']);
  });
});

describe("a mistake", () => {
  it("is read with its carets", () => {
    const message = "The query can't be read: there is no field 'los'.\n  los < 2\n  ^^^";
    const found = mistakeOf(new ApiError(400, { code: "invalid", message, hint: "Did you mean `metrics.loss`?" }));
    expect(found).toEqual({
      what: "There is no field 'los'.",
      line: "los < 2",
      carets: "^^^",
      hint: "Did you mean `metrics.loss`?",
    });
  });
  it("is none without carets", () => {
    expect(mistakeOf(new ApiError(500, { code: "bug", message: "It failed.", hint: "" }))).toBeNull();
  });
});

describe("columns", () => {
  it("splits names, also with commas in backquotes", () => {
    expect(namesOf("phase,params.`a,b`, metrics.loss")).toEqual(["phase", "params.`a,b`", "metrics.loss"]);
  });
  it("shortens headers where that is clear", () => {
    expect(headers(["metrics.loss", "params.lr", "tags.lr"])).toEqual(["loss", "params.lr", "tags.lr"]);
  });
  it("suggests what tells runs apart", () => {
    const run = (params: Record<string, string>, metrics: Record<string, number>) => ({ params, metrics }) as never;
    const found = suggested([
      run({ a: "1", b: "1" }, { loss: 1, "system/cpu": 1 }),
      run({ a: "1", b: "2" }, { loss: 1 }),
    ]);
    expect(found.slice(4)).toEqual(["metrics.loss", "params.b", "params.a"]);
  });
  it("says how far a number is from the baseline", () => {
    expect(difference("metrics.loss", 1.1, 1)).toBe("+10 %");
    expect(difference("params.lr", "1e-4", "1e-3")).toBe("−90 %");
    expect(difference("metrics.loss", 0.5, 0)).toBe("+0.5");
    expect(difference("metrics.loss", 30, 1)).toBe("×30");
    expect(difference("metrics.loss", 1, 1)).toBe("");
    expect(difference("params.model", "a", "b")).toBe("");
  });
  it("shows values with their units", () => {
    expect([shown("duration", 90), shown("valid", false), shown("metrics.x", "NaN"), shown("x", null)]).toEqual([
      "1 min 30 s",
      "no",
      "NaN",
      "–",
    ]);
  });
});

describe("groups", () => {
  const row = (id: string, cells: Row["cells"]) => ({ id, cells }) as Row;
  const rows = [
    row("a", { "params.lr": "1e-3", "metrics.loss": 1 }),
    row("b", { "params.lr": "0.001", "metrics.loss": 3 }),
    row("c", { "params.lr": null, "metrics.loss": "NaN" }),
  ];
  it("have mean and range, and take equal numbers as one value", () => {
    const found = grouped(rows, "params.lr", ["metrics.loss"]);
    expect(found.map((one) => one.ids)).toEqual([["a", "b"], ["c"]]);
    expect(found[0]!.figures["metrics.loss"]).toEqual({ count: 2, mean: 2, low: 1, high: 3 });
    expect(found[1]!.figures).toEqual({});
    expect(sorted(found, "-metrics.loss").map((one) => one.ids.length)).toEqual([2, 1]);
    expect(sorted(found, "runs").map((one) => one.ids.length)).toEqual([1, 2]);
  });
  it("become a query", () => {
    expect(narrowed("failed or valid", "tags.a", "x y")).toBe('(failed or valid) and tags.a = "x y"');
    expect(narrowed("", "params.lr", null)).toBe("params.lr not exists");
  });
});
