"""What `kubectl kustomize` makes of a folder, as far as deploy/ uses it: resources, config maps, images and patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Doc = dict[str, Any]
KNOWN = {"apiVersion", "kind", "resources", "configMapGenerator", "generatorOptions", "images", "patches", "components"}
# What the lists of a strategic merge are merged by; others are replaced.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
}


def build(folder: Path) -> list[Doc]:
    """Fails on what it does not know, so that nothing in deploy/ is left untested."""
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert file.keys() <= KNOWN, file.keys() - KNOWN
    assert (file["apiVersion"], file["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    parts = [yaml.safe_load((folder / name / "kustomization.yaml").read_text()) for name in file.get("components", ())]
    for part in parts:
        assert (part["apiVersion"], part["kind"]) == ("kustomize.config.k8s.io/v1alpha1", "Component")
        assert part.keys() <= {"apiVersion", "kind", "images"}
    assert file.get("generatorOptions", {}).keys() <= {"disableNameSuffixHash"}
    made: list[Doc] = []
    for name in file["resources"]:
        path = folder / name
        made += build(path) if path.is_dir() else [one for one in yaml.safe_load_all(path.read_text()) if one]
    for entry in file.get("configMapGenerator", ()):
        _generate(made, folder, entry)
    for patch in file.get("patches", ()):
        assert patch.keys() <= {"path", "patch"}
        text = (folder / patch["path"]).read_text() if "path" in patch else patch["patch"]
        (body,) = yaml.safe_load_all(text)
        made = _patched(made, body)
    for image in [image for one in (*parts, file) for image in one.get("images", ())]:
        tag = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
        for document in made:
            _retag(document, image["name"], f"{image['newName']}{tag}")
    identities = [identity(document) for document in made]
    assert len(set(identities)) == len(identities), "two objects have one name"
    return made


def identity(document: Doc) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _generate(made: list[Doc], folder: Path, entry: Doc) -> None:
    assert entry.keys() <= {"name", "namespace", "behavior", "files"}
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": entry["name"], "namespace": entry["namespace"]},
        "data": {name: (folder / name).read_text() for name in entry["files"]},
    }
    there = [one for one in made if identity(one) == identity(document)]
    assert bool(there) == (entry.get("behavior") == "replace")
    for one in there:
        made.remove(one)
    made.append(document)


def _patched(made: list[Doc], patch: Doc) -> list[Doc]:
    (target,) = [one for one in made if identity(one) == identity(patch)]
    if patch.get("$patch") == "delete":
        return [one for one in made if one is not target]
    return [_merged(one, patch) if one is target else one for one in made]


def _merged(base: Doc, over: Doc) -> Doc:
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            found[key] = _merged(old, value)
        elif isinstance(old, list) and key in MERGE_KEYS:
            found[key] = _merged_list(old, value, MERGE_KEYS[key])
        else:
            found[key] = value
    return found


def _merged_list(base: list[Doc], over: list[Doc], key: str) -> list[Doc]:
    named = {one[key]: one for one in base}
    for one in over:
        if one.get("$patch") == "delete":
            del named[one[key]]
        else:
            named[one[key]] = _merged(named.get(one[key], {}), one)
    return list(named.values())


def _retag(value: Any, name: str, image: str) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("image"), str) and value["image"].partition("@")[0].partition(":")[0] == name:
            value["image"] = image
        for inner in value.values():
            _retag(inner, name, image)
    elif isinstance(value, list):
        for inner in value:
            _retag(inner, name, image)
