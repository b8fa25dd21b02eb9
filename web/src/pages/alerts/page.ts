import type { PageEntry } from "../../router.svelte";

export default {
  path: "/alerts",
  title: "Alerts",
  key: "a",
  order: 50,
  load: () => import("./Alerts.svelte"),
} satisfies PageEntry;
