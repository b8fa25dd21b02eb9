"""The ledger against another account: what matches, what one side has, and the cause of a difference."""

from __future__ import annotations

from muster.cost.reconcile import Account, added, reconciled


def test_hours_match_differ_or_are_on_one_side() -> None:
    ours = {"a": Account(10.0), "b": Account(4.0), "c": Account(1.0)}
    theirs = added([("a", Account(4.0)), ("a", Account(5.96875)), ("b", Account(3.0)), ("d", Account(9.0))])
    found = reconciled(ours, theirs, money=False)
    assert (found["matching"], found["only_ours"], found["only_theirs"]) == (1, 1, 1)
    assert [(one["key"], one["state"], one["difference"]) for one in found["differences"]] == [
        ("d", "only there", -9.0), ("b", "differs", 1.0), ("c", "only here", 1.0),
    ]  # fmt: skip
    assert (found["ours"], found["theirs"]) == (15.0, 21.96875)


def test_amounts_differ_by_hours_or_by_the_price() -> None:
    ours = {"x": Account(10.0, 30_000_000), "y": Account(10.0, 30_000_000)}
    theirs = {"x": Account(10.0, 20_000_000), "y": Account(8.0, 24_000_000)}
    causes = {one["key"]: one["cause"] for one in reconciled(ours, theirs, money=True)["differences"]}
    assert causes["x"].startswith("the price")
    assert causes["y"] == "hours: 10.00 here, 8.00 there"
