/** Questions of the page that a tab opens with, asked before the page's code is there. Each answer is taken once. */
const FRESH = 5000; // ms
const asked = new Map<string, Promise<unknown>>();

export function askEarly(name: string, answer: Promise<unknown>): void {
  answer.catch(() => undefined); // whoever takes it shows what went wrong
  asked.set(name, answer);
  setTimeout(() => asked.delete(name), FRESH);
}

/** The answer, if this was asked just now. `A` is what was asked under the name. */
export function takeEarly<A>(name: string): Promise<A> | null {
  const found = asked.get(name);
  asked.delete(name);
  return (found as Promise<A> | undefined) ?? null;
}
