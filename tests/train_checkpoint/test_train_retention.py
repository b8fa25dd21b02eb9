"""Retention: the newest stay, some for ever, and never is the only good one deleted."""

from __future__ import annotations

from ckpt_kit import check_loads, names, save
from hypothesis import given
from hypothesis import strategies as st

from muster.train.checkpoint import newest
from muster.train.checkpoint.retention import Kept, doomed

found_lists = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=12).map(
    lambda each: [Kept(f"f{n}", step, good) for n, (step, good) in enumerate(each)]
)


@given(found_lists, st.integers(1, 4), st.integers(0, 7), st.frozensets(st.integers(0, 40), max_size=3))
def test_what_may_go(found, keep, keep_every, needed):
    gone = set(doomed(found, keep, keep_every, needed))
    good = [each for each in found if each.good]
    stay = [each for each in good if each.folder not in gone]
    assert stay[:keep] == good[:keep]
    assert bool(stay) == bool(good)
    lasting = [each for each in good[keep:] if each.step in needed or (keep_every and each.step % keep_every == 0)]
    assert stay[keep:] == lasting
    for each in found:  # a damaged one goes only when enough newer good ones are there
        if not each.good and each.folder in gone:
            assert sum(other.good for other in found[: found.index(each)]) >= keep


def test_on_a_disk(tmp_path):
    save(tmp_path, *range(1, 10), keep=2, keep_every=4)
    assert names(tmp_path) == [f"step-00000000{n}" for n in (4, 8, 9)]
    save(tmp_path, 10, keep=1)  # without keep_every, they are as others
    assert names(tmp_path) == ["step-000000010"]


def test_damaged_ones_do_not_count(tmp_path, capfd):
    save(tmp_path, 1, 2, 3)
    (tmp_path / "step-000000002" / "index.json").unlink()
    (tmp_path / "step-000000003" / "manifest.json").unlink()
    save(tmp_path, 4, keep=2)
    assert {"step-000000001", "step-000000004"} <= set(names(tmp_path))
    (tmp_path / "step-000000004" / "shared.pt").write_bytes(b"short")
    check_loads(newest(tmp_path), 1)
    save(tmp_path, 5, 6, keep=2)
    assert names(tmp_path) == ["step-000000005", "step-000000006"]
    assert "step-000000004 is damaged" in capfd.readouterr().err
