/** Who holds what a job waits for, as the data of its reasons have it. */
import type { Schemas } from "../../api/client";

export interface Holder {
  job: string;
  endsAt: number | null;
  evidence: string;
  accelerators: number;
  leaving: boolean;
}

/** Of `no_capacity` with their expected ends, of `waits_for_seats` those that leave. */
export function holdersOf(reasons: Schemas["ReasonView"][]): Holder[] {
  const found = new Map<string, Holder>();
  for (const { data } of reasons) {
    for (const one of list(data.ends)) {
      const raw = one as Record<string, unknown>;
      const job = String(raw.job);
      found.set(found.has(job) ? `${job} ${found.size}` : job, {
        job,
        endsAt: typeof raw.ends_at === "number" && Number.isFinite(raw.ends_at) ? raw.ends_at : null,
        evidence: String(raw.evidence ?? ""),
        accelerators: Number(raw.accelerators ?? 0),
        leaving: raw.leaving === true,
      });
    }
    const by = typeof data.by === "number" ? data.by : null;
    for (const one of list(data.leaving)) {
      const job = String(one);
      found.set(job, { job, endsAt: by, evidence: "", accelerators: 0, leaving: true });
    }
  }
  return [...found.values()];
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
