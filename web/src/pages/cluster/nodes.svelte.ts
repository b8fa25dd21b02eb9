/** All nodes, kept as they are on the server: whole at first, then only those that an event is about. */
import { api, ApiError } from "../../api/client";
import { listen, type Event } from "../../api/live.svelte";
import type { Node } from "./figures";
import { ordered } from "./groups";
import { touched } from "./touched";

const AT_ONCE = 100; // nodes that are asked for by name; of more, all are
const PAUSE = 1000; // ms between two questions
const LARGE = 1000; // nodes
const AGAIN = { small: 60_000, large: 600_000 }; // ms after which all are asked for, in case an event says too little

export class Nodes {
  all = $state.raw<Node[] | null>(null);
  error = $state.raw<ApiError | null>(null);
  #names: Record<string, true> = {}; // that were heard of since the last question
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running = new AbortController();
  #asked = 0;

  constructor() {
    $effect(() => {
      void this.load();
      const unlisten = listen((events) => this.#heard(events));
      const repeat = setInterval(() => {
        const pause = (this.all?.length ?? 0) > LARGE ? AGAIN.large : AGAIN.small;
        if (!document.hidden && Date.now() - this.#asked > pause) void this.load();
      }, 15_000);
      return () => {
        unlisten();
        clearInterval(repeat);
        clearTimeout(this.#timer);
        this.#running.abort();
      };
    });
  }

  async load(): Promise<void> {
    this.#asked = Date.now();
    this.#names = {};
    await this.#ask(null);
  }

  #heard(events: Event[]): void {
    for (const name of touched(events, this.all ?? [])) this.#names[name] = true;
    if (this.#heardOf.length && this.#timer === undefined) this.#timer = setTimeout(() => void this.#renew(), PAUSE);
  }

  get #heardOf(): string[] {
    return Object.keys(this.#names);
  }

  async #renew(): Promise<void> {
    const names = this.#heardOf;
    this.#names = {};
    await this.#ask(names.length > AT_ONCE ? null : names);
    this.#timer = undefined;
    if (this.#heardOf.length) this.#heard([]);
  }

  async #ask(names: string[] | null): Promise<void> {
    try {
      const query = names === null ? {} : { name: names };
      const { nodes } = await api.get("/v1/nodes", { query, signal: this.#running.signal });
      const rest = names === null ? [] : (this.all ?? []).filter((node) => !names.includes(node.name));
      this.all = ordered([...rest, ...nodes]);
      this.error = null;
    } catch (error) {
      if (this.#running.signal.aborted) return;
      this.error = error instanceof ApiError ? error : null;
      if (this.error?.passes) setTimeout(() => !this.#running.signal.aborted && void this.load(), 2000);
    }
  }
}
