/** What the page of runs shows, as its address says; a saved view fills in what the address leaves out. */
import type { Schemas } from "../../api/client";
import { router } from "../../router.svelte";
import { namesOf } from "./columns";

export type View = Schemas["SavedQueryView"];

export function nameOf(view: View): string {
  return view.project ? `${view.project}/${view.name}` : view.name;
}

export class RunsState {
  #views: () => View[];
  constructor(views: () => View[]) {
    this.#views = views;
  }

  get saved(): View | undefined {
    const name = router.get("view");
    return name ? this.#views().find((one) => nameOf(one) === name) : undefined;
  }
  get query(): string {
    return router.get("q", this.saved?.query ?? "");
  }
  get sort(): string {
    return router.get("sort", this.saved?.sort ?? "");
  }
  /** Empty: what is suggested. */
  get columns(): string[] {
    return router.query.has("cols") ? namesOf(router.get("cols")) : (this.saved?.columns ?? []);
  }
  get group(): string {
    return router.get("group");
  }
  get pins(): string[] {
    return namesOf(router.get("pin"));
  }
  /** Whether it is not, or no longer, what the view has. */
  get changed(): boolean {
    return ["q", "sort", "cols"].some((name) => router.query.has(name));
  }

  /** What is emptied is no longer the view's: the address says all that is left of it. */
  set(values: { q?: string; sort?: string; cols?: string[]; group?: string; pin?: string[] }, push = false): void {
    const given: Record<string, string | null> = {};
    for (const [name, value] of Object.entries(values)) given[name] = Array.isArray(value) ? value.join(",") : value;
    if (this.saved && ["q", "sort", "cols"].some((name) => given[name] === "")) {
      const whole = { q: this.query, sort: this.sort, cols: this.columns.join(",") };
      router.set({ ...whole, ...given, view: null }, { push });
    } else router.set(given, { push });
  }
}
