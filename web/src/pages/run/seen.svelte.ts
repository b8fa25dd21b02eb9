/** Whether an element is in view, or nearly: what is not is neither asked for nor drawn. */
export class Seen {
  now = $state(false);
  ever = $state(false);

  /** For `{@attach}`. */
  watch = (element: Element): (() => void) => {
    const observer = new IntersectionObserver(
      (entries) => {
        this.now = entries.at(-1)!.isIntersecting;
        this.ever ||= this.now;
      },
      { rootMargin: "300px" },
    );
    observer.observe(element);
    return () => observer.disconnect();
  };
}
