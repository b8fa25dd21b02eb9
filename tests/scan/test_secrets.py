"""Secrets are found at every place where people leave them; ordinary training code is not taken for one."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.policy_file import parse_rules
from muster.core.rules import Rules
from muster.scan import secrets
from muster.scan.files import TEXT_BYTES, look_at_file
from muster.scan.job import secrets_in_job
from muster.scan.judge import against, told
from muster.scan.secrets import OutOfTime, secrets_in

ROOT = Path(__file__).parents[2]
BODY = "q7Xw2LmZ9kRt4VbN8sYc1Hd6Pf3Gj5TaEuKo"  # not of any service; long enough for each shape below
HEX = "9f3c1b7de04a58c26b1f7a90d3e8c4b5"
# Made here, so that nothing in this file has the shape of a secret.
SECRETS = {
    "AWS Access Key": "AKI" + "AQ7XW2LMZ9KRT4VBN",
    "GitHub Token": "gh" + "p_" + BODY,
    "GitLab Token": "glp" + "at-" + BODY[:24],
    "Hugging Face Token": "h" + "f_" + BODY[:34],
    "Google API Key": "AI" + "za" + BODY[:35],
    "Anthropic Key": "sk-" + "ant-api03-" + BODY,
    "OpenAI Key": "sk-" + "proj-" + BODY * 2,
    "Slack Token": "xox" + "b-28164039572-6093417285160-" + BODY.lower()[:24],
    "SendGrid API Key": "S" + "G." + BODY[:22] + "." + (BODY + BODY)[:43],
    "Stripe Access Key": "sk_" + "live_" + BODY[:24],
    "Databricks Token": "dap" + "i" + HEX,
    "Muster Token": "mst" + "_a1b2_" + BODY,
    "Azure Storage Account access key": "Account" + "Key=" + (BODY * 3)[:86] + "==",
    "Discord Bot Token": "M" + BODY[:23] + "." + BODY[5:11] + "." + BODY[3:30],
    "Password in an address": "postgres://ada:" + "s3cr3tPa55" + "@db.internal:5432/x",
    "Bearer token": "curl -H 'Authorization: Bear" + "er " + BODY + "'",
    "Private Key": "-----BEGIN RSA PRIV" + "ATE KEY-----\\n" + BODY * 3,
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_with_its_line_and_never_shown(kind):
    value = SECRETS[kind]
    text = f"import torch\n\nx = 1\nclient = connect('{value}')\n"
    (found, *others) = secrets_in(text, "train.py")
    assert others == []
    assert (found.sort, found.place) == ("secret", "train.py:4")
    shown = str(found.to_dict())
    for start in range(len(value) - 12):
        assert value[start : start + 12] not in shown or value[start : start + 12] in "postgres://ada:"
    assert "muster project secret set" in found.hint


NAMED = [
    "API_KEY = '%s'", "wandb_api_key='%s'", "HF_TOKEN=%s", "export AWS_SECRET_ACCESS_KEY=%s", "password: %s",
    '{"client_secret": "%s"}', "os.environ['DB_PASSWORD'] = '%s'", "login(token=\"%s\")", "--api-key %s",
    "db_pwd = b'%s'", "dataPassword: str = '%s'",
]  # fmt: skip


@pytest.mark.parametrize("line", NAMED)
def test_a_value_with_the_name_of_a_secret(line):
    (found,) = secrets_in("\n" + line % BODY[:22], "x")
    assert found.place == "x:2"
    assert BODY[:8] not in str(found)
    for fine in ("your-api-key-here", "${API_KEY}", "$TOKEN", "<token>", "changeme12345", "os.environ", "xxxxxxxxxxxx"):
        assert secrets_in(line % fine, "x") == []


ORDINARY = f"""
lr = 3e-4; weight_decay = 1e-2; seed = 123456789012
COMMIT = "{hashlib.sha1(b"x").hexdigest()}"
digest = "sha256:{hashlib.sha256(b"x").hexdigest()}"
run_id = "{uuid.UUID(int=7 << 96 | 12345)}"
eos_token = "<|endoftext|>"; pad_token_id = 50256; tokenizer = "gpt2-medium-2024"
num_tokens = "1234567890ab"
image = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4"
checkpoint = "s3://bucket/path/to/model-00001-of-00005.safetensors"
token = os.environ["HF_TOKEN"]; password = getpass.getpass(); key = config["api_key"]
secret_name = "my-secret-name"; api_key: str | None = None
parser.add_argument("--token", default="none"); d = {{"key": "value-of-a-key-1234"}}
forward_pass = "first2last3layers"; primary_key = "user_id"
url = "https://user@example.com:8080/path?page_token=abc"
# -----BEGIN PRIVATE KEY----- is how a key begins
"""


def test_ordinary_training_code_has_none():
    assert [str(one) for one in secrets_in(ORDINARY, "train.py")] == []
    for folder in ("examples", "src/muster", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            assert look_at_file(str(path), path.read_bytes()) == [], path


def test_what_is_allowed_by_a_comment():
    line = f"API_KEY = '{BODY}'"
    assert secrets_in(f"{line}  # pragma: allowlist secret", "x") == []
    assert secrets_in(f"# pragma: allowlist nextline secret\n{line}", "x") == []
    assert [one.place for one in secrets_in(f"# pragma: allowlist nextline secret\n{line}\n{line}", "x")] == ["x:3"]


def test_a_notebook_is_searched_by_cells_and_its_outputs_are_told():
    key = SECRETS["GitHub Token"]
    cells = [
        {"cell_type": "code", "source": ["import os\n", f"login('{key}')\n"], "outputs": []},
        {"cell_type": "code", "source": "print(1)", "outputs": [
            {"output_type": "stream", "text": ["fine\n", f"{key}\n"]},
            {"output_type": "display_data", "data": {"image/png": BODY * 50, "text/plain": ["ok"]}},
        ]},
    ]  # fmt: skip
    found = look_at_file("a.ipynb", json.dumps({"cells": cells}).encode())
    assert [(one.sort, one.place) for one in found] == [
        ("secret", "a.ipynb (cell 1):2"), ("secret", "a.ipynb (cell 2), output"), ("notebook", "a.ipynb"),
    ]  # fmt: skip
    assert "nbconvert --clear-output --inplace a.ipynb" in found[-1].hint
    assert look_at_file("a.ipynb", b'{"cells": [1]}') == []
    assert look_at_file("a.ipynb", f'x = "{key}"'.encode())[0].place == "a.ipynb:1"


def test_a_job_file():
    key = SECRETS["Hugging Face Token"]
    found = secrets_in_job({
        "name": "x", "run": f"python train.py --key {key}",
        "envs": {"LR": "3e-4", "DB_PASSWORD": "hunter22x", "A": key},
        "tags": {"api_key": BODY[:20], "task": "pretrain"}, "purpose": "baseline", "secrets": ["HF_TOKEN"],
        "slurm": {"options": [f"--comment={key}"]}, "setup": f"a\nlogin {key}\n",
    })  # fmt: skip
    assert [one.place for one in found] == [
        "run", "envs.DB_PASSWORD", "envs.A", "tags.api_key", "slurm.options[0]", "setup:2",
    ]  # fmt: skip
    assert key not in str(found)
    assert "hunter22x" not in str(found)
    plain = {"run": "python train.py --lr $LR --token $HF_TOKEN", "envs": {"TOKEN": "$OTHER", "PATH": "/usr/bin:/bin"}}
    assert secrets_in_job(plain) == []


def test_a_key_across_lines_and_a_long_line():
    pem = "-----BEGIN PRIV" + "ATE KEY-----\n" + "\n".join([BODY + BODY[:28]] * 5)
    assert [one.place for one in secrets_in(f"a\n{pem}\n", "k")] == ["k:2"]
    long = "x" * 1_990 + " " + SECRETS["GitHub Token"] + " " + "y" * 5_000
    assert [one.place for one in secrets_in(f"a\n{long}\n", "k")] == ["k:2"]


@pytest.mark.parametrize(
    "part", ["eyJ", "://", "//", "aws", "xoxb-1-", "api_key=", "-----BEGIN", "a:", "'", "password" * 9, "sk-", "1:"]
)
def test_hostile_text_ends_in_time(part):
    began = time.monotonic()
    try:
        secrets_in((part * 400_000)[:400_000], "x", seconds=1.0)
    except OutOfTime:
        pass
    assert time.monotonic() - began < 20  # the limit is looked at between blocks; this machine may be busy


def test_what_is_not_looked_at_is_said(monkeypatch):
    assert look_at_file("a.bin", b"\0" + BODY.encode()) == []
    (found,) = look_at_file("a.csv", b"a,b\n" * (TEXT_BYTES // 4 + 1))
    assert (found.sort, found.place) == ("not_scanned", "a.csv")
    monkeypatch.setattr(secrets, "SECONDS", 0.0)
    with pytest.raises(OutOfTime):
        secrets_in("x\n" * 50_000, "x", seconds=0.0)
    assert told([found], Rules(), "p", "") == [
        "a.csv: not looked at: it has more than 2 MB of text. See that no secret is in it."
    ]
    assert against([found], Rules(), "p", "") == []


def test_guards_decide_what_becomes_of_a_finding():
    rules = parse_rules(
        "guards:\n- {check: secrets, action: warn, environments: [dev]}\n"
        "- {check: secrets, action: off, projects: [x]}\n- {check: notebooks, action: refuse}",
        orders=["predicted"],
    )
    found = secrets_in(f"k = '{SECRETS['GitHub Token']}'", "a.py")
    (reason,) = against(found, rules, "p", "")
    assert (reason.code, reason.data["places"]) == ("secret_found", ["a.py:1"])
    assert "--project p" in reason.hint
    assert against(found, rules, "p", "dev") == []
    assert told(found, rules, "p", "dev")[0].startswith("a.py:1: GitHub Token")
    assert (against(found, rules, "x", ""), told(found, rules, "x", "")) == ([], [])


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=300))
def test_any_text(text):
    assert all(one.sort == "secret" for one in secrets_in(text, "x"))
    assert isinstance(look_at_file("a.ipynb", text.encode("utf-8", "replace")), list)
