/** A stream of the server that outlives breaks and hidden tabs: it goes on where it was. */
import { ApiError } from "./client";
import { frames, type Frame } from "./events";

const AGAIN = 1000; // ms until the next try, doubled up to the longest
const LONGEST = 15_000;
const QUIET = 20_000; // ms for which a hidden tab goes on listening
const FINAL = [401, 403, 404]; // answers after which it is not asked again

interface Stream {
  /** Where it goes on, each time that it is opened. */
  url: () => string;
  lastId?: () => string | null;
  /** `signal` is of the connection: what it brought and was not kept is sent again after it. */
  hear: (frame: Frame, signal: AbortSignal) => void;
}

/** Hears a stream until the returned function is called. A hidden tab has it closed, until it is seen. */
export function follow({ url, lastId, hear }: Stream): () => void {
  let running: AbortController | null = null;
  let hiding: ReturnType<typeof setTimeout> | undefined;
  let over = false;

  function start(): void {
    if (running || over || document.hidden) return;
    running = new AbortController();
    void run(running.signal);
  }

  function pause(): void {
    running?.abort();
    running = null;
  }

  function seen(): void {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(pause, QUIET);
    else start();
  }

  function stop(): void {
    over = true;
    clearTimeout(hiding);
    document.removeEventListener("visibilitychange", seen);
    pause();
  }

  async function run(signal: AbortSignal): Promise<void> {
    let wait = AGAIN;
    while (!signal.aborted) {
      try {
        for await (const frame of frames(url(), signal, lastId?.() ?? null)) {
          wait = AGAIN;
          hear(frame, signal);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && FINAL.includes(error.status)) return stop();
      }
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, LONGEST);
    }
  }

  document.addEventListener("visibilitychange", seen);
  start();
  return stop;
}
