import type { PageEntry } from "../../router.svelte";

export default {
  path: "/",
  title: "Home",
  key: "h",
  order: 0,
  load: () => import("./Home.svelte"),
} satisfies PageEntry;
