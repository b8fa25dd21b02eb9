/** A window of a job's output: pages come in at both ends and leave at the other, so that its size stays bounded. */
import { api } from "../../../api/client";
import { follow } from "../../../api/follow";
import { lineAt, linesOf, type Chunk, type LogLine } from "./lines";

const PAGE = 256 * 1024; // bytes that are asked for at once
const MOST = 3 * 1024 * 1024; // characters that are kept
const END = 2 ** 53; // after every chunk
const GATHER = 120; // ms in which chunks are gathered

export interface Which {
  attempt: number | null;
  rank: number | null;
}

export class Output {
  chunks = $state.raw<Chunk[]>([]);
  atStart = $state(false);
  atEnd = $state(false);
  /** The job is over, and everything was sent. */
  over = $state(false);
  loading = $state(false);
  error = $state.raw<unknown>(null);
  lines = $derived.by((): LogLine[] => linesOf(this.chunks));
  #abort = new AbortController();
  #stop: (() => void) | null = null;

  constructor(
    readonly job: string,
    readonly which: Which,
  ) {}

  close(): void {
    this.#abort.abort();
    this.unfollow();
  }

  /** The last page. */
  async toEnd(): Promise<void> {
    await this.#open(async () => {
      const page = await this.#page({ before: END });
      this.chunks = page.chunks;
      [this.atStart, this.atEnd] = [page.end, true];
    });
  }

  async toStart(): Promise<void> {
    await this.#open(async () => {
      const page = await this.#page({ after: 0 });
      this.chunks = page.chunks;
      [this.atStart, this.atEnd] = [true, page.end];
    });
  }

  /** What is before and after a chunk. */
  async toChunk(id: number): Promise<void> {
    await this.#open(async () => {
      const [older, newer] = await Promise.all([this.#page({ before: id }), this.#page({ after: id - 1 })]);
      this.chunks = [...older.chunks, ...newer.chunks];
      [this.atStart, this.atEnd] = [older.end, newer.end];
    });
  }

  /** What was written at a time, seconds since 1970. */
  async toTime(time: number): Promise<void> {
    let first: Chunk | undefined;
    await this.#open(async () => {
      first = (await this.#page({ since: time, limit: 1 })).chunks.find((chunk) => chunk.dropped === undefined);
    });
    await (first ? this.toChunk(first.id) : this.toEnd());
  }

  async older(): Promise<void> {
    const first = this.chunks.find((chunk) => chunk.dropped === undefined);
    if (this.atStart || this.loading || !first) return;
    await this.#load(async () => {
      const page = await this.#page({ before: first.id });
      this.#keep([...page.chunks, ...this.chunks], "start");
      this.atStart = page.end;
    });
  }

  async newer(): Promise<void> {
    const last = this.chunks.at(-1);
    if (this.atEnd || this.loading || !last) return;
    await this.#load(async () => {
      const page = await this.#page({ after: last.id });
      this.#keep([...this.chunks, ...page.chunks], "end");
      this.atEnd = page.end;
    });
  }

  /** The key of the line that begins at a byte of a rank's output. */
  keyOf(id: number, offset: number): string | null {
    const chunk = this.chunks.find((one) => one.id === id && one.dropped === undefined);
    return chunk ? `${id}.${lineAt(chunk, offset)}` : null;
  }

  /** Appends what is written, until the job is over or the end is left. */
  follow(): void {
    if (this.#stop || this.over) return;
    let gathered: Chunk[] = [];
    let of: AbortSignal | null = null; // the stream that they are from
    const flush = (signal: AbortSignal): void => {
      if (signal.aborted || signal !== of) return; // they are asked for again
      this.#keep([...this.chunks, ...gathered], "end");
      gathered = [];
    };
    this.#stop = follow({
      url: () => this.#stream(),
      hear: (frame, signal) => {
        if (of !== signal) [of, gathered] = [signal, []];
        if (frame.event === "log" && gathered.push(JSON.parse(frame.data) as Chunk) === 1)
          setTimeout(() => flush(signal), GATHER);
        if (frame.event === "end")
          setTimeout(() => {
            if (signal.aborted) return;
            flush(signal);
            this.over = true;
            this.unfollow();
          }, GATHER);
      },
    });
  }

  /** Nothing is added any more while something else is read; what came meanwhile is read at the end. */
  leaveEnd(): void {
    this.unfollow();
    if (!this.over) this.atEnd = false;
  }

  unfollow(): void {
    this.#stop?.();
    this.#stop = null;
  }

  /** The address of what comes after the last chunk that is here. */
  #stream(): string {
    const query = new URLSearchParams({ after: String(this.chunks.at(-1)?.id ?? 0) });
    if (this.which.attempt !== null) query.set("attempt", String(this.which.attempt));
    if (this.which.rank !== null) query.set("rank", String(this.which.rank));
    return `/v1/jobs/${encodeURIComponent(this.job)}/logs/stream?${query}`;
  }

  /** Drops what is farthest from where chunks were added. */
  #keep(chunks: Chunk[], added: "start" | "end"): void {
    let size = chunks.reduce((sum, chunk) => sum + chunk.text.length, 0);
    let [from, to] = [0, chunks.length];
    while (size > MOST && to - from > 1) {
      if (added === "start") {
        size -= chunks[--to]!.text.length;
        this.atEnd = false;
      } else {
        size -= chunks[from++]!.text.length;
        this.atStart = false;
      }
    }
    if (!this.atEnd) this.unfollow();
    this.chunks = chunks.slice(from, to);
  }

  async #open(load: () => Promise<void>): Promise<void> {
    this.unfollow();
    this.#abort.abort();
    this.#abort = new AbortController();
    this.loading = false;
    await this.#load(load);
  }

  async #load(load: () => Promise<void>): Promise<void> {
    const signal = this.#abort.signal;
    this.loading = true;
    try {
      await load();
      this.error = null;
    } catch (error) {
      if (!signal.aborted) this.error = error;
    } finally {
      if (!signal.aborted) this.loading = false;
    }
  }

  async #page(at: { before?: number; after?: number; since?: number; limit?: number }) {
    const query = { limit: PAGE, ...at, ...this.#filter() };
    return api.get("/v1/jobs/{ref}/logs", { path: { ref: this.job }, query, signal: this.#abort.signal });
  }

  #filter(): { attempt?: number; rank?: number } {
    const { attempt, rank } = this.which;
    return { ...(attempt === null ? {} : { attempt }), ...(rank === null ? {} : { rank }) };
  }
}
