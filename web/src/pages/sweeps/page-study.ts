import type { PageEntry } from "../../router.svelte";

export default {
  path: "/sweeps/:study",
  title: "Sweep",
  load: () => import("./Study.svelte"),
} satisfies PageEntry;
