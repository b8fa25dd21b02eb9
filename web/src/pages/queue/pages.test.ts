import { expect, test } from "vitest";
import { longer, renewed, type Page } from "./pages";

type Row = { id: string; queue: string; place: number };
const rows = (...ids: number[]): Row[] => ids.map((id, at) => ({ id: `j-${id}`, queue: "q", place: at + 1 }));
const page = (found: Row[], next: string | null, of = "a"): Page<Row> => ({ of, rows: found, next, total: 9 });

test("what follows a new first page is kept, and moves up with it", () => {
  const known = page(rows(1, 2, 3, 4, 5, 6), "j-6");
  const found = renewed(known, page(rows(2, 3, 4), "j-4"));
  expect(found.rows.map((row) => row.id)).toEqual(["j-2", "j-3", "j-4", "j-5", "j-6"]);
  expect(found.rows.map((row) => row.place)).toEqual([1, 2, 3, 4, 5]);
  expect(found.next).toBe("j-6");
});

test("a page of other filters, or one that does not meet the old rows, replaces them", () => {
  const known = page(rows(1, 2, 3, 4), "j-4");
  expect(renewed(known, page(rows(7), "j-7", "b")).rows).toHaveLength(1);
  expect(renewed(known, page(rows(8, 9), "j-9")).rows).toHaveLength(2);
  expect(renewed(known, page(rows(1, 2), null)).rows).toHaveLength(2);
});

test("a further page adds what is not there yet", () => {
  const known = page(rows(1, 2), "j-2");
  const found = longer(known, page(rows(2, 3), null));
  expect(found.rows.map((row) => row.id)).toEqual(["j-1", "j-2", "j-3"]);
  expect(found.next).toBeNull();
  expect(longer(known, page(rows(3), null, "b"))).toBe(known);
});
