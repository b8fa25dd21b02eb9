/** The fields of the form, made from the JSON Schema of a job file. */
export interface Schema {
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  description?: string;
  default?: unknown;
  examples?: unknown[];
}

export type Kind = "text" | "long" | "choice" | "flag" | "list" | "mapping";

export interface Field {
  /** As in a job file: `resources.cpus`. */
  path: string;
  kind: Kind;
  /** What it means, and how it is written. */
  help: string;
  choices: string[];
  example: string;
  /** In words; empty if it has none. */
  default: string;
}

export interface FieldGroup {
  title: string;
  fields: Field[];
}

const SAME_AS = /^The same as `([\w.]+)`\.$/;
const LONG = new Set(["run", "purpose"]);
// What is not named here comes last, so that a new field of the job file is in the form without a change to it.
const GROUPS: [string, string[]][] = [
  ["What runs", ["name", "run", "workdir", "image", "envs", "secrets", "data", "kind", "array", "needs", "start_from"]],
  ["On what", ["num_nodes", "resources", "nproc", "pool", "use_spot", "placement", "topology", "group", "near"]],
  ["Whose, and when", ["project", "queue", "priority", "max_duration", "deadline", "off_peak", "budget", "max_hourly_cost"]],
  ["If it breaks", ["checkpoint", "retry", "hang", "stop_grace"]],
  ["Notes", ["purpose", "tags"]],
]; // prettier-ignore
const REST = "More";
const EXAMPLES: Record<string, string> = { workdir: "/shared/project" }; // that are better here than in a file

/** All fields in groups, each once: other names for the same field are left out. */
export function groupsOf(schema: Schema): FieldGroup[] {
  const all = fieldsOf(schema, "");
  const taken = new Set<string>();
  const groups = GROUPS.map(([title, names]) => {
    const fields = names.flatMap((name) => all.filter((field) => topOf(field.path) === name));
    for (const field of fields) taken.add(field.path);
    return { title, fields };
  });
  return [...groups, { title: REST, fields: all.filter((field) => !taken.has(field.path)) }].filter(
    (group) => group.fields.length > 0,
  );
}

/** As the label of its input: `max restarts` of `retry`, `cpus`. */
export function nameOf(path: string): string {
  return path.replace(/^resources\./, "").replace(/[._]/g, " ");
}

/** Another name of a field → the field: `gpus` → `resources.accelerators`. */
export function aliasesOf(schema: Schema): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, one] of Object.entries(schema.properties ?? {})) {
    const same = SAME_AS.exec(one.description ?? "");
    if (same) found[name] = same[1]!;
  }
  return found;
}

function topOf(path: string): string {
  return path.split(".")[0]!;
}

function fieldsOf(schema: Schema, above: string): Field[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, one]) => {
    if (SAME_AS.test(one.description ?? "")) return [];
    const path = above ? `${above}.${name}` : name;
    const first = shapesOf(one)[0];
    if (first?.properties && first.additionalProperties === false) return fieldsOf(first, path);
    return [fieldOf(path, one)];
  });
}

function shapesOf(schema: Schema): Schema[] {
  return (schema.anyOf ?? [schema]).filter((shape) => shape.type !== "null");
}

function fieldOf(path: string, schema: Schema): Field {
  const shapes = shapesOf(schema);
  const choices = shapes.length === 1 ? (shapes[0]?.enum ?? []).map(String) : [];
  return {
    path,
    kind: kindOf(path, shapes),
    help: schema.description ?? "",
    choices,
    example: EXAMPLES[path] ?? textOf(schema.examples?.[0]),
    default: textOf(schema.default),
  };
}

function kindOf(path: string, shapes: Schema[]): Kind {
  const [first] = shapes;
  if (shapes.length === 1 && first?.enum) return "choice";
  if (shapes.length === 1 && first?.type === "boolean") return "flag";
  if (first?.type === "array") return "list";
  if (first?.type === "object" && typeof first.additionalProperties === "object") return "mapping";
  return LONG.has(path) ? "long" : "text";
}

/** A value of a job file as it stands in an input. */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(textOf).join(", ");
  if (typeof value === "object") {
    const { min, max } = value as { min?: unknown; max?: unknown };
    if (min !== undefined && max !== undefined) return `${textOf(min)}-${textOf(max)}`;
    return Object.entries(value)
      .map(([name, one]) => `${name}=${textOf(one)}`)
      .join("\n");
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What is to be written into the job file for the text of an input; null removes the field. */
export function valueOf(field: Field, text: string): unknown {
  const trimmed = text.trim();
  if (field.kind === "flag") return text === field.default || (text === "false" && !field.default) ? null : text;
  if (!trimmed) return null;
  if (field.kind === "list") return list(trimmed);
  if (field.kind === "mapping") return mapping(trimmed);
  const range = /^(\d+)\s*[-–]\s*(\d+)$/.exec(trimmed);
  if (field.path === "num_nodes" && range) return { min: range[1], max: range[2] };
  return field.kind === "long" ? text : trimmed;
}

function list(text: string): string[] {
  return text
    .split(/[,\n]/)
    .map((item) => item.trim())
    .filter(Boolean);
}

/** One `NAME=value` a line; a line without `=` has an empty value. */
function mapping(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    }),
  );
}
