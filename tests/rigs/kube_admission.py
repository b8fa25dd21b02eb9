"""What a real API server says no with before it takes an object: rights, webhooks, quotas, policies; word for word.

Taken from a 1.37 API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rigs.kube_store import BY_NAME, ApiError, Kind, Object, Store

USER = "system:serviceaccount:muster:muster"


@dataclass
class Admission:
    """Set by tests. Kinds are named as in paths: `jobs`."""

    denied: set[tuple[str, str]] = field(default_factory=set)  # verb and kind that the account has no right to
    strange: set[str] = field(default_factory=set)  # namespaces in which the account has no right to anything
    webhooks: dict[str, str] = field(default_factory=dict)  # kind → name of a webhook of its creation that is down
    denials: dict[str, str] = field(default_factory=dict)  # kind → what a webhook says no with

    def authorize(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        if (verb, kind.plural) in self.denied or namespace in self.strange:
            raise forbidden(kind, name, cannot(verb, kind, namespace))

    def admit(self, store: Store, item: Object) -> None:
        """A creation."""
        kind = BY_NAME[item["kind"]]
        if hook := self.webhooks.get(kind.plural):
            told = (
                f'failed calling webhook "{hook}": failed to call webhook: '
                'Post "https://127.0.0.1:1/validate?timeout=2s": dial tcp 127.0.0.1:1: connect: connection refused'
            )
            causes = {"causes": [{"message": told}]}
            raise ApiError(500, "InternalError", f"Internal error occurred: {told}", causes)
        if said := self.denials.get(kind.plural):
            raise ApiError(400, "", f'admission webhook "vjob.kb.io" denied the request: {said}')
        check_quota(store, item)


def check_quota(store: Store, item: Object) -> None:
    kind, about = BY_NAME[item["kind"]], item["metadata"]
    counted = f"count/{kind.plural}.{kind.group}" if kind.group else f"count/{kind.plural}"
    for quota in store.list("ResourceQuota", about.get("namespace", "")) if kind.namespaced else []:
        hard = quota["spec"]["hard"].get(counted)
        used = len(store.list(kind.kind, about["namespace"]))
        if hard is not None and used >= int(hard):
            said = f"exceeded quota: {quota['metadata']['name']}, requested: {counted}=1, used: {counted}={used}"
            raise forbidden(kind, about["name"], f"{said}, limited: {counted}={hard}")


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    what = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    about = {"name": name, "group": kind.group, "kind": kind.plural}
    shown = f'{what} "{name}"' if name else what
    return ApiError(403, "Forbidden", f"{shown} is forbidden: {why}", {key: v for key, v in about.items() if v})


def cannot(verb: str, kind: Kind, namespace: str) -> str:
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    return f'User "{USER}" cannot {verb} resource "{kind.plural}" in API group "{kind.group}"{where}'


def quota(namespace: str, name: str = "compute", **hard: str) -> Object:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
