"""The program that is sent along, run as each service runs it: the very words of the request, its files and names."""

import ast
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from managed_kit import HARD, body

from live import until
from muster.engines.managed import common

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
REPORT = (
    f'{sys.executable} -c \'import json, os, sys; json.dump(dict(os.environ), open(os.environ["OUT"] + "/" + '
    'os.environ["RANK"], "w"))\''
)


@pytest.fixture
def start():
    """Starts a node's container; none is left behind."""
    made = []

    def begin(*words, **more):
        made.append(started(*words, **more))
        return made[-1]

    yield begin
    for node in made:
        if node.poll() is None:
            node.terminate()  # it takes its ranks along
        node.wait(timeout=180)
        node.stdout.close()


def started(service, document, folder, node=0, hosts=1, **more):
    """One node's container of the request, as far as a process can be one."""
    env = {"PATH": os.environ["PATH"], "OUT": str(folder), **more}
    if service == "azureml":
        return _azure(document["properties"], env, folder, node)
    if service == "sagemaker":
        config = folder / f"config-{node}"
        config.mkdir(parents=True)
        names = [f"algo-{number + 1}" for number in range(hosts)]
        (config / "resourceconfig.json").write_text(json.dumps({"current_host": names[node], "hosts": names}))
        (config / "hyperparameters.json").write_text(json.dumps(document["HyperParameters"]))
        algorithm = document["AlgorithmSpecification"]
        words = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
        env |= {**document["Environment"], "SM_INPUT_CONFIG_DIR": str(config)}
    else:
        pools = document["jobSpec"]["workerPoolSpecs"]
        container = pools[min(node, 1) if hosts > 1 else 0]["containerSpec"]
        words = [*container["command"], *container["args"]]
        env |= {item["name"]: expanded(item["value"], env) for item in container["env"]}
        env["SM_INPUT_CONFIG_DIR"] = str(folder / "none")
        if hosts > 1:
            cluster = {"workerpool0": ["wp0-0:2222"], "workerpool1": [f"wp1-{n}:2222" for n in range(hosts - 1)]}
            task = {"type": f"workerpool{min(node, 1)}", "index": max(0, node - 1)}
            env["CLUSTER_SPEC"] = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        words = [expanded(word, env) for word in words]
    return subprocess.Popen([sys.executable, *words[1:]], env=env, stdout=subprocess.PIPE, text=True)


def _azure(properties, env, folder, node):
    """The service starts each rank itself; here one of them, the first of its node."""
    count = properties["distribution"]["processCountPerInstance"]
    world = count * properties["resources"]["instanceCount"]
    ranks = {"RANK": node * count, "WORLD_SIZE": world, "LOCAL_RANK": 0, "NODE_RANK": node}
    env |= {**properties["environmentVariables"], **{name: str(value) for name, value in ranks.items()}}
    env |= {"MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "6105"}
    places = {"outputs.checkpoints": str(folder / "outputs")}
    command = re.sub(r"\$\{\{\s*([\w.]+)\s*\}\}", lambda found: places[found[1]], properties["command"])
    for value in properties["environmentVariables"].values():
        assert "${{" not in value
    return subprocess.Popen(["bash", "-c", command], env=env, stdout=subprocess.PIPE, text=True)


def expanded(text, env):
    """`$(NAME)` and `$$` as Kubernetes and Vertex AI read them."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


@pytest.mark.parametrize("service", ["sagemaker", "vertex"])
def test_ranks_of_two_nodes_have_torchrun_s_names(service, start, tmp_path):
    document = body(service, num_nodes=3, nproc=2, run=REPORT)
    nodes = [start(service, document, tmp_path, node, hosts=3) for node in range(3)]
    assert [node.wait(timeout=180) for node in nodes] == [0, 0, 0]
    seen = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(6)]
    master = ("algo-1", "29500") if service == "sagemaker" else ("wp0-0", "2222")
    for rank, env in enumerate(seen):
        node, local = divmod(rank, 2)
        expected = (str(rank), "6", str(local), "2", str(node), str(node), *master)
        assert tuple(env[name] for name in NAMES) == expected
        assert env["MUSTER_CHECKPOINT_DIR"]


@pytest.mark.parametrize("service", ["sagemaker", "vertex", "azureml"])
def test_one_node_has_them_too(service, start, tmp_path):
    node = start(service, body(service, run=REPORT), tmp_path)
    node.communicate(timeout=180)
    env = json.loads((tmp_path / "0").read_text())
    assert [env[name] for name in NAMES[:6]] == ["0", "1", "0", "1", "0", "0"]
    assert env["MASTER_ADDR"]
    assert env["MASTER_PORT"]
    assert env["MUSTER_CHECKPOINT_KEEP"] == "3"


@pytest.mark.parametrize("service", ["sagemaker", "vertex", "azureml"])
def test_any_text_arrives_unharmed(service, start, tmp_path):
    envs = {"LR": "3e-4 $(RANK) ${{inputs.lr}}", "LONG": "ü$" * 1500, "LINES": "a\n\n", "OTHER": "$HOME $$ `x`"}
    plain = subprocess.run(
        ["bash", "-c", HARD], env={"PATH": os.environ["PATH"], **envs}, capture_output=True, text=True
    )
    report = f"{HARD}{REPORT}"
    node = start(service, body(service, run=report, envs=envs), tmp_path)
    out, _ = node.communicate(timeout=180)
    assert out == plain.stdout
    env = json.loads((tmp_path / "0").read_text())
    assert {name: env[name] for name in envs} == envs


@pytest.mark.parametrize("service", ["sagemaker", "vertex"])
def test_a_rank_that_fails_takes_the_others_along(service, start, tmp_path):
    run = (
        'if [ "$RANK" = 1 ]; then until [ -e $OUT/up-0 ] && [ -e $OUT/up-2 ]; do sleep 0.05; done; exit 7; fi\n'
        'trap "touch $OUT/told-$RANK; exit 0" TERM; touch $OUT/up-$RANK; sleep 600 & wait'
    )
    node = start(service, body(service, nproc=3, run=run, stop_grace="20s"), tmp_path)
    node.communicate(timeout=180)
    assert node.returncode == 7
    assert sorted(path.name for path in tmp_path.glob("told-*")) == ["told-0", "told-2"]


@pytest.mark.parametrize("service", ["sagemaker", "vertex"])
def test_a_stop_reaches_the_ranks_and_one_that_will_not_go_is_killed(service, start, tmp_path):
    run = 'trap "touch $OUT/told" TERM; touch $OUT/up; while true; do sleep 0.05; done'
    node = start(service, body(service, run=run, stop_grace="1s"), tmp_path)
    until((tmp_path / "up").exists)
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=180)
    assert node.returncode == 143
    assert (tmp_path / "told").exists()


def test_the_program_is_small_plain_and_old_enough():
    lines = common.start_lines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 256
    assert "$" not in "".join(lines)  # nothing for a service to expand
    ast.parse("\n".join(lines), feature_version=(3, 7))
