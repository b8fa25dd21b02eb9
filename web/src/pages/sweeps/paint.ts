/** What the canvases of a study share: their size in the screen's own pixels, and the colours of the page. */

/** Sizes a canvas for the screen; the context draws in CSS pixels. */
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d")!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Colours by the name of their variable, as the browser resolves them: a canvas knows no light-dark(). */
export function colours(element: HTMLElement, names: string[]): string[] {
  const probe = document.createElement("i");
  element.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}

/** By how good a trial is, the best first; the last is for those without a rank, and for what is not meant. */
export const GRADE_NAMES = ["--good", "--accent", "--wait", "--dim", "--line"];
export const GRADE_ALPHA = [0.95, 0.7, 0.45, 0.3, 0.3];

/** Calls `changed` when the system goes from light to dark or back. */
export function onScheme(changed: () => void): () => void {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", changed);
  return () => scheme.removeEventListener("change", changed);
}
