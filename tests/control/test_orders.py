"""Which of several orders a worker is told next."""

from __future__ import annotations

from muster.control.orders import next_command
from muster.wire import Command


def test_orders_of_two_kinds_take_turns_and_none_is_hidden() -> None:
    save, older, stacks = Command(30, "save"), Command(20, "save"), Command(10, "stacks")
    told, heard = "", []
    for _ in range(4):
        command = next_command([stacks, older, None, save], told)
        assert command is not None
        told = command.kind
        heard.append(command)
    assert heard in ([stacks, save] * 2, [save, stacks] * 2)
    assert next_command([None, save], "save") == save
    assert next_command([None, None], "save") is None
