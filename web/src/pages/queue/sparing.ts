/** Questions that cost the server seconds, such as forecasts of large queues: asked again only after a rest as long as
 * they took, many times over. */
const REST = 10; // times of what the answer took
const LEAST = 10_000; // ms

/** `key`: what is asked for; another one is asked at once. Both functions may read reactive values. */
export function sparing<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  key: () => string,
): (signal: AbortSignal) => Promise<T> {
  let known: { key: string; answer: T; until: number } | null = null;
  return async (signal) => {
    const wanted = key();
    if (known?.key === wanted && Date.now() < known.until) return known.answer;
    const began = Date.now();
    const answer = await ask(signal);
    const now = Date.now();
    known = { key: wanted, answer, until: now + Math.max(LEAST, REST * (now - began)) };
    return answer;
  };
}
