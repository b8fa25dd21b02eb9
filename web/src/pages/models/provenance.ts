/** Whether the files of a version are those of its signed statement: the same checks as `muster models verify`. */
import type { Schemas } from "../../api/client";

const PAYLOAD = "application/vnd.in-toto+json";
const BUILT = "urn:muster:build:run:v1"; // every file came from an attempt of a job

export interface Subject {
  name: string;
  digest: { sha256?: string };
}
export interface Statement {
  subject: Subject[];
  predicate: {
    buildDefinition?: { buildType?: string; internalParameters?: { ref?: string } };
    runDetails?: { metadata?: { invocationId?: string }; builder?: { id?: string } };
  };
}
export interface Verdict {
  /** null: this browser can't check signatures. */
  signed: boolean | null;
  key: string;
  about: string;
  built: boolean;
  run: string;
  files: number;
  changed: string[];
  missing: string[];
  extra: string[];
}
type Envelope = { payload: string; payloadType: string; signatures: { keyid: string; sig: string }[] };

export async function verify(
  statement: Schemas["StatementView"],
  keys: readonly Schemas["SigningKeyView"][],
  stored: readonly Schemas["StoredFile"][],
): Promise<Verdict> {
  const envelope = statement.envelope as unknown as Envelope;
  const payload = fromBase64(envelope.payload);
  const [signed, key] = await signedBy(envelope, payload, keys);
  const said = JSON.parse(new TextDecoder().decode(payload)) as Statement;
  const { buildDefinition, runDetails } = said.predicate;
  return {
    signed,
    key,
    about: buildDefinition?.internalParameters?.ref ?? "",
    built: buildDefinition?.buildType === BUILT,
    run: runDetails?.metadata?.invocationId ?? "",
    files: said.subject.length,
    ...compare(said.subject, stored),
  };
}

/** Files that differ from the statement, are in it and not stored, or are stored and not in it. */
export function compare(
  subjects: readonly Subject[],
  stored: readonly Pick<Schemas["StoredFile"], "name" | "digest">[],
): Pick<Verdict, "changed" | "missing" | "extra"> {
  const wanted = new Map(subjects.map((one) => [one.name, one.digest.sha256]));
  const found = new Map(stored.map((one) => [one.name, one.digest]));
  const names = [...wanted.keys()].sort();
  return {
    changed: names.filter((name) => found.has(name) && found.get(name) !== wanted.get(name)),
    missing: names.filter((name) => !found.has(name)),
    extra: [...found.keys()].filter((name) => !wanted.has(name)).sort(),
  };
}

/** Whether one of the keys signed it, and which. */
async function signedBy(
  envelope: Envelope,
  payload: Uint8Array<ArrayBuffer>,
  keys: readonly Schemas["SigningKeyView"][],
): Promise<[boolean | null, string]> {
  if (envelope.payloadType !== PAYLOAD) return [false, ""];
  const signed = encoded(envelope.payloadType, payload);
  for (const { keyid, sig } of envelope.signatures) {
    for (const key of keys.filter((one) => one.id === keyid)) {
      try {
        const spki = fromBase64(key.pem.replace(/-----[A-Z ]+-----|\s/g, ""));
        const imported = await crypto.subtle.importKey("spki", spki, { name: "Ed25519" }, false, ["verify"]);
        if (await crypto.subtle.verify({ name: "Ed25519" }, imported, fromBase64(sig), signed)) return [true, key.id];
      } catch {
        return [null, key.id]; // no Ed25519 in this browser, or not over HTTPS
      }
    }
  }
  return [false, ""];
}

/** What is signed: DSSE's pre-authentication encoding. */
export function encoded(type: string, payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const kind = new TextEncoder().encode(type);
  const head = new TextEncoder().encode(`DSSEv1 ${kind.length} ${type} ${payload.length} `);
  const all = new Uint8Array(head.length + payload.length);
  all.set(head);
  all.set(payload, head.length);
  return all;
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
}
