"""Writes what the pages need of the server's OpenAPI document, for the types that are made of it: `openapi.py FILE`.

Every error has one shape (`ErrorView`), so the answers of each route that are errors are left out.
"""

import json
import sys
from pathlib import Path
from typing import Any

from muster.server.app import create_app


def document() -> dict[str, Any]:
    api = create_app(None).openapi()  # type: ignore[arg-type]
    for operation in (one for path in api["paths"].values() for one in path.values()):
        operation["responses"] = {code: one for code, one in operation["responses"].items() if int(code) < 400}
    return _without_titles(api)  # type: ignore[no-any-return]


def _without_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_titles(value) for key, value in node.items() if key != "title" or isinstance(value, dict)}
    return [_without_titles(one) for one in node] if isinstance(node, list) else node


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document()))
