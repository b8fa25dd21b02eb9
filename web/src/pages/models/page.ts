import type { PageEntry } from "../../router.svelte";

export default {
  path: "/models",
  title: "Models",
  key: "d",
  order: 70,
  load: () => import("./Models.svelte"),
} satisfies PageEntry;
