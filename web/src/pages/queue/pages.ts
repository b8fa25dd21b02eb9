/** Pages of a list that changes while it is read: the first page is new, what follows it is kept. */
export interface Page<Row> {
  /** What was asked for: pages of other filters don't belong together. */
  of: string;
  rows: Row[];
  next: string | null;
  total: number | null;
}

interface Row {
  id: string;
  queue: string;
  place?: number | null;
}

/** The new first page, then the rows that came after its last one; their places move as that one's did. */
export function renewed<R extends Row>(known: Page<R> | null, first: Page<R>): Page<R> {
  if (known === null || known.of !== first.of || first.next === null || known.rows.length <= first.rows.length)
    return first;
  const last = first.rows.at(-1);
  const at = known.rows.findIndex((row) => row.id === last?.id);
  if (at < 0) return first;
  const there = new Set(first.rows.map((row) => row.id));
  const moved = moves(known.rows.slice(0, at + 1), first.rows);
  const rest = known.rows
    .slice(at + 1)
    .filter((row) => !there.has(row.id))
    .map((row) => (row.place && moved[row.queue] ? { ...row, place: row.place + moved[row.queue]! } : row));
  return { ...first, rows: [...first.rows, ...rest], next: rest.length ? known.next : first.next };
}

/** Queue → by how much the place of its last row on the first page has changed. */
function moves(before: Row[], after: Row[]): Record<string, number> {
  const found: Record<string, number> = {};
  const old = new Map(before.map((row) => [row.id, row]));
  for (const row of after) {
    const was = old.get(row.id);
    if (was?.place && row.place) found[row.queue] = row.place - was.place;
  }
  return found;
}

/** A further page at the end; a row that is there already has moved, and stays where it is. */
export function longer<R extends Row>(known: Page<R>, more: Page<R>): Page<R> {
  if (known.of !== more.of) return known;
  const there = new Set(known.rows.map((row) => row.id));
  return { ...more, rows: [...known.rows, ...more.rows.filter((row) => !there.has(row.id))] };
}
