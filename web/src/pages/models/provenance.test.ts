import { beforeAll, describe, expect, it } from "vitest";
import { compare, encoded, verify } from "./provenance";

const TYPE = "application/vnd.in-toto+json";
let pair: CryptoKeyPair;
let key: Parameters<typeof verify>[1][number];

beforeAll(async () => {
  pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  const spki = base64(new Uint8Array(await crypto.subtle.exportKey("spki", pair.publicKey)));
  const pem = `-----BEGIN PUBLIC KEY-----\n${spki}\n-----END PUBLIC KEY-----\n`;
  key = { id: "k1", pem, created_at: 1, retired_at: null };
});

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

async function statement(change = "1"): Promise<Parameters<typeof verify>[0]> {
  const predicate = {
    buildDefinition: { buildType: "urn:muster:build:run:v1", internalParameters: { ref: "model:gpt/1" } },
    runDetails: { metadata: { invocationId: "gpt-1" } },
  };
  const said = JSON.stringify({ subject: [{ name: "a", digest: { sha256: "1" } }], predicate });
  const signed = encoded(TYPE, new TextEncoder().encode(said));
  const sig = base64(new Uint8Array(await crypto.subtle.sign({ name: "Ed25519" }, pair.privateKey, signed)));
  const payload = btoa(said.replace('"1"', `"${change}"`));
  const envelope = { payload, payloadType: TYPE, signatures: [{ keyid: "k1", sig }] };
  return { ref: "model:gpt/1", digest: "d", key: "k1", time: 1, envelope };
}

describe("verify", () => {
  it("finds the signature good, and the files those that were signed", async () => {
    const found = await verify(await statement(), [key], [{ name: "a", digest: "1", path: "a", bytes: 1 }]);
    expect(found).toMatchObject({ signed: true, built: true, run: "gpt-1", changed: [], missing: [], extra: [] });
  });

  it("finds a statement that was changed, or whose key is unknown", async () => {
    expect((await verify(await statement("2"), [key], [])).signed).toBe(false);
    expect((await verify(await statement(), [], [])).signed).toBe(false);
  });
});

describe("compare", () => {
  it("names files that differ", () => {
    const subjects = ["a", "b"].map((name) => ({ name, digest: { sha256: "1" } }));
    const stored = [
      { name: "a", digest: "2" },
      { name: "c", digest: "1" },
    ];
    expect(compare(subjects, stored)).toEqual({ changed: ["a"], missing: ["b"], extra: ["c"] });
  });
});
