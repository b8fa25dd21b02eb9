"""What others wrote does not control the terminal of whoever reads it; colours of a rank's output stay."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import muster.cli
from muster.cli.output import SafeConsole
from muster.cli.ranks import RankPrinter
from muster.cli.terminal import colours_only, plain
from muster.client import LogLine

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
TITLE = "\x1b]0;root shell\x1b\\"
EVIL = f"before{CLIPBOARD}{TITLE}\x1b[2J\x1b[1;1H\x9b31m\x9d0;x\x9c\x90q\x9c\u202egpj.exe\u2066\x07\x08after"
RED = "\x1b[31mred\x1b[0m"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
COLOURS = re.compile("\x1b\\[[0-9;]*m")


def test_text_is_text_and_output_may_have_colours() -> None:
    assert not CONTROL.search(plain(EVIL))
    assert plain("tab\tand\nline, ünïcode 😀") == "tab\tand\nline, ünïcode 😀"
    assert colours_only(f"{RED} {EVIL}") == f"{RED} beforegpj.exeafter"
    assert colours_only("cut off \x1b]52;c;cm0g") == "cut off "
    assert colours_only("cut off \x1b[") == "cut off "
    assert colours_only("\x1b]0;\x1b[31mtitle") == "\x1b[31mtitle"


@given(st.text(alphabet="a1;m[]\\PJH\x07\x1b\x9b\x9c\x9d\u202e\n\t ", max_size=40))
def test_nothing_but_colours_gets_through(text: str) -> None:
    assert not CONTROL.search(COLOURS.sub("", colours_only(text)))
    shown = io.StringIO()
    printer = RankPrinter(shown, named=True)
    printer._console = SafeConsole(file=shown, highlight=False, soft_wrap=True, force_terminal=True)
    printer.write(LogLine(1, 0, text.replace("\n", "")))
    assert not CONTROL.search(COLOURS.sub("", shown.getvalue()))


@pytest.mark.parametrize("shape", ["text", "markup", "table"])
def test_the_console_prints_text_on_a_terminal_and_everything_elsewhere(shape: str) -> None:
    made: Text | str | Table = {"text": Text(EVIL, style="bold red"), "markup": EVIL, "table": Table.grid()}[shape]
    if isinstance(made, Table):
        made.add_row("name", Text(EVIL))
    screen, file = io.StringIO(), io.StringIO()
    SafeConsole(file=screen, force_terminal=True, width=300).print(made)
    SafeConsole(file=file, width=300).print(made)
    assert not CONTROL.search(COLOURS.sub("", screen.getvalue()))
    assert "gpj.exe" in screen.getvalue()
    assert CLIPBOARD.strip("\x07") in file.getvalue()


def test_every_console_of_the_command_is_the_safe_one() -> None:
    folder = Path(muster.cli.__file__).parent
    places = [
        f"{path.name}: {line.strip()}"
        for path in folder.glob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(?<!Safe)Console\(|\bprint\(", line) and "class SafeConsole" not in line
    ]
    ours = [one for one in places if not re.search(r"\.print\(|def _print\(|    _print\(|import torch", one)]
    assert [one.partition(":")[0] for one in ours] == ["demo_view.py"]  # of a picture, which no terminal sees


def on_terminal(home: Path, *words: str) -> str:
    """What the command writes to a terminal, as the terminal gets it."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "MUSTER_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "200"}
    command = [sys.executable, "-m", "muster", *words]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0, shown
    return shown.decode()


def test_a_hostile_purpose_tag_note_parameter_and_output_on_a_real_terminal(live, at_home, tmp_path: Path) -> None:
    report = f"from muster import runtime; runtime.note({EVIL!r}); runtime.params(evil={EVIL!r})"
    (tmp_path / "evil.py").write_text(f"{report}\nprint({RED + EVIL!r})\nraise ValueError({EVIL!r})\n")
    job = live.submit(f"{sys.executable} evil.py", workdir=str(tmp_path), purpose=EVIL, tags={"evil": EVIL})["id"]
    live.wait(job)
    assert at_home("note", job, EVIL).code == 0
    verbs = (
        ["status", job],
        ["why", job],
        ["runs", "show", job],
        ["logbook", job],
        ["logs", job],
        ["events", "--job", job],
    )
    for words in verbs:
        shown = on_terminal(live.home, *words)
        assert "gpj.exe" in shown or words[0] == "events"
        rest = COLOURS.sub("", shown).replace("\r", "")
        assert not CONTROL.search(rest), (words, rest)
    assert "\x1b[31mred" in on_terminal(live.home, "logs", job)
    # Programs get what was written.
    assert at_home("logs", job).out.splitlines()[0] == RED + EVIL
    assert json.loads(at_home("status", job, "--json").out)["purpose"] == EVIL
