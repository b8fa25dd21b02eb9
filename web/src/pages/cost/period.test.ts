import { describe, expect, it } from "vitest";
import { entriesOf, groupOf, monthBefore, periodOf } from "./period";

const address = (text: string) => (name: string) => new URLSearchParams(text).get(name) ?? "";
const TODAY = new Date(2026, 10, 19);

describe("periodOf", () => {
  it("reads the period of the address", () => {
    expect(periodOf(address(""), TODAY)).toEqual({ month: "this" });
    expect(periodOf(address("period=last"), TODAY)).toEqual({ month: "2026-10" });
    expect(periodOf(address("period=7d"), TODAY)).toEqual({ since: "7d" });
    expect(periodOf(address("period=custom&since=2026-11-01&until=2026-11-03"), TODAY)).toEqual({
      since: "2026-11-01",
      until: "2026-11-03",
    });
  });

  it("is this month for what it does not know", () => {
    expect(periodOf(address("period=custom"), TODAY)).toEqual({ month: "this" });
    expect(periodOf(address("period=never"), TODAY)).toEqual({ month: "this" });
  });

  it("knows the month before January", () => {
    expect(monthBefore(new Date(2026, 0, 31))).toBe("2025-12");
  });
});

describe("entriesOf", () => {
  it("opens a figure to its entries in the same period", () => {
    expect(entriesOf({ month: "this" }, { user: "ann" })).toBe("/cost/entries?month=this&user=ann");
    expect(entriesOf({ since: "7d" }, { day: "2026-11-18", project: "a" })).toBe(
      "/cost/entries?day=2026-11-18&project=a",
    );
  });

  it("opens nothing that entries can't be asked for by", () => {
    expect(entriesOf({ month: "this" }, { kind: "train" })).toBeNull();
    expect(entriesOf({ month: "this" }, { user: "" })).toBeNull();
    expect(groupOf(address("by=colour"))).toBe("project");
  });
});
