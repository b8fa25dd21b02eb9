/** An event's data in a line: its reason's sentence, else names and values. */
import type { Schemas } from "../../api/client";

type Event = Pick<Schemas["EventView"], "kind" | "data">;

export function summary(event: Event): string {
  const data = event.data as Record<string, unknown>;
  const reason = data.reason as { message?: unknown } | null | undefined;
  if (reason && typeof reason === "object" && typeof reason.message === "string") return reason.message;
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0))
    .map(([name, value]) => `${name} ${text(value)}`)
    .join(", ");
}

function text(value: unknown): string {
  if (typeof value === "string") return value.length > 80 ? `${value.slice(0, 80)}…` : value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const json = JSON.stringify(value) ?? "";
  return json.length > 80 ? `${json.slice(0, 80)}…` : json;
}
