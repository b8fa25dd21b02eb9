/** Keys: `/` searches, `g` and a letter opens a page, `?` shows them all; none while something is typed. */
import { NAVIGATION, router } from "./router.svelte";

export interface Key {
  keys: string;
  does: string;
}

const FOLLOWS = 1500; // ms within which the letter follows `g`

class Keys {
  palette = $state(false);
  help = $state(false);
  /** Keys of the page that is shown, while it is. */
  own = $state.raw<(Key & { act: () => void })[]>([]);
  #going = 0;

  all(): Key[] {
    return [
      { keys: "/", does: "search for a page, a job, a run or a study" },
      ...NAVIGATION.filter((page) => page.key).map((page) => ({ keys: `g ${page.key}`, does: page.title })),
      ...this.own,
      { keys: "?", does: "all keys" },
    ];
  }

  pressed = (event: KeyboardEvent): void => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      this.palette = true;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typed(event.target)) return;
    const went = performance.now() - this.#going < FOLLOWS;
    this.#going = 0;
    const page = went ? NAVIGATION.find((one) => one.key === event.key) : undefined;
    const own = this.own.find((one) => one.keys === event.key);
    if (page) router.go(page.path);
    else if (event.key === "g") this.#going = performance.now();
    else if (event.key === "/") this.palette = true;
    else if (event.key === "?") this.help = true;
    else if (own) own.act();
    else return;
    event.preventDefault();
  };
}

export const keys = new Keys();

function typed(target: EventTarget | null): boolean {
  const element = target as HTMLElement;
  return (
    /^(input|textarea|select)$/i.test(element.tagName ?? "") ||
    element.isContentEditable ||
    !!element.closest?.("dialog[open]")
  );
}
