"""Reading what py-spy and faulthandler write, of several Pythons."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.runtime.stack_text import FRAMES, THREADS, from_faulthandler, from_py_spy

DUMP = """Thread 0x0000ffff884af1a0 (most recent call first):
  File "/job/train.py", line 2 in feed
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x0000ffff8903b020 (most recent call first):
  File "/job/a "quoted", line 3 in/train.py", line 5 in deep
  File "<string>", line 7 in <module>
"""
NAMED = """Thread 0x00007f3c [feeder (1)] (most recent call first):
  File "/job/train.py", line 2 in feed
Current thread 0x00007f3d [python] (most recent call first):
  <no Python frame>

Current thread's C stack trace (most recent call first):
  Binary file "python", at _Py_DumpStack+0x2c [0x55d1]
"""


def test_the_main_thread_comes_first_and_is_the_last_of_the_dump() -> None:
    main, feeder = from_faulthandler(DUMP)
    assert (main.main, feeder.main, main.tid) == (True, False, None)
    assert main.frames[0] == {"function": "deep", "file": '/job/a "quoted", line 3 in/train.py', "line": 5}
    assert [frame["function"] for frame in feeder.frames] == ["feed", "run"]


def test_newer_pythons_name_their_threads() -> None:
    main, feeder = from_faulthandler(NAMED)
    assert (main.name, main.frames, feeder.name) == ("python", [], "feeder (1)")


def test_a_list_that_was_cut_has_the_thread_of_the_handler_as_the_main_one() -> None:
    heads = [f'Thread 0x{number:x} (most recent call first):\n  File "a.py", line 1 in f' for number in range(99)]
    heads.insert(4, 'Current thread 0xfff (most recent call first):\n  File "b.py", line 9 in main')
    found = from_faulthandler("\n".join([*heads, "..."]))
    assert len(found) == THREADS
    assert (found[0].main, found[0].frames[0]["function"]) == (True, "main")
    assert not any(one.main for one in found[1:])


def test_py_spys_json() -> None:
    frames = [{"name": "f", "filename": "/job/a.py", "line": 3, "locals": None}] * (FRAMES + 5)
    raw = [
        {"os_thread_id": 9, "thread_name": None, "frames": frames},
        {"os_thread_id": 7, "thread_name": "Main", "frames": []},
    ]
    other, main = from_py_spy(json.dumps(raw).encode(), 7)
    assert (other.main, other.name, len(other.frames), main.main) == (False, "", FRAMES, True)
    assert other.frames[0] == {"function": "f", "file": "/job/a.py", "line": 3}
    for wrong in (b"", b"{}", b"[1]", b'[{"os_thread_id": 1}]', b"\xff"):
        with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
            from_py_spy(wrong, 7)


@given(st.text(), st.integers(0, len(DUMP)))
def test_no_text_is_too_odd(noise: str, at: int) -> None:
    found = from_faulthandler(DUMP[:at] + noise + DUMP[at:])
    assert sum(one.main for one in found) <= 1
