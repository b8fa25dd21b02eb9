/** What pages show, kept as it is on the server: one stream of events for the whole tab says what has changed.
 *
 * The stream goes on from its cursor after a break. A hidden tab closes it, and catches up when it is seen again.
 */
import { ApiError, type Schemas } from "./client";
import { follow } from "./follow";
import { signed } from "./session.svelte";

export type Event = Schemas["EventView"];
type Hearer = (events: Event[]) => void;

let hearers: Hearer[] = [];
let cursor: string | null = null;
let stop: (() => void) | null = null;

/** Calls `hear` with the events that come, in batches, until the returned function is called. */
export function listen(hear: Hearer): () => void {
  hearers.push(hear);
  stop ??= follow({
    url: () => "/v1/events/stream",
    lastId: () => cursor,
    hear: (frame) => {
      if (frame.event !== "event") return;
      cursor = frame.id ?? cursor;
      gather(JSON.parse(frame.data) as Event);
    },
  });
  return () => {
    hearers = hearers.filter((one) => one !== hear);
    if (hearers.length > 0) return;
    stop?.();
    stop = null;
  };
}

const BATCH = 150; // ms in which events are gathered
let gathered: Event[] = [];

function gather(event: Event): void {
  if (gathered.length === 0) {
    setTimeout(() => {
      const events = gathered;
      gathered = [];
      for (const hear of hearers) hear(events);
    }, BATCH);
  }
  gathered.push(event);
}

export interface LiveOptions {
  /** Whether an event makes the answer old; none does when it is left out. */
  on?: (event: Event) => boolean;
  /** Milliseconds after which it is asked again without an event. */
  every?: number;
  /** Least milliseconds between two questions. */
  pause?: number;
}

/** An answer of the server that is asked for again when it is old. Made while a component starts, and ends with it. */
export class Live<T> {
  data = $state.raw<T | undefined>(undefined);
  error = $state.raw<ApiError | null>(null);
  asking = $state(false);
  #ask: (signal: AbortSignal) => Promise<T>;
  #options: LiveOptions;
  #old = false;
  #last = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running: AbortController | null = null;

  /** `ask` may read reactive values: when one changes, the server is asked at once. */
  constructor(ask: (signal: AbortSignal) => Promise<T>, options: LiveOptions = {}) {
    this.#ask = ask;
    this.#options = options;
    $effect(() => {
      void this.refresh();
      return () => this.#running?.abort();
    });
    $effect(() => {
      const on = options.on;
      const unlisten = on ? listen((events) => events.some(on) && this.#schedule()) : undefined;
      const repeat = options.every ? setInterval(() => this.#schedule(), options.every) : undefined;
      const seen = (): void => void (!document.hidden && this.#old && this.#schedule());
      document.addEventListener("visibilitychange", seen);
      return () => {
        unlisten?.();
        clearInterval(repeat);
        clearTimeout(this.#timer);
        document.removeEventListener("visibilitychange", seen);
      };
    });
  }

  /** Asks now. What it knew stays until the answer is there, and when there is none. */
  async refresh(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#running?.abort();
    const running = (this.#running = new AbortController());
    this.#old = false;
    this.#last = Date.now();
    const asked = this.#ask(running.signal); // before anything is awaited: what it reads is noticed
    this.asking = true;
    try {
      const data = await asked;
      if (running.signal.aborted) return;
      this.data = data;
      this.error = null;
    } catch (error) {
      if (running.signal.aborted) return;
      this.error = error instanceof ApiError ? error : new ApiError(-1, bug(error));
      if (this.error.passes) this.#timer = setTimeout(() => void this.refresh(), 2000);
    }
    this.asking = false;
  }

  #schedule(): void {
    this.#old = true;
    if (document.hidden || this.#timer !== undefined || signed.session === null) return;
    const pause = this.#options.pause ?? 500;
    this.#timer = setTimeout(() => void this.refresh(), Math.max(0, this.#last + pause - Date.now()));
  }
}

function bug(error: unknown): Schemas["ErrorView"] {
  console.error(error);
  return { code: "bug", message: `The page failed: ${String(error)}`, hint: "Reload it; if it stays so, report it." };
}

/** Events of these kinds, as prefixes: `job.`, `attempt.`. */
export function kinds(...prefixes: string[]): (event: Event) => boolean {
  return (event) => prefixes.some((prefix) => event.kind.startsWith(prefix));
}
