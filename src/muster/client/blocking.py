"""The blocking side of the client: its transport, and functions that make ordinary methods of the coroutines of calls.

All calls of the API are written once, as coroutines over a `Transport`. Those of `BlockingTransport` do their work when
they are called and never suspend, so such a coroutine runs from its start to its end in one step, without an event
loop. For the same reason a blocking client can be used inside of a program that has an event loop, such as a notebook.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from muster.client.http import Blocks, Transport

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


def complete(work: Awaitable[T]) -> T:
    """The result of a coroutine that never suspends."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("A blocking client can't wait for an event loop.")


def iterate(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator that never suspends."""
    try:
        while True:
            try:
                item = complete(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        complete(items.aclose())


def blocking(call: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """A method that returns the result of the call."""

    @functools.wraps(call)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return complete(call(self, *args, **kwargs))

    return method


def iterating(call: Callable[Concatenate[S, P], AsyncGenerator[T, None]]) -> Callable[Concatenate[S, P], Iterator[T]]:
    """A method that returns an iterator over what the call yields."""

    @functools.wraps(call)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(call(self, *args, **kwargs))

    return method


class BlockingTransport(Transport):
    """Every method has done its work when it returns. Thread-safe."""

    async def blocks(self, response: httpx.Response, size: int | None = None) -> AsyncGenerator[bytes, None]:
        for block in response.iter_bytes(size):
            yield block

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def waiter(self) -> Callable[[Awaitable[Any]], Any]:
        return complete

    async def each(self, lanes: int, function: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
        with ThreadPoolExecutor(lanes, "muster-client") as pool:
            list(pool.map(lambda item: complete(function(item)), items))

    async def _exchange(self, method: str, url: str, parts: Mapping[str, Any], stream: bool) -> httpx.Response:
        return self._http.send(self._http.build_request(method, url, **parts), stream=stream)

    async def _finish(self, response: httpx.Response) -> None:
        response.close()

    async def _disconnect(self) -> None:
        self._http.close()

    def _body(self, make: Blocks) -> Any:
        return _Body(make)

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(**self._settings())


class _Body:
    def __init__(self, make: Blocks) -> None:
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._make())
