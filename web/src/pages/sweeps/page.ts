import type { PageEntry } from "../../router.svelte";

export default {
  path: "/sweeps",
  title: "Sweeps",
  key: "s",
  order: 40,
  load: () => import("./Sweeps.svelte"),
} satisfies PageEntry;
