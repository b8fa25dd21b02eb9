import type { PageEntry } from "../../router.svelte";

export default {
  path: "/compare",
  title: "Compare",
  load: () => import("./Compare.svelte"),
} satisfies PageEntry;
