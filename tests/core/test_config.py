"""Tables of settings: each kind of value, strictly, and every mistake in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.core.config import Mistakes, Table
from muster.core.errors import ConfigError
from muster.server.settings import Settings

GIVEN: dict[str, Any] = {
    "name": "a",
    "names": ["a", "b"],
    "labels": {"x": "y"},
    "on": True,
    "share": 2,
    "count": 3,
    "every": "5m",
    "room": "64MB",
    "pools": {"one": {"size": 1}},
}


def test_every_kind_of_value_is_read() -> None:
    table = Table("engines.x", GIVEN)
    assert table.text("name", among=("a", "b")) == "a"
    assert table.texts("names") == ("a", "b")
    assert table.words("labels") == {"x": "y"}
    assert table.flag("on") is True
    assert table.number("share", 0, 0, 10) == 2.0
    assert table.whole("count", 0, 0, 10) == 3
    assert table.duration("every", 1.0) == 300.0
    assert table.size("room", 0) == 64_000_000
    (pool,) = table.tables("pools").values()
    assert (pool.where, pool.whole("size", 0)) == ("engines.x.pools.one", 1)
    pool.refuse_others()
    table.finish()


def test_what_is_not_given_is_the_default() -> None:
    table = Table("x", {})
    assert table.text("name", "b") == "b"
    assert table.texts("names", ("c",)) == ("c",)
    assert table.flag("on", True) is True
    assert table.duration("every", 7.0) == 7.0
    assert table.size("room", 5) == 5
    assert table.tables("pools") == {}
    table.finish()


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda table: table.text("count"), "count is 3; a text is expected"),
        (lambda table: table.text("name", "b", among=("b", "c")), "`b` or `c` is expected"),
        (lambda table: table.texts("name"), "a list such as"),
        (lambda table: table.words("names"), "a table such as"),
        (lambda table: table.flag("count"), "`true` or `false`"),
        (lambda table: table.number("on", 1, 0, 5), "a number from 0 to 5"),
        (lambda table: table.number("count", 1, 0, 2), "a number from 0 to 2"),
        (lambda table: table.whole("on", 1), "a whole number"),
        (lambda table: table.whole("count", 1, 5, 9), "a whole number from 5 to 9"),
        (lambda table: table.duration("name", 1.0), "a duration"),
        (lambda table: table.duration("every", 1.0, most=60), "up to 60 s"),
        (lambda table: table.size("name", 1), "a size"),
        (lambda table: table.size("room", 1, least=10**9), "a size of 1000000000 bytes or more"),
        (lambda table: table.size("count", 1), "a size"),
        (lambda table: table.table("name"), "a table is expected"),
        (lambda table: table.tables("labels"), "engines.x.labels.x is 'y'; a table is expected"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_what_was_expected(read: Any, expected: str) -> None:
    table = Table("engines.x", GIVEN)
    read(table)
    with pytest.raises(ConfigError) as told:
        table.mistakes.check()
    assert expected in told.value.message
    assert told.value.hint


def test_priorities_are_names_or_numbers() -> None:
    table = Table("engines.x", {"qos": {"high": "a", "30": "b", "soon": "c", "101": "d"}})
    assert table.by_priority("qos")["high"] == "a"
    with pytest.raises(ConfigError) as told:
        table.finish()
    assert "'soon' is no priority" in told.value.message
    assert "'101' is no priority" in told.value.message
    assert "'30'" not in told.value.message


def test_a_name_that_nobody_asked_for_is_told_with_the_closest() -> None:
    table = Table("engines.x", {"colour": "red"})
    table.text("color")
    with pytest.raises(ConfigError, match="`colour` is not a setting") as told:
        table.finish()
    assert told.value.hint == "Did you mean `color`?"


def test_all_mistakes_are_told_at_once() -> None:
    table = Table("engines.x", {"colour": "red", "count": "many"})
    assert table.whole("count", 4) == 4  # so that the rest can be read
    with table.mistakes.taken():
        raise ConfigError("Something else.", "Do that.")
    with pytest.raises(ConfigError) as told:
        table.finish()
    assert told.value.message.startswith("3 settings are wrong:")
    for words in ("count is 'many'", "Something else. Do that.", "`colour` is not a setting"):
        assert words in told.value.message


def test_nothing_wrong_raises_nothing() -> None:
    Mistakes().check()


def test_a_settings_file_is_told_all_of_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "prot = 1\nport = 'x'\nnodes = 0\nlog_limit = '1KB'\nlate_reports = 'soon'\ntrust_members = 'yes'\n"
        "spot_notices = 'aws, alibaba, file:spot, gcp=http://127.0.0.1:80'\n"
        "[limits]\nreads = 0\n[hooks.chat]\nurl = 'ftp://x'\nevents = ['job.']\n[engines.local]\npass_env = 'X'\n"
    )
    with pytest.raises(ConfigError) as told:
        Settings.load(tmp_path, {})
    message = told.value.message
    for words in (
        "config.toml: `prot` is not a setting. Did you mean `port`?",
        "port is 'x'; a whole number from 0 to 65535",
        "nodes is 0",
        "log_limit is '1KB'",
        "late_reports is 'soon'",
        "trust_members is 'yes'",
        "spot_notices has 'alibaba'",
        "spot_notices has 'file:spot'",
        "limits.reads is 0",
        "hooks.chat.url is 'ftp://x'",
        "engines.local.pass_env is 'X'",
    ):
        assert words in message
