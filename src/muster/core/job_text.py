"""Changes fields in the text of a job file, and leaves the rest of the text as it was written, comments included."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import yaml

from muster.core.document import read_document
from muster.core.dump import JobDumper, yaml_text
from muster.core.errors import SpecError
from muster.core.fields import read_fields
from muster.core.report import At, Plain, Report, Stop, is_null

Doc = dict[str, Any]
_WIDE: Final = 10**6  # characters of a line: values are not folded


def fields_of(text: str, source: str = "job") -> Doc:
    """The fields of a job file as they are written, by their names such as `resources.cpus`. Raises SpecError if it
    can't be read at all; what is wrong with single fields is left to `parse_job`."""
    return {".".join(path): _plain(entry.raw) for path, entry in _entries(_document(text, source)).items()}


def change_fields(text: str, changes: Mapping[str, Any], source: str = "job") -> str:
    """The text with these fields set as given; None removes one. Raises SpecError if the text can't be read."""
    for name, value in changes.items():
        text = _changed(text, name, _as_typed(value), source)
    return text


def _changed(text: str, name: str, value: Any, source: str) -> str:
    """One change: in the place of the old value if that gives the wanted document, else everything is written anew."""
    document = _document(text, source)
    entries, path = _entries(document), tuple(name.split("."))
    found = entries.get(path)
    if found is None and value is None:
        return text
    at: At = found.at if found is not None else path
    wanted = deepcopy(document)
    for short, entry in entries.items():  # `topology: rack` gives way to `topology: {require: rack, ...}`
        if found is None and len(short) > 1 and entry.at == path[:-1]:
            wanted[str(short[0])] = {short[-1]: entry.raw}
    _put(wanted, at, value)
    made = _in_place(text, at, value, wanted)
    if made is not None and _same(made, wanted):
        return made
    return yaml_text(wanted) if wanted else ""


def _put(document: Doc, at: At, value: Any) -> None:
    """Sets or removes a value of a document."""
    inside, key = document, str(at[-1])
    for part in at[:-1]:
        below = inside.get(str(part))
        if not isinstance(below, dict):
            below = inside[str(part)] = {}
        inside = below
    if value is not None:
        inside[key] = value
        return
    inside.pop(key, None)
    if not inside and len(at) > 1:
        _put(document, at[:-1], None)


def _in_place(text: str, at: At, value: Any, wanted: Doc) -> str | None:
    """None where the text does not offer a simple place for the change."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return None if value is None else _with_end(text) + _line(at, value, 0)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    section, indent = root, 0
    for depth, part in enumerate(at[:-1]):
        key, below = next(((key, node) for key, node in section.value if key.value == part), (None, None))
        if below is None:
            return None if value is None or depth else _with_end(text) + _line(at, value, 0)
        if not isinstance(below, yaml.MappingNode) or below.flow_style or not below.value:
            return _replaced(text, key, below, wanted.get(str(part)), indent, flow=True) if depth == 0 else None
        section, indent = below, below.start_mark.column
    for key, node in section.value:
        if key.value == at[-1]:
            return _replaced(text, key, node, value, indent)
    if value is None:
        return None
    if section is root:
        return _with_end(text) + _line(at, value, 0)
    end = _end_of(text, section.value[-1][1])
    return _with_end(text[:end]) + _line(at[-1:], value, indent) + text[end:]


def _replaced(text: str, key: Any, node: Any, value: Any, indent: int, flow: bool = False) -> str:
    """`flow`: a mapping is written on one line, as it was."""
    begin, end = key.start_mark.index, _end_of(text, node)
    if value is None:
        return text[: begin - key.start_mark.column] + text[end:]
    if (isinstance(value, Mapping) and not flow) or (isinstance(value, str) and "\n" in value):
        return text[:begin] + _line((key.value,), value, indent).lstrip(" ") + text[end:]
    if isinstance(value, Mapping | list):
        made = yaml.dump(value, Dumper=JobDumper, default_flow_style=True, width=_WIDE, sort_keys=False).strip()
    else:
        made = yaml_text({"x": value}).partition(":")[2].strip()
    if key.end_mark.line == node.end_mark.line:  # a comment behind it stays
        return text[: node.start_mark.index] + made + text[node.end_mark.index :]
    return f"{text[: key.end_mark.index]}: {made}\n{text[end:]}"


def _end_of(text: str, node: Any) -> int:
    """Where the line ends on which a value ends; blocks of text end at the start of the next line already."""
    index = min(node.end_mark.index, len(text))
    while index and text[index - 1].isspace():  # a block ends before what follows it
        index -= 1
    line = text.find("\n", index)
    return len(text) if line < 0 else line + 1


def _line(at: At, value: Any, indent: int) -> str:
    document: Any = value
    for part in reversed(at):
        document = {str(part): document}
    return "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in yaml_text(document).rstrip("\n").split("\n"))


def _with_end(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _same(text: str, wanted: Doc) -> bool:
    report = Report()
    try:
        return _plain(read_document(text, report)) == _plain(_texts(wanted)) and not report.problems()
    except Stop:
        return False


def _as_typed(value: Any) -> Any:
    """Text as a person would write it: without quotes, unless it would mean nothing then."""
    if isinstance(value, Mapping):
        return {str(key): _as_typed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_typed(item) for item in value]
    return Plain(value) if isinstance(value, str) and not is_null(Plain(value)) else value


def _document(text: str, source: str) -> Doc:
    report = Report()
    if not text.strip() or all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return {}
    try:
        return dict(read_document(text, report))
    except Stop:
        raise SpecError(report.problems(), source) from None


def _entries(document: Doc) -> Mapping[tuple[str, ...], Any]:
    try:
        return read_fields(document, (), Report())
    except Stop:
        return {}


def _texts(value: Any) -> Any:
    """As a file is read: every scalar is text."""
    return _plain(yaml.load(yaml_text(value), Loader=yaml.BaseLoader) if value else {})  # noqa: S506  (plain data alone)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value
