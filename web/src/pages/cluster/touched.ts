/** Which nodes events are about. */
import type { Schemas } from "../../api/client";
import type { Node } from "./figures";

const OF_JOBS = /^(attempt\.|worker\.|job\.(requeued|succeeded|failed|stopped))/;

/** By their names: those that an event names, and those on which the job of the event runs. */
export function touched(events: readonly Schemas["EventView"][], nodes: readonly Node[]): Set<string> {
  const found = new Set<string>();
  const jobs = new Set<string>();
  for (const { kind, job, data } of events) {
    if (kind.startsWith("node.") && typeof data.name === "string") found.add(data.name);
    if (!OF_JOBS.test(kind)) continue;
    if (job) jobs.add(job);
    if (typeof data.node === "string") found.add(data.node);
    for (const seat of Array.isArray(data.seats) ? data.seats : []) {
      const name = Array.isArray(seat) ? seat[0] : (seat as { node?: unknown } | null)?.node;
      if (typeof name === "string") found.add(name);
    }
  }
  if (jobs.size) for (const node of nodes) if (node.jobs.some((job) => jobs.has(job))) found.add(node.name);
  return found;
}
