import type { PageEntry } from "../../router.svelte";

export default {
  path: "/models/:name",
  title: "Model",
  load: () => import("./Model.svelte"),
} satisfies PageEntry;
