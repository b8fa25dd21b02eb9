import { describe, expect, it } from "vitest";
import { ordered, scopes, type Alert } from "./alerts";

function alert(state: Alert["state"], severity: Alert["severity"], since: number, kind: "run" | "node" = "run"): Alert {
  const subject = { kind, name: "x-1", title: "x", project: "vision", queue: "", pool: "", nodes: [] };
  return { number: since, state, rule: "hang", severity, subject, value: 1, text: "", since, fired_at: null, resolved_at: null, told_at: null, muted: "", acked_at: null, acked_by: "", ack_note: "" }; // prettier-ignore
}

describe("ordered", () => {
  it("puts first what a person should look at first", () => {
    const found = ordered([
      alert("resolved", "critical", 9),
      alert("firing", "info", 8),
      alert("firing", "critical", 1),
      alert("pending", "critical", 7),
      alert("firing", "critical", 2),
    ]);
    expect(found.map((one) => one.since)).toEqual([2, 1, 8, 7, 9]);
  });
});

describe("scopes", () => {
  it("offers what the role may silence", () => {
    const titles = (...given: Parameters<typeof scopes>): string[] => scopes(...given).map((one) => one.title);
    const run = alert("firing", "info", 1);
    expect(titles(run, ["vision", "other"], false)).toEqual(["run x-1", "project vision"]);
    expect(titles(run, ["other"], false)).toEqual([]);
    expect(titles({ ...alert("firing", "info", 1, "node") }, ["vision"], true)).toContain("node x-1");
    expect(titles(null, ["a", "b"], false)).toEqual(["project a", "project b"]);
    expect(titles(null, [], true)).toEqual(["everything"]);
  });
});
