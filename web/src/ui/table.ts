/** A column of a table. */
import type { Snippet } from "svelte";

export interface Column {
  name: string;
  /** What it is sorted by; without it, it is not sorted. */
  sort?: string;
  number?: boolean;
  width?: string;
  /** What is drawn in place of its name: an axis. The name is still read to those who don't see it. */
  head?: Snippet;
  /** Shown when the pointer is over the header. */
  title?: string;
  /** It stays at the left when the table is scrolled sideways; its cells have the class `stick`. */
  stick?: boolean;
}
