/** Alerts in the order in which a person looks at them, and what they are about. */
import type { Schemas } from "../../api/client";

export type Alert = Schemas["AlertView"];
const STATES: Alert["state"][] = ["firing", "pending", "resolved"];
const SEVERITIES: Alert["severity"][] = ["critical", "warning", "info"];

/** What fires first, the most severe first, the newest first. */
export function ordered(alerts: readonly Alert[]): Alert[] {
  return [...alerts].sort(
    (a, b) =>
      STATES.indexOf(a.state) - STATES.indexOf(b.state) ||
      SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) ||
      b.since - a.since,
  );
}

/** Pending alerts have no number yet. */
export function keyOf(alert: Alert): string {
  return `${alert.number} ${alert.rule} ${alert.subject.kind} ${alert.subject.name}`;
}

/** Where what an alert is about is shown; null if it has no page. */
export function pageOf(subject: Alert["subject"]): string | null {
  if (subject.kind === "run") return `/runs/${encodeURIComponent(subject.name)}`;
  if (subject.kind === "budget") return "/cost?tab=budgets";
  if (subject.kind === "project") return `/cost?project=${encodeURIComponent(subject.name)}`;
  return null;
}

export interface Scope {
  id: string;
  title: string;
  of: { project?: string; run?: string; node?: string };
}

/** How far a silence may reach: projects for their members, everything else for administrators. */
export function scopes(alert: Alert | null, mine: readonly string[], superuser: boolean): Scope[] {
  const found: Scope[] = [];
  const { kind, name, project } = alert?.subject ?? { kind: "", name: "", project: "" };
  if (kind === "run" && mine.includes(project)) found.push({ id: "run", title: `run ${name}`, of: { run: name } });
  if (kind === "node" && superuser) found.push({ id: "node", title: `node ${name}`, of: { node: name } });
  for (const one of alert?.subject.project ? [alert.subject.project] : mine) {
    if (mine.includes(one)) found.push({ id: `project ${one}`, title: `project ${one}`, of: { project: one } });
  }
  if (superuser) found.push({ id: "all", title: "everything", of: {} });
  return found;
}
