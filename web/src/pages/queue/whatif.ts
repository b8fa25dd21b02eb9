/** What a job may ask for instead, as it is written in a job file. */
import type { Schemas } from "../../api/client";
import { each } from "./words";

export type Name = "num_nodes" | "accelerators" | "max_duration" | "priority";

export const FIELDS: { name: Name; label: string; path: string; now: (job: Schemas["JobView"]) => string }[] = [
  { name: "num_nodes", label: "Nodes", path: "num_nodes", now: (job) => String(job.num_nodes) },
  {
    name: "accelerators",
    label: "Accelerators of each",
    path: "resources.accelerators",
    now: (job) => (job.resources.accelerators ? each(job.resources).split(" ").reverse().join(":") : "none"),
  },
  { name: "max_duration", label: "Longest run time", path: "max_duration", now: () => "such as 2h" },
  { name: "priority", label: "Priority", path: "priority", now: (job) => String(job.priority) },
];

/** Field of the job file → what is to be written there; what was left empty stays as it is. */
export function changesOf(given: Record<Name, string>): Record<string, string> {
  return Object.fromEntries(
    FIELDS.filter((field) => given[field.name].trim()).map((field) => [field.path, given[field.name].trim()]),
  );
}
