/** The job file that is being written: its text is what counts, and the form and the check follow it. */
import { api, ApiError, request, type Schemas } from "../../api/client";

const FORM = 250; // ms after the last key until the form follows the text, or the text the form
const CHECK = 600; // ms until the server checks it
const LONGEST = 15_000; // ms
const KEPT = "muster-submit"; // in the tab's storage, so that a reload loses nothing
const SOURCE = "The job file";
export const EMPTY = "name: hello\nrun: echo hello\n";

export class Draft {
  text = $state("");
  /** As written, by path. */
  fields = $state.raw<Record<string, unknown>>({});
  /** What the form changed and the text has not yet: path → what stands in the input. */
  typed = $state<Record<string, string>>({});
  answer = $state.raw<Schemas["DryRun"] | null>(null);
  /** Of the text, or of the check. */
  error = $state.raw<ApiError | null>(null);
  checking = $state(false);
  submitting = $state(false);
  #waiting: Record<string, unknown> = {};
  #writing = false;
  #form: ReturnType<typeof setTimeout> | undefined;
  #check: ReturnType<typeof setTimeout> | undefined;
  #running: AbortController | null = null;
  #key = "";
  #took = 0; // ms, of the last check: with a large queue it takes seconds, and is not asked for with every word

  /** `may`: whether the user may submit to a project; else nothing is checked. */
  constructor(private readonly may: (project: string) => boolean) {}

  get project(): string {
    return typeof this.fields.project === "string" ? this.fields.project : "default";
  }

  /** Begins with a job of the server, with changes to it, or with what was written in this tab before. */
  async begin(from: string, set: Record<string, unknown>): Promise<void> {
    const kept = read(from);
    if (kept !== null && Object.keys(set).length === 0) return this.write(kept);
    let text = EMPTY;
    if (from) text = (await api.get("/v1/jobs/{ref}/spec", { path: { ref: from } })).yaml;
    if (Object.keys(set).length) text = (await api.post("/v1/schema/job", { body: { yaml: text, set } })).yaml;
    this.write(text, from);
  }

  /** The text was changed by hand. */
  write(text: string, from = ""): void {
    this.text = text;
    this.#key = key();
    keep(from, text);
    clearTimeout(this.#form);
    this.#form = setTimeout(() => void this.#read(), FORM);
    this.#later();
  }

  /** An input of the form was changed. */
  set(path: string, typed: string, value: unknown): void {
    this.typed[path] = typed;
    this.#waiting[path] = value;
    clearTimeout(this.#form);
    this.#form = setTimeout(() => void this.#write(), FORM);
  }

  /** Fields are changed by a button. */
  async change(set: Record<string, unknown>): Promise<void> {
    this.#waiting = { ...this.#waiting, ...set };
    clearTimeout(this.#form);
    await this.#write();
  }

  end(): void {
    clearTimeout(this.#form);
    clearTimeout(this.#check);
    this.#running?.abort();
  }

  async submit(code: Schemas["Code"] | null): Promise<Schemas["JobView"]> {
    this.submitting = true;
    try {
      const body = { yaml: this.text, source: SOURCE, ...(code ? { code } : {}) };
      const headers = { "Idempotency-Key": this.#key }; // an answer that got lost does not make a second job
      const response = await request("post", "/v1/jobs", body, undefined, headers);
      sessionStorage.removeItem(KEPT);
      return (await response.json()) as Schemas["JobView"];
    } finally {
      this.submitting = false;
    }
  }

  async #read(): Promise<void> {
    const text = this.text;
    try {
      const { fields } = await api.post("/v1/schema/job", { body: { yaml: text } });
      if (text === this.text) this.fields = fields;
    } catch (error) {
      if (text === this.text) this.#failed(error);
    }
  }

  /** One after the other: each change is made in the text that the one before left. */
  async #write(): Promise<void> {
    if (this.#writing) return;
    this.#writing = true;
    try {
      while (Object.keys(this.#waiting).length) {
        const [set, text, typed] = [this.#waiting, this.text, { ...this.typed }];
        this.#waiting = {};
        const made = await api.post("/v1/schema/job", { body: { yaml: text, set } });
        if (text !== this.text) {
          this.#waiting = { ...set, ...this.#waiting }; // somebody typed into the text meanwhile
          continue;
        }
        this.fields = made.fields;
        this.typed = Object.fromEntries(
          Object.entries(this.typed).filter(([path, now]) => !(path in set) || now !== typed[path]),
        );
        if (made.yaml !== text) {
          this.text = made.yaml;
          this.#key = key();
          keep("", made.yaml);
        }
      }
      this.#later();
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#writing = false;
    }
  }

  #later(): void {
    clearTimeout(this.#check);
    this.#running?.abort();
    this.checking = true;
    this.#check = setTimeout(() => void this.check(), Math.max(CHECK, Math.min(LONGEST, 2 * this.#took)));
  }

  async check(): Promise<void> {
    const running = (this.#running = new AbortController());
    this.checking = true;
    try {
      if (!this.may(this.project)) return void (this.answer = null);
      const body = { yaml: this.text, dry_run: true, source: SOURCE };
      const began = Date.now();
      const answer = await api.post("/v1/jobs", { body, signal: running.signal });
      this.#took = Date.now() - began;
      this.answer = answer as Schemas["DryRun"];
      this.error = null;
    } catch (error) {
      if (!running.signal.aborted) this.#failed(error);
    } finally {
      if (this.#running === running) this.checking = false;
    }
  }

  #failed(error: unknown): void {
    this.answer = null;
    this.error =
      error instanceof ApiError ? error : new ApiError(-1, { code: "bug", message: String(error), hint: "" });
    if (this.error.passes) this.#check = setTimeout(() => void this.check(), 3000);
  }
}

function key(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What was written before in this tab, if it began with the same job. */
function read(from: string): string | null {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null") as { from: string; text: string } | null;
    return kept !== null && kept.from === from ? kept.text : null;
  } catch {
    return null;
  }
}

function keep(from: string, text: string): void {
  const known = from || new URLSearchParams(location.search).get("from") || "";
  sessionStorage.setItem(KEPT, JSON.stringify({ from: known, text }));
}
