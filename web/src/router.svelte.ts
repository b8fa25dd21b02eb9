/** Which page the address names. The whole state of a view is in its address, so links and the back key work. */
import type { Component } from "svelte";

export interface PageEntry {
  /** Segments that begin with `:` are parameters: /runs/:run */
  path: string;
  title: string;
  /** The key after `g` that opens it. */
  key?: string;
  /** Its place in the navigation; without one it is not there. */
  order?: number;
  // A page without parameters has no properties, which TypeScript takes for another kind of component.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  load: () => Promise<{ default: Component<any> }>;
  /** Asks for what it shows first, when a tab opens with it. */
  early?: (params: Record<string, string>, query: URLSearchParams) => void;
}

const found = import.meta.glob<{ default: PageEntry }>(["./pages/*/page.ts", "./pages/*/page-*.ts"], { eager: true });
export const PAGES: PageEntry[] = Object.values(found).map((one) => one.default);
export const NAVIGATION = PAGES.filter((one) => one.order !== undefined).sort((a, b) => a.order! - b.order!);

class Router {
  path = $state(location.pathname);
  query = $state.raw(new URLSearchParams(location.search));

  get found(): { page: PageEntry; params: Record<string, string> } | null {
    for (const page of PAGES) {
      const params = match(page.path, this.path);
      if (params) return { page, params };
    }
    return null;
  }

  go(url: string, { replace = false }: { replace?: boolean } = {}): void {
    const to = new URL(url, location.href);
    if (to.origin !== location.origin) return;
    const moved = to.pathname !== location.pathname;
    history[replace ? "replaceState" : "pushState"](null, "", to);
    this.take();
    if (moved) scrollTo(0, 0);
  }

  /** One value of the state of a view; `fallback` is not written into the address. */
  get(name: string, fallback = ""): string {
    return this.query.get(name) ?? fallback;
  }

  set(values: Record<string, string | null>, { push = false }: { push?: boolean } = {}): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const search = query.toString();
    if (search === this.query.toString()) return;
    this.go(this.path + (search ? `?${search}` : ""), { replace: !push });
  }

  take(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }
}

export const router = new Router();

export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = (path.length > 1 ? path.replace(/\/+$/, "") : path).split("/");
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [at, segment] of wanted.entries()) {
    if (segment.startsWith(":")) {
      if (!given[at]) return null;
      try {
        params[segment.slice(1)] = decodeURIComponent(given[at]);
      } catch {
        return null;
      }
    } else if (segment !== given[at]) return null;
  }
  return params;
}

/** Links within the page are followed without loading it again. */
export function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = (event.target as Element).closest("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (/^\/(v1|docs|openapi\.json|mlflow|metrics)(\/|$)/.test(link.pathname)) return;
  event.preventDefault();
  router.go(link.href);
}

addEventListener("popstate", () => router.take());
