"""The pieces of the import: Slurm's way to write options, times and sizes, and a shell's way to write words."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.parse import parse_job
from muster.foreign.sbatch import parse_script
from muster.foreign.sbatch_job import read_job
from muster.foreign.sbatch_shape import Unconvertible, megabytes, seconds
from muster.foreign.shell import commands

WORDS = ("srun ", "torchrun ", "export ", "<<EOF\n", "$SLURM_NNODES", "RANK=1", "bash -c ")
PIECES = [
    *"ab =$(){}'\"`\\\n\t;&|<>#-/",
    "srun ",
    "torchrun ",
    "export ",
    "<<EOF\n",
    "$SLURM_NNODES",
    "RANK=1",
    "bash -c ",
]
SHELLY = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 5400), ("30:00", 1800), ("1:30:00", 5400), ("2-12", 216_000), ("1-00:30", 88_200), ("1-1:1:1", 90_061),
     ("UNLIMITED", None), ("infinite", None), ("0", None)],
)  # fmt: skip
def test_times(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4000", 4000), ("64G", 65_536), ("64GB", 65_536), ("1T", 1_048_576), ("512K", 1), ("0", None)],
)
def test_sizes(text, expected):
    assert megabytes(text) == expected


def test_what_is_neither_is_said():
    for read, text in ((seconds, "soon"), (seconds, "1:2:3:4"), (megabytes, "much")):
        with pytest.raises(Unconvertible, match=text):
            read(text)


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [("-N2", "nodes", "2"), ("-N 2", "nodes", "2"), ("--nodes=2", "nodes", "2"), ("--nodes 2", "nodes", "2"),
     ("--job-name='a b'", "job-name", "a b"), ("--exclusive", "exclusive", ""),
     ("--exclusive=user", "exclusive", "user"),
     ("--tasks-per-node=4", "ntasks-per-node", "4"), ("--part=gpu", "partition", "gpu"), ("-H", "hold", ""),
     ("--gpu=1", "", "1"), ("--nothing=1", "", "1"), ("--time=1:00 # an hour", "time", "1:00")],
)  # fmt: skip
def test_options_as_slurm_reads_them(written, name, value):
    (option,) = parse_script(f"#!/bin/bash\n#SBATCH {written}\ntrue\n").options
    assert (option.name, option.value, option.line) == (name, value, 2)


def test_several_on_a_line_the_last_counts_and_lines_end_anyhow():
    script = parse_script("#!/bin/bash\r\n#SBATCH -N 2 -n8 --time 10\r\n\r\n#SBATCH --nodes=4\r\ntrue\r\n")
    assert script.last["nodes"].value == "4"
    assert script.last["time"].value == "10"
    assert script.interpreter == "/bin/bash"
    assert script.body.split() == ["true"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b c' \"d $(e f) g\" h\\ i", [["a", "'b c'", '"d $(e f) g"', "h\\ i"]]),
        ("a \\\n  b; c && d|e &\nf", [["a", "b"], ["c"], ["d"], ["e"], ["f"]]),
        ("x=$(a; b) y=( c d ) z # no", [["x=$(a; b)", "y=( c d )", "z"]]),
        ("cat <<'E' >f 2>&1\nnot a command\nE\nnext", [["cat"], ["next"]]),
        ("diff <(a b) c", [["diff", "c"]]),
        ("a $((1 + (2))) ${b:-c d} `e f`", [["a", "$((1 + (2)))", "${b:-c d}", "`e f`"]]),
    ],
)
def test_words_of_a_shell(text, expected):
    assert [[word.text for word in command.words] for command in commands(text)] == expected


@settings(max_examples=300, deadline=None)
@given(SHELLY)
def test_any_text_has_words_where_they_are_said_to_be(text):
    last = 0
    for command in commands(text):
        for word in command.words:
            assert text[word.start : word.end] == word.text
            assert word.start >= last
            last = word.start + 1


OPTIONS = st.sampled_from([
    "--nodes", "--ntasks", "--ntasks-per-node", "--gpus", "--gres", "--gpus-per-node", "--gpus-per-task", "-c", "--mem",
    "--mem-per-cpu", "--mem-per-gpu", "--time", "--partition", "--account", "--signal", "--export", "--array", "--nice",
    "--chdir", "--dependency", "--exclusive", "--requeue", "--wrap", "--comment", "--hint", "--output",
    "--ntasks-per-gpu",
])  # fmt: skip
VALUES = st.one_of(
    st.integers(0, 16).map(str),
    st.sampled_from(
        ["gpu:a100:4", "h100:8", "1-4", "64G", "1-00:00:00", "ALL,A=1,RANK=2", "B:USR1@90", "x,y", "-1", ""]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(OPTIONS, VALUES), max_size=8), SHELLY)
def test_whatever_the_script_the_job_file_is_in_order(options, body):
    lines = "\n".join(f"#SBATCH {name}={value}" if name.startswith("--") else f"#SBATCH {name}{value}"
                      for name, value in options)  # fmt: skip
    text = f"#!/bin/bash\n{lines}\npython train.py\n{body}"
    found = read_job(text, "x.sbatch")
    spec = parse_job({**found.job, "name": "x"})
    assert "python train.py" in spec.run or "--wrap" in str(options)
    told = {one.what for one in (*found.carried, *found.lost, *found.notes)}
    assert {option.written for option in parse_script(text).options} <= told


LINES = st.sampled_from([
    "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", "MASTER_PORT=29500; echo x",
    "export MASTER_PORT=1 A=2 && echo $A", "if true; then export RANK=$SLURM_PROCID; fi", "MASTER_PORT=1 ./x & wait",
    "if [ $SLURM_NNODES -gt 1 ]; then\nexport WORLD_SIZE=2\nelse\n  LOCAL_RANK=0\nfi", "srun -n1 ./a | tee b",
    "for i in 1 2; do srun -N 1 -n 1 ./step $i; done", "! srun ./a || exit 1", "time srun --label ./a 'b c' > out 2>&1",
    "f() { export NODE_RANK=$SLURM_NODEID; }", "( export RANK=1 )", "x=$(srun -n1 hostname)", "A=1 srun -n 1 ./b",
    "srun bash -c 'export RANK=$SLURM_PROCID && torchrun --nproc_per_node 2 a.py'",
    "while read l; do srun ./a $l; done < f", "nodes=( $(hostlist x) )", "{ MASTER_PORT=1; }",
    "cat <<E\nsrun $SLURM_JOB_ID\nE", "case $SLURM_PROCID in 0) MASTER_PORT=1;; *) srun ./b;; esac",
    "torchrun --standalone --nproc-per-node=gpu -m pkg.train --lr 1", "echo \"$(srun ./a)\" # srun",
    "export RANK", "[[ -n $SLURM_RESTART_COUNT ]] && python -m torch.distributed.run --nnodes 2 t.py || true",
    "echo ${SLURM_NTASKS:-1} $((SLURM_NTASKS*2)) ${SLURM_NNODES:-1}", "srun \\\n  --ntasks=1 \\\n  ./a \\\n  --b",
])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=8), st.integers(1, 4))
def test_what_a_shell_could_read_it_can_read_afterwards(lines, tasks):
    text = f"#!/bin/bash\n#SBATCH -n {tasks}\n" + "\n".join(lines) + "\ntrue\n"
    assert subprocess.run(["bash", "-n", "-c", text], capture_output=True).stderr == b""
    run = read_job(text, "x").job["run"]
    assert subprocess.run(["bash", "-n", "-c", run], capture_output=True).stderr == b"", run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("MASTER_PORT=1 A=2 ./x & wait", "A=2 ./x & wait"),
        ("RANK=1 srun -n 1 ./b", '[ "$RANK" != 0 ] || ./b'),
        ("export MASTER_PORT=1 A=2 && echo $A", "export A=2 && echo $A"),
        ("echo ${SLURM_NNODES:-1} $((SLURM_NTASKS*2))", "echo $((WORLD_SIZE / LOCAL_WORLD_SIZE)) $((WORLD_SIZE*2))"),
        ("/a/bin/torchrun --standalone --no-python ./x", "./x"),
        ("/a/bin/torchrun --nproc-per-node 2 --tee 3 x.py -m 1", "/a/bin/python -u x.py -m 1"),
        ("srun -- ./a -n 3", "./a -n 3"),
        ("srun -un2 --cpu-bind=none ./a", "./a"),
    ],
)
def test_a_line_becomes_what_each_rank_runs(line, expected):
    assert read_job(f"#!/bin/bash\n#SBATCH -n 2\n{line}\n", "x").job["run"] == expected


def test_slurm_s_tools_in_a_substitution_are_listed():
    lost = read_job('#!/bin/bash\necho "$(squeue -u me | wc -l)"\n', "x").lost
    assert any(one.what.startswith("squeue") for one in lost)


def test_what_ran_once_is_said_to_run_in_every_rank():
    once = "#!/bin/bash\n#SBATCH -n 2\n./prepare\nsrun ./a\n"
    assert any("in every rank" in one.became for one in read_job(once, "x").notes)
    assert not any("in every rank" in one.became for one in read_job(once.replace("./prepare", "echo"), "x").notes)


@pytest.mark.parametrize(
    ("start", "under"),
    [
        ("srun python train.py", "srun"),
        ("torchrun --nproc-per-node 4 train.py", "torchrun"),
        ("srun torchrun --nnodes 2 --nproc-per-node 4 train.py", "torchrun"),
        ("accelerate launch train.py", "the launcher"),
    ],
)
def test_what_ran_once_and_runs_in_every_rank_now_is_said_whatever_starts_the_ranks(start, under):
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"
    told = [one for one in read_job(f"{head}tar xf data.tar\n{start}\n", "x.sbatch").notes if "ran once" in one.became]
    assert [one.what for one in told] == [f"what is not under {under}"]
    assert not any("ran once" in one.became for one in read_job(f"{head}echo hi\n{start}\n", "x.sbatch").notes)


@pytest.mark.parametrize(
    ("option", "needs", "slurm"),
    [("afterok:prepare,afternotok:check:lint-3", {"prepare": "succeeded", "check": "failed", "lint-3": "failed"}, None),
     ("afterany:77", None, "afterany:77"), ("singleton", None, "singleton"), ("after:prepare", None, "after:prepare")],
)  # fmt: skip
def test_dependencies_on_named_jobs_are_needs_and_those_on_numbers_are_slurms(option, needs, slurm):
    job = read_job(f"#!/bin/sh\n#SBATCH -d {option}\ntrue\n", "job.sbatch").job
    assert (job.get("needs"), job.get("slurm", {}).get("dependency")) == (needs, slurm)
