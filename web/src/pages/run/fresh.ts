/** When answers about a run are asked for again: at its events, or every few seconds where there are none. */
import type { LiveOptions } from "../../api/live.svelte";
import { signed } from "../../api/session.svelte";

/** `id`: of the run, once it is known. `every`: milliseconds, while it is active. The link of a share has no events. */
export function freshOf(id: () => string | undefined, every: () => number | undefined, pause = 1000): LiveOptions {
  const options: LiveOptions = {
    get every() {
      return every();
    },
    pause,
  };
  if (!signed.session?.run) options.on = (event) => event.job !== "" && event.job === id();
  return options;
}
