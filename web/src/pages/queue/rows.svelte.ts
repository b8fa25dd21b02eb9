/** The rows of the queue: page by page, the first one kept as it is on the server. */
import { untrack } from "svelte";
import { api, type ApiError, type Schemas } from "../../api/client";
import { kinds, Live } from "../../api/live.svelte";
import { router } from "../../router.svelte";
import { longer, renewed, type Page } from "./pages";

export type Row = Schemas["JobView"] & { place?: number | null };
export const PHASES = ["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"] as const;
export type Phase = (typeof PHASES)[number];

export interface Filters {
  phase: Phase | "unfinished";
  queue: string;
  project: string;
  user: string;
}

const FIRST = 100;
const MORE = 500;
const UNFINISHED: Phase[] = ["queued", "starting", "running", "stopping"];

/** As the address has them. */
export function filtersOf(): Filters {
  const phase = router.get("phase", "queued");
  const known = phase === "unfinished" || (PHASES as readonly string[]).includes(phase);
  return {
    phase: known ? (phase as Filters["phase"]) : "queued",
    queue: router.get("queue"),
    project: router.get("project"),
    user: router.get("user"),
  };
}

export class Rows {
  #page = $state.raw<Page<Row> | null>(null);
  #first: Live<Page<Row>>;
  #more: AbortController | null = null;
  #failed = $state.raw<ApiError | null>(null);

  constructor() {
    this.#first = new Live((signal) => ask(filtersOf(), null, FIRST, signal), {
      on: kinds("job.", "attempt.planned", "attempt.running", "attempt.ended"),
      every: 30_000,
      pause: 2000,
    });
    $effect(() => {
      const first = this.#first.data;
      if (first)
        this.#page = renewed(
          untrack(() => this.#page),
          first,
        );
    });
    $effect(() => () => this.#more?.abort());
  }

  /** Null until they are there for what is asked for now. */
  get page(): Page<Row> | null {
    return this.#page?.of === JSON.stringify(filtersOf()) ? this.#page : null;
  }

  get error(): ApiError | null {
    return this.#first.error ?? this.#failed;
  }

  refresh(): void {
    void this.#first.refresh();
  }

  more = (): void => {
    const page = this.page;
    if (this.#more || !page?.next) return;
    const asking = (this.#more = new AbortController());
    ask(filtersOf(), page.next, MORE, asking.signal)
      .then((found) => {
        this.#failed = null;
        if (this.#page) this.#page = longer(this.#page, found);
      })
      .catch(() => !asking.signal.aborted && this.#begin()) // the job that it goes on from is not there any more
      .finally(() => (this.#more = null));
  };

  #begin(): void {
    this.#page = null;
    this.refresh();
  }
}

async function ask(filters: Filters, after: string | null, limit: number, signal: AbortSignal): Promise<Page<Row>> {
  const of = JSON.stringify(filters);
  const { phase, queue, project, user } = filters;
  if (phase === "queued") {
    const query = { queue, project, user, limit, ...(after ? { after } : {}) };
    const found = await api.get("/v1/queued", { query, signal });
    return { of, rows: found.jobs, next: found.next, total: found.total };
  }
  const before = after ? { before: Number(after) } : {};
  const phases: Phase[] = phase === "unfinished" ? UNFINISHED : [phase];
  const query = { queue, project, user, limit, phase: phases, ...before };
  const found = await api.get("/v1/jobs", { query, signal });
  return { of, rows: found.jobs, next: found.next === null ? null : String(found.next), total: null };
}
