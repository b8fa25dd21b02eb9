"""Every unit that a job file knows, both ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core import units
from muster.core.units import InvalidValue


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6h", 21600),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1d", 86400),
        ("2w", 1209600),
        ("1d2h3m4s", 93784),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("10s", 10),
        ("45", 45),
        ("0.5", 0.5),
        ("1e3", 1000),
        ("2:30:00", 9000),
        ("100:00:01", 360001),
        ("1-12:00:00", 129600),
        ("1-12:30", 131400),
        ("2-0", 172800),
        ("3 hours", 10800),
        ("1 hour 5 mins", 3900),
        ("10 Minutes", 600),
        ("2 weeks 1 day", 1296000),
        ("1hr 2min 3sec", 3723),
        (" 6H ", 21600),
    ],
)
def test_durations(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "6x", "6 h m", "h6", "1m1h", "1h1h", "1:2:3:4", "1:60:00", "1:00:60", "1-24:00:00", "one hour",
             "nan", "inf", "6h!", "1-", "٣h", "9" * 100],
)  # fmt: skip
def test_what_is_no_duration(text):
    with pytest.raises(InvalidValue):
        units.parse_duration(text)


def test_two_part_clock_asks_which_it_is():
    with pytest.raises(InvalidValue, match="2h30m` or `2m30s"):
        units.parse_duration("2:30")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (30.0, "30s"), (5400, "1h30m"), (93784, "1d2h3m4s"), (0.1, "0.1s"), (1e-9, "1e-09s"), (604800, "7d")],
)
def test_formatted_durations(seconds, text):
    assert units.format_duration(seconds) == text


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=1e15) | st.integers(0, 10**9).map(float))
def test_durations_round_trip(seconds):
    assert units.parse_duration(units.format_duration(seconds)) == seconds


def test_auto():
    assert units.parse_duration_or_auto(" Auto ") == "auto"
    assert units.parse_duration_or_auto("15m") == 900


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("1K", 10**3),
        ("1KB", 10**3),
        ("2M", 2 * 10**6),
        ("2MB", 2 * 10**6),
        ("64G", 64 * 10**9),
        ("64GB", 64 * 10**9),
        ("64 gb", 64 * 10**9),
        ("3T", 3 * 10**12),
        ("3TB", 3 * 10**12),
        ("1PB", 10**15),
        ("1Ki", 2**10),
        ("1KiB", 2**10),
        ("5MiB", 5 * 2**20),
        ("64Gi", 64 * 2**30),
        ("64GiB", 64 * 2**30),
        ("1TiB", 2**40),
        ("1PiB", 2**50),
        ("1.5GB", 1_500_000_000),
        ("0.1GiB", 107374182),
    ],
)
def test_sizes(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "64XB", "-1GB", "64GBs", "1e9GB", "nan", "64+", "6" * 40 + "GB"])
def test_what_is_no_size(text):
    with pytest.raises(InvalidValue):
        units.parse_size(text)


@pytest.mark.parametrize("text", ["64", "1.5", "0"])
def test_a_size_without_a_unit_is_asked_for_one(text):
    with pytest.raises(InvalidValue, match=f"{text}GB`.*{text}GiB`"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(64 * 10**9, "64GB"), (64 * 2**30, "64GiB"), (1, "1B"), (1500, "1500B"), (10**15, "1PB"), (2**10, "1KiB")],
)
def test_formatted_sizes(size, text):
    assert units.format_size(size) == text


@settings(deadline=None)
@given(st.integers(1, 2**60))
def test_sizes_round_trip(size):
    assert units.parse_size(units.format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("H100:8", ("H100", 8, 1000)),
        ("H100", ("H100", 1, 1000)),
        ("8", ("GPU", 8, 1000)),
        ("gpu:2", ("GPU", 2, 1000)),
        ("GPU", ("GPU", 1, 1000)),
        ("A100-80GB:4", ("A100-80GB", 4, 1000)),
        ("tpu_v5e:16", ("TPU_V5E", 16, 1000)),
        ("h100:8", ("H100", 8, 1000)),
        ("a100-80gb", ("A100-80GB", 1, 1000)),
        ("gpu", ("GPU", 1, 1000)),
        ("rtx4090", ("RTX4090", 1, 1000)),
        ("GTX1080:2", ("GTX1080", 2, 1000)),
        ("RTX-PRO-6000:1", ("RTX-PRO-6000", 1, 1000)),
        ("MI300X", ("MI300X", 1, 1000)),
        ("Jetson-TX2", ("JETSON-TX2", 1, 1000)),
        ("0", ("", 0, 1000)),
        ("H100:0", ("", 0, 1000)),
        ("H100:0.5", ("H100", 1, 500)),
        ("h100:0.125", ("H100", 1, 125)),
        ("0.001", ("GPU", 1, 1)),
        ("H100:1.0", ("H100", 1, 1000)),
        ("2.000", ("GPU", 2, 1000)),
        ("0.0", ("", 0, 1000)),
    ],
)
def test_accelerators(text, asked):
    assert units.parse_accelerators(text) == asked


@pytest.mark.parametrize(
    "text", ["", ":8", "H100:", "H100:-1", "H100:.5", "H100:0.5.5", "H100:8:2", "8xH100", "H100 8", "-1", "-0.5", "1.5"]
)
def test_what_is_no_accelerator(text):
    with pytest.raises(InvalidValue):
        units.parse_accelerators(text)


@settings(deadline=None)
@given(st.from_regex(r"\A[A-Za-z][A-Za-z0-9._-]{0,20}\Z"), st.integers(1, 1024))
def test_accelerators_round_trip_in_upper_case(kind, count):
    assert units.parse_accelerators(units.format_accelerators(kind, count)) == (kind.upper(), count, 1000)


@given(st.integers(1, 999))
def test_a_part_of_one_round_trips(share):
    assert units.parse_accelerators(units.format_accelerators("H100", 1, share)) == ("H100", 1, share)


def test_only_one_can_be_shared_and_only_in_thousandths():
    for text, word in (("H100:1.5", "Only one accelerator can be shared"), ("0.0005", "in thousandths")):
        with pytest.raises(InvalidValue) as caught:
            units.parse_accelerators(text)
        assert word in caught.value.hint


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("H100x8", "H100:8"),
        ("h100X16", "H100:16"),
        ("A100-80GBx4", "A100-80GB:4"),
        ("L40Sx8", "L40S:8"),
        ("MI300Xx8", "MI300X:8"),
        ("gpux2", "GPU:2"),
    ],
)
def test_a_count_after_an_x_is_not_taken_for_a_kind(text, meant):
    with pytest.raises(InvalidValue) as caught:
        units.parse_accelerators(text)
    assert caught.value.hint == f"Write `{meant}`."
    units.parse_accelerators(meant)


def test_plain_values():
    assert [units.parse_integer(text) for text in ("2", "+2", "-2", "2.0", "0")] == [2, 2, -2, 2, 0]
    assert [units.parse_number(text) for text in ("16", ".5", "1e-3", "2.")] == [16, 0.5, 0.001, 2]
    assert [units.format_number(number) for number in (16.0, 0.5)] == [16, 0.5]
    assert [units.parse_flag(text) for text in ("true", "Yes", "on")] == [True] * 3
    assert [units.parse_flag(text) for text in ("False", "no", "OFF")] == [False] * 3
    assert [units.parse_priority(text) for text in ("low", "normal", "high", "Urgent", "33")] == [20, 50, 75, 95, 33]
    assert [units.format_priority(value) for value in (20, 50, 75, 95, 33)] == ["low", "normal", "high", "urgent", 33]


@pytest.mark.parametrize("text", ["010", "0x10", "1_000", "1.5", "two", "", "true", "9" * 30])
def test_what_is_no_integer(text):
    with pytest.raises(InvalidValue):
        units.parse_integer(text)


@pytest.mark.parametrize("text", ["", "nan", "inf", "1,5", "one", "1" * 100])
def test_what_is_no_number(text):
    with pytest.raises(InvalidValue):
        units.parse_number(text)


def test_what_is_no_flag():
    with pytest.raises(InvalidValue):
        units.parse_flag("maybe")


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("python train.py", "train"),
        ("python -u src/Train_GPT.py --lr 1", "train-gpt"),
        ("torchrun --nproc-per-node 8 scripts/pretrain.py", "pretrain"),
        ("python -m pkg.finetune --x", "finetune"),
        ("bash run.sh", "run"),
        ("./bin/trainer --fast", "trainer"),
        ("CUDA_LAUNCH_BLOCKING=1 nvidia-smi", "nvidia-smi"),
        ("# first\nset -e\ncd /x\npython eval.py", "eval"),
        ("echo 'open", "echo"),
        ("7z x", "job-7z"),
        ("python -m", "python"),
        ("A=1", "job"),
        ("", "job"),
    ],
)
def test_name_from_command(run, name):
    assert units.name_from_command(run) == name


@settings(deadline=None)
@given(st.text())
def test_mended_names_are_names(text):
    name = units.mended_name(text)
    assert 0 < len(name) <= units.NAME_MAX
    assert name[0].isalpha()
    assert name[-1] != "-"
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
