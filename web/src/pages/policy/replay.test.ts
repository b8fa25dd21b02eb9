import { describe, expect, it } from "vitest";
import { added, nothing } from "./replay";

describe("added", () => {
  it("adds the pages up by the reason", () => {
    const effect = (jobs: number, user: string) => ({
      code: "too_large",
      jobs,
      live: 1,
      users: { [user]: jobs },
      projects: { a: jobs },
      examples: [],
    });
    const page = (jobs: number, user: string) => ({
      since: 0,
      judged: 10,
      live: 1,
      refused: jobs,
      refused_live: 1,
      freed: 1,
      effects: [effect(jobs, user)],
      next: null,
    });
    const found = added(added(nothing(), page(2, "ann")), page(3, "bo"));
    expect(found).toMatchObject({ judged: 20, refused: 5, refusedLive: 2, freed: 2 });
    expect(found.effects).toEqual([{ ...effect(5, "ann"), live: 2, users: { ann: 2, bo: 3 } }]);
  });
});
