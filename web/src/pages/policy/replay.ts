/** The pages of a policy's trial on the jobs of the past, added up. */
import type { Schemas } from "../../api/client";

type Effect = Schemas["PolicyEffect"];
export interface Tried {
  judged: number;
  refused: number;
  refusedLive: number;
  freed: number;
  effects: Effect[];
}

export function nothing(): Tried {
  return { judged: 0, refused: 0, refusedLive: 0, freed: 0, effects: [] };
}

export function added(tried: Tried, page: Schemas["PolicyReplay"]): Tried {
  const effects = new Map(tried.effects.map((one) => [one.code, one]));
  for (const one of page.effects) {
    const known = effects.get(one.code);
    effects.set(one.code, known ? both(known, one) : one);
  }
  return {
    judged: tried.judged + page.judged,
    refused: tried.refused + page.refused,
    refusedLive: tried.refusedLive + page.refused_live,
    freed: tried.freed + page.freed,
    effects: [...effects.values()].sort((a, b) => b.jobs - a.jobs),
  };
}

function both(a: Effect, b: Effect): Effect {
  return {
    ...a,
    jobs: a.jobs + b.jobs,
    live: a.live + b.live,
    users: sums(a.users, b.users),
    projects: sums(a.projects, b.projects),
    examples: [...a.examples, ...b.examples].slice(0, 5),
  };
}

function sums(a: Record<string, number>, b: Record<string, number>): Record<string, number> {
  const found = { ...a };
  for (const [name, n] of Object.entries(b)) found[name] = (found[name] ?? 0) + n;
  return found;
}
