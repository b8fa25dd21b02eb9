/** The rows of a search: a page at a time, and all that is there again when runs change. */
import { api, type Schemas } from "../../api/client";
import { kinds, Live } from "../../api/live.svelte";
import type { Row } from "./columns";

export interface Search {
  query: string;
  sort: string;
  columns: string[];
}
type Page = Schemas["SearchPage"];

const PAGE = 200;
const MOST = 10_000; // rows that are kept fresh
const ACTIVE = ["queued", "starting", "running", "stopping"];

export class Rows {
  #search: () => Search | null;
  #of = ""; // what the rows answer
  #held = PAGE;
  #more = $state.raw<Page[]>([]);
  #asking = false;
  first: Live<Page | null>;

  /** `search` is null while it is not known yet what to ask for. */
  constructor(search: () => Search | null) {
    this.#search = search;
    const fresh = (): number | undefined => (this.rows.some((row) => ACTIVE.includes(row.phase)) ? 10_000 : undefined);
    const active = $derived(fresh());
    this.first = new Live((signal) => this.#ask(signal), {
      on: kinds("job.", "run.", "attempt.running", "attempt.ended"),
      pause: 3000,
      get every() {
        return active;
      },
    });
  }

  readonly pages = $derived.by(() => (this.first?.data ? [this.first.data, ...this.#more] : []));
  readonly rows = $derived(this.pages.flatMap((page) => page.runs as Row[]));

  get total(): number | null {
    return this.first.data?.total ?? null;
  }
  get next(): string | null {
    return this.pages.at(-1)?.next ?? null;
  }
  /** Names as the server writes them: those of `cells`. */
  get columns(): string[] {
    return this.first.data?.columns ?? [];
  }

  async #ask(signal: AbortSignal): Promise<Page | null> {
    const search = this.#search();
    if (search === null) return null;
    const of = JSON.stringify(search);
    if (of !== this.#of) {
      this.#of = of;
      this.#held = PAGE;
    }
    const page = await api.post("/v1/runs/search", { body: { ...search, limit: this.#held, count: true }, signal });
    this.#more = [];
    return page;
  }

  more = async (): Promise<void> => {
    const [search, after, of, first] = [this.#search(), this.next, this.#of, this.first.data];
    if (this.#asking || search === null || after === null) return;
    this.#asking = true;
    try {
      const page = await api.post("/v1/runs/search", { body: { ...search, limit: PAGE, after } });
      if (of !== this.#of || first !== this.first.data) return; // they were asked for again meanwhile
      this.#more = [...this.#more, page];
      this.#held = Math.min(this.#held + page.runs.length, MOST);
    } catch {
      // The next scroll asks again.
    } finally {
      this.#asking = false;
    }
  };
}
