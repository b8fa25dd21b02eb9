import { expect, test } from "vitest";
import { holdersOf } from "./holders";

test("holders come from the data of the reasons, whatever else is in there", () => {
  const reason = (code: string, data: Record<string, unknown>) => ({ code, message: "", hint: "", data });
  const ends = [{ job: "a-1", ends_at: 12, evidence: "progress", accelerators: 8, leaving: false }];
  const hidden = { job: "a job of another project", ends_at: null, evidence: "", accelerators: 1, leaving: false };
  const found = holdersOf([
    reason("behind_in_queue", { ahead: 3 }),
    reason("no_capacity", { ends: [...ends, hidden, hidden], leaving: 3 }),
    reason("waits_for_seats", { leaving: ["b-2"], by: 50 }),
  ]);
  expect(found.map((one) => [one.job, one.endsAt, one.leaving])).toEqual([
    ["a-1", 12, false],
    ["a job of another project", null, false],
    ["a job of another project", null, false],
    ["b-2", 50, true],
  ]);
});
