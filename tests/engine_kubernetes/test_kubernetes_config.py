"""Settings of a Kubernetes engine: what is not meant is said, with what to do."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from muster.core.errors import ConfigError
from muster.core.resources import Resources
from muster.engines.describe import Home
from muster.engines.kubernetes.config import read, read_config
from muster.engines.kubernetes.settings import PoolSettings

HOME = Home(Path("/home/of/muster"), "0123456789", lambda: ("http://muster:6878",))


def settings(text: str) -> dict[str, object]:
    return tomllib.loads(text)


def test_everything_that_can_be_set() -> None:
    found = read_config("k8s", settings("""
        kubeconfig = "kube/config"
        context = "prod"
        namespace = "ml"
        namespaces = ["ml-batch"]
        form = "jobset"
        image = "registry/train:1"
        checkpoints = "pvc:checkpoints"
        queue = "research"
        port = 29500
        depth = 3
        refuse_after = "5m"
        node_lost_after = "90s"
        pull_secrets = ["pull"]
        labels = {team = "a"}
        [pools.big]
        selector = {"node.kubernetes.io/instance-type" = "p5.48xlarge"}
        queue = "big"
        accelerator = "h100"
        tolerations = ["nvidia.com/gpu:NoSchedule"]
        node = {cpus = 192, memory = "2TB", accelerators = "H100:8"}
        max_nodes = 16
    """), HOME)  # fmt: skip
    assert (found.kubeconfig, found.context, found.namespace) == ("/home/of/muster/kube/config", "prod", "ml")
    assert (found.namespaces, found.depth, found.refuse_after, found.node_lost_after) == (
        ("ml-batch",),
        3.0,
        300.0,
        90.0,
    )
    made = found.settings
    assert (made.installation, made.form, made.image, made.port) == ("0123456789", "jobset", "registry/train:1", 29500)
    assert (made.checkpoints, made.queue, made.pull_secrets, made.labels) == (
        "pvc:checkpoints",
        "research",
        ("pull",),
        {"team": "a"},
    )
    assert made.pools["big"] == PoolSettings(
        {"node.kubernetes.io/instance-type": "p5.48xlarge"}, "big", "H100", tolerations=("nvidia.com/gpu:NoSchedule",)
    )
    assert found.growth["big"].node == Resources(192_000, 2 * 10**12, 8, "H100")
    assert found.growth["big"].max_nodes == 16


def test_nothing_need_be_set() -> None:
    adapter = read("kubernetes", {}, HOME)
    assert (adapter.kind, adapter.most()) == ("kubernetes", {})


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('namespce = "x"', "`namespce` is not a setting", "`namespace`"),
        ("namespace = 3", "a text is expected", "quotes"),
        ('form = "pod"', "form is 'pod'", "jobset"),
        ('checkpoints = "/data"', "checkpoints is '/data'", "pvc:NAME"),
        ("depth = 0", "a number from 1", "config.toml"),
        ('refuse_after = "soon"', "a duration is expected", "`90s`"),
        ('pools = {a = "x"}', "a table is expected", "pools.a"),
        ('pools = {a = {selektor = {x = "y"}}}', "`selektor` is not a setting", "`selector`"),
        ('pools = {a = {tolerations = ["a:b:c"]}}', "is no toleration", "key:Effect"),
        ("pools = {a = {max_nodes = 3}}", "go together", "how many"),
        ('pools = {a = {node = {cpus = 1, memory = "64"}, max_nodes = 3}}', "node.memory is '64'; a size", "64MB"),
    ],
)
def test_what_is_not_meant_is_said(text: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read("k8s", settings(text), HOME)
    assert hint in caught.value.hint
    assert caught.value.message.startswith("engines.k8s")


def test_what_job_files_may_ask_for_is_listed() -> None:
    found = read_config("k8s", settings("""
        unlisted_projects = "refuse"
        run_as_non_root = true
        network_policy = true
        [allow]
        secrets = ["shared-*"]
        host_paths = ["/mnt/nvme"]
        tolerations = ["spot:NoSchedule"]
        [projects.language]
        namespace = "ml-language"
        service_accounts = ["trainer"]
        [projects.infra]
        pod_settings = "any"
    """), HOME)  # fmt: skip
    made = found.settings
    assert found.namespaces == ("ml-language",)
    assert (made.unlisted_projects, made.run_as_non_root, made.network_policy) == ("refuse", True, True)
    assert made.allowed("vision").has("secrets", "shared-keys")
    assert not made.allowed("vision").has("service_accounts", "trainer")
    assert made.allowed("language").has("service_accounts", "trainer")
    assert made.allowed("language").has("secrets", "shared-keys")
    assert (made.allowed("infra").any, made.allowed("language").any) == (True, False)
    assert (made.namespaces_of("language")[0], made.namespaces_of("infra")[0]) == ("ml-language", made.namespace)


@pytest.mark.parametrize(("text", "words"), [
    ('allow = {secret = ["x"]}', "Did you mean `secrets`"),
    ('allow = {secrets = "x"}', "allow.secrets is 'x'; a list"),
    ('allow = {pod_settings = "all"}', "`listed` or `any`"),
    ('allow = {host_paths = ["mnt"]}', "a whole path"),
    ('allow = {tolerations = ["gpu:Never"]}', "key=value:Effect"),
    ('allow = "any"', "engines.k8s.allow is 'any'"),
    ('projects = {language = "x"}', "projects.language is 'x'"),
    ('projects = {language = {namespaces = ["x"]}}', "Did you mean `namespace`"),
    ('unlisted_projects = "no"', "`default` or `refuse`"),
    ('run_as_non_root = "yes"', "`true` or `false`"),
])  # fmt: skip
def test_lists_that_make_no_sense_are_refused(text, words) -> None:
    with pytest.raises(ConfigError) as told:
        read_config("k8s", settings(text), HOME)
    assert words in f"{told.value.message} {told.value.hint}"
