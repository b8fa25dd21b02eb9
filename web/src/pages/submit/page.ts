import type { PageEntry } from "../../router.svelte";

export default {
  path: "/submit",
  title: "Submit",
  key: "n",
  order: 15,
  load: () => import("./Submit.svelte"),
} satisfies PageEntry;
