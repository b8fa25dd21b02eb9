/** Which lines of a comparison are drawn, and how: the first in colours, some more faintly, the others not. */
import { colourOf } from "../../charts/colours";

export const COLOURED = 10;
export const DRAWN = 50;

export function lineColour(at: number): string {
  return at < COLOURED ? colourOf(at) : at < DRAWN ? "var(--dim)" : "transparent";
}
