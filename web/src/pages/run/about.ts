/** What the parts of the page are given of the run. */
import type { Schemas } from "../../api/client";

export type Page = Schemas["RunPage"];
export type Job = Schemas["JobDetail"];
const ACTIVE = ["queued", "starting", "running", "stopping"];

export interface About {
  id: string;
  page: Page;
  /** Null for a run that is not a job's. */
  job: Job | null;
  /** It may still change. */
  active: boolean;
  /** By the link of a share: only what is of this run can be read. */
  shared: boolean;
}

export function isActive(phase: string): boolean {
  return ACTIVE.includes(phase);
}
