/** Where the server's problems with a job file are: at which field, and on which line. */
import type { Schemas } from "../../api/client";

export interface Placed {
  problem: Schemas["ProblemView"];
  /** The field of the form, or an empty text. */
  path: string;
  line: number | null;
}

const AT_LINE = /^(.*?) \(line (\d+)\)$/;
const LINE_ALONE = /^line (\d+)/;

/** `paths`: the fields of the form; `aliases`: other names of them. */
export function placed(
  problems: readonly Schemas["ProblemView"][],
  paths: ReadonlySet<string>,
  aliases: Record<string, string>,
): Placed[] {
  return problems.map((problem) => {
    const at = AT_LINE.exec(problem.where);
    const alone = LINE_ALONE.exec(problem.where);
    const line = at ? Number(at[2]) : alone ? Number(alone[1]) : null;
    return { problem, path: alone ? "" : fieldAt(at ? at[1]! : problem.where, paths, aliases), line };
  });
}

/** `envs.LR` is of the field `envs`, `gpus` of `resources.accelerators`. */
function fieldAt(where: string, paths: ReadonlySet<string>, aliases: Record<string, string>): string {
  let path = where.replace(/\[.*$/, "");
  while (path) {
    const known = aliases[path] ?? path;
    if (paths.has(known)) return known;
    path = path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "";
  }
  return "";
}

/** Fields of a job file in sections → the same by their paths: `{resources: {cpus: 1}}` → `{"resources.cpus": 1}`. */
export function flat(fields: Record<string, unknown>, paths: ReadonlySet<string>, above = ""): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    const path = above ? `${above}.${name}` : name;
    const section = typeof value === "object" && value !== null && !Array.isArray(value) && !paths.has(path);
    if (section) Object.assign(found, flat(value as Record<string, unknown>, paths, path));
    else found[path] = value;
  }
  return found;
}
