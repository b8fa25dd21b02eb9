"""`TypedDict` for the shapes of the API, and the mark of a shape that may have further keys.

Pydantic makes the OpenAPI document from the shapes, and on Python 3.11 it reads those of `typing_extensions` alone. A
node has only the standard library: there the shapes are never looked at, and `typing` will do.

Modules with shapes don't postpone their annotations: a shape that extends one of another module would then look up
the names of that module in its own.
"""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import NotRequired

    from typing_extensions import TypedDict
else:
    try:
        from typing import NotRequired

        from typing_extensions import TypedDict
    except ImportError:
        from typing import NotRequired, TypedDict

__all__ = ["Doc", "NotRequired", "TypedDict", "open_ended"]

Shape = TypeVar("Shape")
Doc = dict[str, Any]  # what a program or another tool wrote: any JSON object


def open_ended(shape: type[Shape]) -> type[Shape]:
    """Marks a shape whose values have more keys than it names, because programs write them."""
    shape.__pydantic_config__ = {"extra": "allow"}  # type: ignore[attr-defined]
    return shape
