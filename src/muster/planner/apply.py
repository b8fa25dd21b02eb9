"""Writes an option's settings into a configuration. In YAML only the values change: comments and order stay."""

from __future__ import annotations

import json
from typing import Any, Final

from muster.planner.search import Option
from muster.planner.setups import parse
from muster.planner.shapes import PlanError

_WORDS: Final = {"bfloat16": "bf16", "float16": "fp16"}


def settings(option: Option) -> dict[str, Any]:
    """Dotted name → value, of everything that the plan decides."""
    setup = option.setup
    found: dict[str, Any] = {
        "mesh": option.layout.mesh(),
        "parallel.checkpointing": setup.recompute,
        "data.micro_batch": setup.micro_samples(option.layout) if setup.micros(option.layout) > 1 else None,
    }
    if setup.offload:
        found["parallel.offload"] = True
    if setup.compute == "float16":
        found["precision"] = "fp16"
    return found


def applied(text: str, suffix: str, changes: dict[str, Any]) -> str:
    """The text of the configuration with the changes. A None takes the place of a key that is there, and adds none."""
    raw = parse(text, suffix)
    wanted = {name: value for name, value in changes.items() if (value if value != "none" else None) != _at(raw, name)}
    if suffix == ".json":
        for name, value in wanted.items():
            *above, last = name.split(".")
            below = raw
            for key in above:
                below = below.setdefault(key, {})
            below[last] = value
        return json.dumps(raw, indent=2) + "\n"
    if suffix not in (".yaml", ".yml"):
        told = ", ".join(f"{name} = {json.dumps(value)}" for name, value in wanted.items())
        raise PlanError(f"A {suffix} file is not written to: set {told}.")
    for name, value in wanted.items():
        text = _set(text, name.split("."), value)
    done = parse(text, suffix)
    if any(_at(done, name) != value for name, value in wanted.items()):
        raise PlanError("The file's layout is too unusual to be changed: set the values by hand.")
    return text


def _at(raw: Any, name: str) -> Any:
    for key in name.split("."):
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _set(text: str, keys: list[str], value: Any) -> str:
    import yaml  # noqa: PLC0415 - optional, as in `setups`

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    node, left = root, list(keys)
    while left and isinstance(node, yaml.MappingNode):
        below = next((each for key, each in node.value if key.value == left[0]), None)
        if below is None:
            break
        node, left = below, left[1:]
    shown = _flow(value)
    if not left:  # it is there: replace the value alone, not the line's end and its comment
        begin, end = node.start_mark.index, node.end_mark.index
        replaced = text[begin:end]
        end -= len(replaced) - len(replaced.rstrip())
        before = "" if begin == 0 or text[begin - 1] in " {[" else " "
        if isinstance(node, yaml.MappingNode) and not node.flow_style:  # a block: it goes up to its key's line
            begin = len(text[:begin].rstrip())
            before = " "
        return text[:begin] + before + shown + text[end:]
    if node is root:
        rest = shown
        for key in reversed(left[1:]):
            rest = f"{{{key}: {rest}}}"
        return f"{text.rstrip()}\n{left[0]}: {rest}\n"
    if not isinstance(node, yaml.MappingNode) or len(left) > 1:
        return _set(text, keys[: -len(left)], {left[0]: value})  # an empty section
    if node.flow_style:
        at = node.start_mark.index + 1
        return f"{text[:at]}{left[0]}: {shown}{', ' if node.value else ''}{text[at:]}"
    at, column = node.start_mark.index, node.start_mark.column
    return f"{text[:at]}{left[0]}: {shown}\n{' ' * column}{text[at:]}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)
