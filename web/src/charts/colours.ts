/** Colours of lines that are told apart: in light and dark, and by people who see few colours. */
const COLOURS = [
  "#3b6fd4",
  "#d1721c",
  "#1f9a6b",
  "#b84f9e",
  "#8c6d1f",
  "#5aa9c9",
  "#c2403f",
  "#7560c9",
  "#7f8a2a",
  "#8a8f98",
];

export function colourOf(index: number): string {
  return COLOURS[index % COLOURS.length]!;
}
