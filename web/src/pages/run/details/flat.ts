/** Nested values of a document as rows of a dotted name and a text. */
export interface Fact {
  name: string;
  text: string;
}

export function flat(value: unknown, name = ""): Fact[] {
  if (value === null || value === undefined || value === "") return [];
  if (Array.isArray(value)) {
    const plain = value.every((one) => typeof one !== "object" || one === null);
    if (plain) return value.length ? [{ name, text: value.join(", ") }] : [];
    return value.flatMap((one, at) => flat(one, `${name}.${at}`));
  }
  if (typeof value === "object")
    return Object.entries(value).flatMap(([key, inner]) => flat(inner, name ? `${name}.${key}` : key));
  return [{ name, text: String(value) }];
}

/** A document within another; empty where it is none. */
export function part(doc: Record<string, unknown>, name: string): Record<string, unknown> {
  const found = doc[name];
  return typeof found === "object" && found !== null && !Array.isArray(found) ? (found as Record<string, unknown>) : {};
}
