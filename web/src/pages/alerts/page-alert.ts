import type { PageEntry } from "../../router.svelte";

export default {
  path: "/alerts/:number",
  title: "Alert",
  load: () => import("./Alert.svelte"),
} satisfies PageEntry;
