"""Programs that use the API go on working: no route and no field is removed, and none changes its type."""

from __future__ import annotations

import copy
import json

import pytest

from api_snapshot import FILE, OPTIONAL, added, burdens, current, missing


@pytest.fixture(scope="module")
def now():
    return current()


def test_nothing_was_removed_or_changed(now):
    was = json.loads(FILE.read_text())
    gone = missing(was, now) + burdens(was, now)
    assert not gone, "\n".join(["the API lost what programs may use:", *gone])


def test_the_snapshot_has_what_is_new(now):
    new = missing(now, json.loads(FILE.read_text()))
    assert not new, "\n".join(["run `python tests/api_snapshot.py`, and commit the file:", *new])


def test_a_removed_field_a_changed_type_and_a_removed_route_are_found(now):
    was = copy.deepcopy(now)
    was["shapes"]["JobView"]["shoe_size"] = "integer"
    was["shapes"]["JobView"]["number"] = "string"
    was["routes"]["GET /v1/shoes"] = {"role": "anyone"}
    assert missing(was, now) == [
        "routes GET /v1/shoes is gone",
        "shapes JobView number was string, and is integer",
        "shapes JobView shoe_size is gone",
    ]


def test_what_is_new_is_added_and_nothing_else(now):
    was = copy.deepcopy(now)
    del was["shapes"]["JobView"]["number"], was["routes"]["GET /v1/jobs"]
    was["shapes"]["JobView"]["name"] = "integer"
    both = added(was, now)
    assert missing(was, now) == ["shapes JobView name was integer, and is string"]
    assert (both["shapes"]["JobView"]["number"], both["shapes"]["JobView"]["name"]) == ("integer", "integer")
    assert both["routes"] == now["routes"]


def test_a_request_needs_nothing_that_it_did_not_need(now):
    new = copy.deepcopy(now)
    new["shapes"]["SubmitBody"] |= {"colour": f"string{OPTIONAL}", "shoe_size": "integer"}
    new["routes"]["GET /v1/jobs"]["parameters"] |= {"left": "integer", "right": f"integer{OPTIONAL}"}
    assert burdens(now, new) == ["SubmitBody shoe_size must be given", "GET /v1/jobs parameters left must be given"]
    assert not missing(now, new)


def test_a_set_of_words_may_grow_but_not_shrink(now):
    new = copy.deepcopy(now)
    new["shapes"]["JobView"]["phase"] += " | resting"
    assert not missing(now, new)
    assert missing(new, now) == [
        f"shapes JobView phase was {new['shapes']['JobView']['phase']}, and is {now['shapes']['JobView']['phase']}"
    ]
    assert added(now, new) == new
