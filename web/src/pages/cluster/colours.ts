/** The colours of the map's keys, as variables of the page and as the browser resolves them for a canvas. */
import { colourOf } from "../../charts/colours";
import type { Colours } from "./paint";

/** The free ones are the ground, and what is in use stands out. */
const NAMED: Record<string, string> = {
  "use-0": "light-dark(#d3d8e1, #39414e)",
  "use-1": "light-dark(#b9c8f3, #35426c)",
  "use-2": "light-dark(#8fa8ec, #4a5f9f)",
  "use-3": "light-dark(#5f80e0, #6784d4)",
  "use-4": "light-dark(#2c51cf, #8aa6ff)",
  healthy: "light-dark(#3f9c63, #4fae76)",
  suspect: "light-dark(#d9a514, #e6b450)",
  draining: "light-dark(#d1721c, #e08a3c)",
  quarantined: "light-dark(#b3261e, #ff6f61)",
  "heat-0": "light-dark(#4f8fc0, #5aa9c9)",
  "heat-1": "light-dark(#7fae6a, #7fae6a)",
  "heat-2": "light-dark(#d9a514, #e6b450)",
  "heat-3": "light-dark(#d1721c, #e08a3c)",
  "heat-4": "light-dark(#b3261e, #ff6f61)",
  other: "light-dark(#8a8f98, #7d8593)",
};
const PALETTE = 9;

/** As a value of CSS. */
export function cssOf(colour: string): string {
  return NAMED[colour] ?? colourOf(Number(colour));
}

/** `probe`: an element of the page; a canvas knows no light-dark(). */
export function resolved(probe: HTMLElement): Colours {
  const resolve = (css: string): string => {
    probe.style.color = css;
    return getComputedStyle(probe).color;
  };
  const keys = [...Object.keys(NAMED), ...Array.from({ length: PALETTE }, (_, at) => String(at))];
  return {
    text: resolve("var(--text)"),
    dim: resolve("var(--dim)"),
    focus: resolve("var(--text)"),
    out: resolve("var(--bad)"),
    keys: Object.fromEntries(keys.map((key) => [key, resolve(cssOf(key))])),
  };
}
