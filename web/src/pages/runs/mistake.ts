/** What the server says of a query that it can't read: the place, what is wrong there, and what to write. */
import { ApiError } from "../../api/client";

export interface Mistake {
  what: string;
  /** A line of the query, and carets below the place. */
  line: string;
  carets: string;
  hint: string;
}

export function mistakeOf(error: unknown): Mistake | null {
  if (!(error instanceof ApiError)) return null;
  const lines = error.view.message.split("\n");
  const carets = lines.at(-1)!;
  if (lines.length < 3 || !/^ *\^+$/.test(carets)) return null;
  const what = lines.slice(0, -2).join(" ").replace("The query can't be read: ", "");
  return {
    what: what.charAt(0).toUpperCase() + what.slice(1),
    line: lines.at(-2)!.slice(2),
    carets: carets.slice(2),
    hint: error.view.hint,
  };
}
