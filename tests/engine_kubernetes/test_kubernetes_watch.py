"""A mirror stays in step with the cluster: pages, watches that break, versions that are gone, servers that are away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kube_kit import api_server, config_map

from live import until
from muster.core.errors import EngineError
from muster.engines.kubernetes import client as client_module
from muster.engines.kubernetes.client import CONFIG_MAPS, KubeClient, KubeError
from muster.engines.kubernetes.watch import Mirror
from rigs.kube_api import ApiServer
from rigs.kube_store import ApiError

PATH = CONFIG_MAPS.path("training")


@pytest.fixture
def there() -> Iterator[tuple[ApiServer, KubeClient]]:
    with api_server() as pair:
        yield pair


class Watched:
    """A mirror, and what it told."""

    def __init__(self, client: KubeClient, **params: str) -> None:
        self.told, self.removed = 0, []
        self.mirror = Mirror(client, PATH, params, self._changed, removed=lambda item: self.removed.append(item))
        self.mirror.start()

    def _changed(self) -> None:
        self.told += 1

    def data(self) -> dict[str, dict[str, str]]:
        return {name: item.get("data", {}) for (_, name), item in self.mirror.snapshot().items()}


def test_changes_come_without_asking(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    server.store.create(config_map("a", x="1"))
    watched = Watched(client)
    watched.mirror.wait(180)
    assert watched.data() == {"a": {"x": "1"}}
    lists = sum(method == "GET" for method, _ in server.calls)
    server.store.create(config_map("b", y="1"))
    client.merge(CONFIG_MAPS.path("training", "a"), {"data": {"x": "2"}})
    until(lambda: watched.data() == {"a": {"x": "2"}, "b": {"y": "1"}}, "both changes")
    client.delete(CONFIG_MAPS.path("training", "b"))
    until(lambda: watched.data() == {"a": {"x": "2"}}, "the deletion")
    assert [item["metadata"]["name"] for item in watched.removed] == ["b"]
    assert sum(method == "GET" for method, _ in server.calls) <= lists + 1  # the watch itself, if it began meanwhile
    watched.mirror.close()


def test_characters_that_break_lines_elsewhere_break_none_here(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    watched = Watched(client)
    watched.mirror.wait(180)
    server.store.create(config_map("a", x="one\x85two\u2028three\x1cfour"))
    until(lambda: watched.data() == {"a": {"x": "one\x85two\u2028three\x1cfour"}}, "the object")
    assert watched.mirror.away() == (0.0, None)
    watched.mirror.close()


def test_long_lists_come_in_pages(there: tuple[ApiServer, KubeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = there
    monkeypatch.setattr(client_module, "PAGE", 7)
    for number in range(20):
        server.store.create(config_map(f"c{number:02}"))
    items, version = client.list(PATH, {})
    assert [item["metadata"]["name"] for item in items] == [f"c{number:02}" for number in range(20)]
    assert {(item["kind"], item["apiVersion"]) for item in items} == {("ConfigMap", "v1")}
    assert version == str(server.store.version)
    assert server.calls.count(("GET", PATH)) == 3


def test_a_version_that_is_gone_is_answered_by_a_new_list(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    server.store.create(config_map("a"))
    server.store.create(config_map("b"))
    watched = Watched(client)
    watched.mirror.wait(180)
    with server.store.lock:  # all at once, so that the watch can't follow
        server.store.delete("ConfigMap", "training", "a")
        server.store.create(config_map("c"))
        server.store.compact()
    until(lambda: sorted(watched.data()) == ["b", "c"], "the new list")
    assert [item["metadata"]["name"] for item in watched.removed] == ["a"]
    watched.mirror.close()


def test_a_watch_that_breaks_off_goes_on_where_it_was(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    watched = Watched(client)
    watched.mirror.wait(180)
    server.breaks.set()
    until(lambda: server.calls.count(("GET", PATH)) >= 3, "another watch")
    server.breaks.clear()
    server.store.create(config_map("late"))
    until(lambda: watched.data() == {"late": {}}, "what came after it")
    watched.mirror.close()


def test_what_matches_no_more_is_gone(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    item = config_map("a")
    item["metadata"]["labels"] = {"ours": "yes"}
    server.store.create(item)
    watched = Watched(client, labelSelector="ours=yes")
    watched.mirror.wait(180)
    client.merge(CONFIG_MAPS.path("training", "a"), {"metadata": {"labels": {"ours": "no"}}})
    until(lambda: not watched.data(), "it to be gone")
    client.merge(CONFIG_MAPS.path("training", "a"), {"metadata": {"labels": {"ours": "yes"}}})
    until(lambda: "a" in watched.data(), "it to be back")
    watched.mirror.close()


def test_who_may_not_watch_is_told_so_at_once(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    server.refuses["GET", "configmaps"] = ApiError(403, "Forbidden", "configmaps is forbidden")
    watched = Watched(client)
    with pytest.raises(KubeError, match="configmaps is forbidden") as caught:
        watched.mirror.wait(180)
    assert caught.value.status == 403
    watched.mirror.close()


def test_a_server_that_goes_is_noticed_and_that_it_is_back_too(there: tuple[ApiServer, KubeClient]) -> None:
    server, client = there
    watched = Watched(client)
    watched.mirror.wait(180)
    server.refuses["GET", "configmaps"] = ApiError(500, "InternalError", "etcd is away")
    server.breaks.set()
    until(lambda: watched.mirror.away()[1] is not None, "it to be noticed")
    assert isinstance(watched.mirror.away()[1], EngineError)
    server.breaks.clear()
    server.refuses.clear()
    server.store.create(config_map("after"))
    until(lambda: watched.data() == {"after": {}} and watched.mirror.away()[1] is None, "it to be back")
    watched.mirror.close()
