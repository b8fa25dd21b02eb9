/** The code of pages. Where it can't be had, the server is away, or has another version than this tab began with. */
import { watchers } from "./api/client";
import type { PageEntry } from "./router.svelte";

const KEPT = "muster.reloaded"; // when this tab was loaded again for code
const SOON = 10_000; // ms
const PAUSE = 1500; // ms between two questions whether the server answers

/** Loads the tab again once the server answers; fails if that did not help. */
export async function codeOf(page: PageEntry): ReturnType<PageEntry["load"]> {
  try {
    return await page.load();
  } catch (error) {
    if (Date.now() - Number(sessionStorage.getItem(KEPT) ?? 0) < SOON) throw error;
    while (!(await answers())) {
      watchers.away(true);
      await new Promise((done) => setTimeout(done, PAUSE));
    }
    sessionStorage.setItem(KEPT, String(Date.now()));
    location.reload();
    return new Promise(() => undefined); // this tab ends here
  }
}

async function answers(): Promise<boolean> {
  try {
    return (await fetch("/", { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}
