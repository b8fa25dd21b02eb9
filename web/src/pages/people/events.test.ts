import { describe, expect, it } from "vitest";
import { summary } from "./events";

describe("summary", () => {
  it("says the reason, or else what the event holds", () => {
    const reason = { code: "no_room", message: "No room.", hint: "" };
    expect(summary({ kind: "attempt.ended", data: { code: 1, reason } })).toBe("No room.");
    expect(summary({ kind: "token.created", data: { token: "abc", name: "", role: "viewer", scopes: [] } })).toBe(
      "token abc, role viewer",
    );
    expect(summary({ kind: "rules.set", data: { text: "x".repeat(200) } })).toHaveLength("text ".length + 81);
    expect(summary({ kind: "x", data: {} })).toBe("");
  });
});
