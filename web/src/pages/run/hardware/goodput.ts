/** The classes of held time, in the order of a run's life, with their colours. */
const CLASSES: [prefix: string, name: string, colour: string][] = [
  ["training", "training", "var(--good)"],
  ["evaluating", "evaluating", "#5aa9c9"],
  ["starting.launch", "launch", "#8a8f98"],
  ["starting.import", "import", "#a58fd8"],
  ["starting.rendezvous", "rendezvous", "#7560c9"],
  ["starting.build", "build", "#b84f9e"],
  ["starting.compile", "compile", "#d1721c"],
  ["starting.load", "load", "#8c6d1f"],
  ["starting.program", "start of the program", "#c98fd8"],
  ["data", "waiting for data", "#3b6fd4"],
  ["saving", "saving", "#1f9a6b"],
  ["done_again", "done again", "#e6b450"],
  ["idle", "idle", "var(--line)"],
  ["hung", "hung", "#c2403f"],
  ["lost", "lost", "var(--bad)"],
];

export interface Class {
  name: string;
  value: number;
  colour: string;
}

export function classes(parts: Record<string, number>): Class[] {
  const known = CLASSES.flatMap(([key, name, colour]) => (key in parts ? [{ name, value: parts[key]!, colour }] : []));
  const others = Object.keys(parts).filter((key) => !CLASSES.some(([one]) => one === key));
  return [
    ...known,
    ...others.map((key) => ({ name: key.replaceAll("_", " "), value: parts[key]!, colour: "#7f8a2a" })),
  ];
}
