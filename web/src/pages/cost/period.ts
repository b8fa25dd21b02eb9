/** What a cost report covers, as the address has it: the period, one project, and what it is grouped by. */
export interface PeriodQuery {
  month?: string;
  since?: string;
  until?: string;
}
export type Choice = "this" | "last" | "7d" | "30d" | "custom";
export const CHOICES: [Choice, string][] = [
  ["this", "This month"],
  ["last", "Last month"],
  ["7d", "7 days"],
  ["30d", "30 days"],
  ["custom", "Days"],
];
/** What rows can be grouped by. */
export const GROUPS = [
  "project",
  "user",
  "queue",
  "family",
  "pool",
  "environment",
  "run",
  "account",
  "kind",
  "price",
  "day",
] as const;
export type Group = (typeof GROUPS)[number];
/** By what entries of the ledger can be asked for. */
const OPENED = ["project", "user", "queue", "family", "pool", "environment", "run", "account", "day"];
const DAY = /^\d{4}-\d{2}-\d{2}$/;
type Get = (name: string) => string;

export function choiceOf(get: Get): Choice {
  const given = get("period");
  return CHOICES.some(([name]) => name === given) ? (given as Choice) : "this";
}

/** The period for the server; one of days that are not given yet is this month. */
export function periodOf(get: Get, today: Date): PeriodQuery {
  const choice = choiceOf(get);
  if (choice === "last") return { month: monthBefore(today) };
  if (choice === "7d" || choice === "30d") return { since: choice };
  const [since, until] = [get("since"), get("until")];
  if (choice === "custom" && DAY.test(since)) return { since, ...(DAY.test(until) ? { until } : {}) };
  return { month: "this" };
}

export function monthBefore(today: Date): string {
  const at = new Date(Date.UTC(today.getFullYear(), today.getMonth() - 1, 1));
  return at.toISOString().slice(0, 7);
}

export function groupOf(get: Get): Group {
  const given = get("by");
  return (GROUPS as readonly string[]).includes(given) ? (given as Group) : "project";
}

/** Where the entries are that a figure is made of; null if they can't be asked for. */
export function entriesOf(period: PeriodQuery, only: Record<string, string>): string | null {
  if (Object.entries(only).some(([name, value]) => !OPENED.includes(name) || value === "")) return null;
  const { day, ...others } = only;
  const query = new URLSearchParams({ ...(day ? { day } : { ...period }), ...others });
  return `/cost/entries?${query}`;
}
