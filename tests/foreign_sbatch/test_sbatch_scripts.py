"""Scripts as people write them, imported: what the job file says, what is told, and that a shell can read it."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from muster.cli.main import main
from muster.core.parse import parse_job
from muster.core.units import mended_name
from muster.foreign.sbatch_job import read_job

SCRIPTS = Path(__file__).parent / "scripts"
ALL = sorted(path.stem for path in SCRIPTS.glob("*.sbatch"))


def imported(name):
    return read_job((SCRIPTS / f"{name}.sbatch").read_text(), f"{name}.sbatch")


def spec_of(name):
    found = imported(name)
    given = found.job.get("name")
    return parse_job({**found.job, **({"name": mended_name(given)} if given else {})})


def told(lines):
    return "\n".join(f"{one.what} {one.became}" for one in lines)


@pytest.mark.parametrize("name", ALL)
def test_every_one_makes_a_job_file_that_a_shell_can_read(name):
    spec = spec_of(name)
    assert subprocess.run([shutil.which("bash"), "-n", "-c", spec.run], capture_output=True).stderr == b""


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_carried_or_listed(name):
    """No directive is forgotten: each of its words stands in what is told."""
    found = imported(name)
    everything = told([*found.carried, *found.lost, *found.notes])
    for line in (SCRIPTS / f"{name}.sbatch").read_text().splitlines():
        if line.startswith("#SBATCH") and "hetjob" not in line:
            for word in line.removeprefix("#SBATCH").split("#")[0].split():
                assert word in everything


def test_torchrun_on_two_nodes_is_left_to_the_launcher():
    spec = spec_of("torchrun_login_shell")
    assert spec.name == "multinode-example"
    assert spec.num_nodes == 2
    assert spec.nproc is None
    assert (spec.resources.accelerator, spec.resources.accelerators) == ("A100", 4)
    assert spec.resources.cpus == 72
    assert spec.resources.memory == 500 * 2**30
    assert spec.max_duration == 87_000
    assert spec.slurm.signal == 120
    assert spec.slurm.extra == ("--hint=nomultithread",)
    assert (spec.array, spec.envs) == ("0-9%2", {})
    lines = spec.run.splitlines()
    assert lines[0] == ". /etc/profile"
    assert "module purge" in lines
    assert 'head_node_ip="$MASTER_ADDR"' in lines
    assert "export OMP_NUM_THREADS=72" in lines
    assert lines[-1] == (
        'python -u train.py --seed $SLURM_ARRAY_TASK_ID --name "run ${MUSTER_JOB:-0}" '
        "--nodes=$((WORLD_SIZE / LOCAL_WORLD_SIZE))"
    )
    assert "srun" not in spec.run
    assert "scontrol" not in spec.run
    found = imported("torchrun_login_shell")
    assert "torchrun is taken out: Muster's launcher" in told(found.notes)
    assert "muster logs" in told(found.lost)


def test_srun_of_one_task_a_gpu():
    spec = spec_of("srun_per_gpu")
    assert (spec.pool, spec.num_nodes, spec.nproc) == ("gpu", 2, None)
    assert spec.resources.cpus == 96
    assert spec.resources.memory == 96 * 8000 * 2**20
    assert spec.image == "nvcr.io/nvidia/pytorch:24.05-py3"
    assert spec.envs == {"WANDB_MODE": "offline"}
    assert (spec.slurm.account, spec.slurm.qos, spec.slurm.exclusive) == ("nlp", "high", True)
    assert spec.slurm.dependency == "afterok:12345"
    assert any("`needs: [prepare]`" in one.became for one in imported("srun_per_gpu").notes)
    assert '[ "$RANK" != 0 ] || python prepare.py "it\'s $HOME"' in spec.run
    assert "bash -c ':; python train.py --rank $RANK --bs $((32 * WORLD_SIZE))'" in spec.run
    # What is in a document is text, but its variables are the shell's.
    assert "srun is here $MUSTER_JOB" in spec.run
    for name in ("MASTER_ADDR=", "MASTER_PORT=", "WORLD_SIZE="):
        assert name not in spec.run
    found = imported("srun_per_gpu")
    assert "HF_HOME" in told(found.notes)
    assert "kubernetes.volumes" in told(found.lost)


def test_options_that_a_variable_holds():
    spec = spec_of("megatron_args")
    assert (spec.num_nodes, spec.nproc, spec.resources.accelerators) == (4, None, 8)
    assert 'bash -c "python -u pretrain_gpt.py ${MODEL[*]} --node \\$NODE_RANK"' in spec.run


def test_the_older_launch_module_keeps_its_python():
    spec = spec_of("launch_module")
    assert spec.resources.accelerators == 2
    assert spec.nproc is None
    assert spec.max_duration == 5400
    assert '~/envs/train/bin/python -u main.py --config "configs/a b.yaml" \\\n' in spec.run
    assert "2>&1 | tee log.txt" in spec.run
    assert "--local-rank" in told(imported("launch_module").notes)


def test_an_array_of_small_jobs():
    found = imported("cpu_array")
    spec = spec_of("cpu_array")
    assert spec.resources.cpus == 4
    assert spec.max_duration == 1800
    assert (spec.array, spec.envs) == ("1,5-9:2", {})
    assert "SLURM_ARRAY_TASK_ID" in spec.run
    assert "--threads 4" in spec.run
    lost = told(found.lost)
    assert "--mem=0 asks for all memory" in lost
    assert "--time=99:00:00 stands after the first command" in lost
    assert "not-read" not in lost
    assert "Muster sends no mail" in lost


def test_components_and_steps_in_the_background_are_listed():
    lost = told(imported("hetero_background").lost)
    assert "component 2 (--ntasks=2 --gres=gpu:1) is another kind of node" in lost
    assert "in the background" in lost
    assert "scontrol show job $SLURM_JOB_ID talks to Slurm" in lost


def test_a_script_that_is_no_shell_runs_as_it_is():
    spec = spec_of("in_python")
    assert spec.run == "/usr/bin/env python3 in_python.sbatch"
    assert (spec.name, spec.resources.cpus, spec.max_duration) == ("in-python", 2, 43_200)


def test_a_launcher_that_stays():
    spec = spec_of("accelerate_launch")
    assert (spec.num_nodes, spec.nproc, spec.resources.accelerators) == (2, 1, 4)
    assert spec.slurm.gres == "gpu:a100:4,nvme:1"
    assert spec.slurm.extra == ("--licenses=matlab:1",)
    assert "accelerate launch --num_machines $((WORLD_SIZE / LOCAL_WORLD_SIZE)) --machine_rank $RANK" in spec.run


def test_what_comes_out_runs(tmp_path):
    """The command as each of two ranks would run it."""
    text = (
        "#!/bin/bash\n#SBATCH -n 2\nexport MASTER_ADDR=$(scontrol show hostname | head -1)\n"
        "srun -l python3 -c \"import os; print(os.environ['RANK'], 'it is', $SLURM_NTASKS)\"\n"
    )
    run = read_job(text, "x").job["run"]
    for rank in "01":
        env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "RANK": rank, "WORLD_SIZE": "2"}
        done = subprocess.run(["bash", "-c", run], env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == f"{rank} it is 2\n"


def test_the_command_writes_a_job_file_and_lists_the_rest(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = SCRIPTS / "srun_per_gpu.sbatch"
    assert main(["import", str(script), "-o", "job.yaml"]) == 0
    told_ = capsys.readouterr()
    assert "not carried: line" in told_.err
    assert told_.out == ""
    text = (tmp_path / "job.yaml").read_text()
    assert text.startswith("# From srun_per_gpu.sbatch, by `muster import`.\n# Not carried: ")
    assert parse_job(text).slurm.qos == "high"
    assert main(["import", str(script), "-o", "job.yaml"]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["import", str(script), "-o", "job.yaml", "--force"]) == 0
    capsys.readouterr()
    assert main(["import", str(script)]) == 0
    assert parse_job(capsys.readouterr().out) == parse_job(text)
    assert main(["import", str(script), "--json"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert {"job", "carried", "not_carried", "notes", "wrote"} == set(document)
    assert document["not_carried"][0]["line"] == 23


def test_what_can_t_be_imported_is_said(tmp_path, capsys):
    empty = tmp_path / "empty.sbatch"
    empty.write_text("#!/bin/bash\n#SBATCH -N 2\n# nothing\n")
    assert main(["import", str(empty)]) == 1
    assert "has no command" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none")]) == 1
    assert "There is no script" in capsys.readouterr().err
