"""Commands of scripts for sbatch, whose #SBATCH lines give srun its options, and what variables and
commands within commands hold."""

import pytest

from busbw.check.command import lint
from busbw.check.command.sbatch import job_variables
from busbw.check.command.script_parser import commands
from busbw.core.finding import Verdict

TORCHRUN = (
    "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint h1:29500 a.py"
)
PERF = "all_reduce_perf -b 8 -e 8G -f 2"


def numbers(text: str) -> list[str]:
    """The job's nodes, tasks, tasks and GPUs per node; '' for those not given."""
    job = job_variables(f"#!/bin/bash\n{text}\nsrun ./a\n#SBATCH -N 9")
    names = ("JOB_NUM_NODES", "NTASKS", "NTASKS_PER_NODE", "GPUS_PER_NODE")
    return [job.get(f"SLURM_{name}", "") for name in names]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH --nodes=2\n\n# GPUs\n#SBATCH --gpus-per-node=8", ["2", "", "", "8"]),
        ("#SBATCH -N 2 -n16 # all\n#SBATCH --ntasks-per-node 8", ["2", "16", "8", ""]),
        ("#SBATCH --gres gpu:h100:4 --array 0-3\n#SBATCH -N2", ["2", "", "", "4"]),
        ("#SBATCH --gres=craynetwork:1\n#SBATCH --gpus-per-node=a100:4", ["", "", "", "4"]),
        ("##SBATCH -N 3\n# SBATCH -N 3\n#SBATCH -N 2\n#SBATCH -N 4", ["4", "", "", ""]),
        ("#SBATCH --nodes=2-4 --ntasks=$N\n#SBATCH -J 'a", ["", "", "", ""]),
        ("#SBATCH -N 2\n#SBATCH hetjob\n#SBATCH -N 4", ["", "", "", ""]),
    ],
)
def test_numbers_of_a_job(text: str, expected: list[str]) -> None:
    assert numbers(text) == expected


def test_script_without_directives_has_no_job() -> None:
    assert job_variables("#!/bin/bash\nsrun ./a\n") == {}
    assert job_variables("srun ./a\n#SBATCH -N 2\n") == {}


def verdicts(directives: str, command: str) -> dict[str, Verdict]:
    """The verdict of each rule on the last command of a script."""
    report = lint.report(["-"], f"#!/bin/bash\n#SBATCH {directives}\n{command}\n", None)
    return {finding.name: finding.verdict for finding in report.lines[-1].findings}


@pytest.mark.parametrize(
    ("directives", "command", "rule", "verdict"),
    [
        ("--ntasks-per-node=8", f"srun {TORCHRUN}", "line-per-node", Verdict.FAIL),
        ("--ntasks-per-node=1", f"srun {TORCHRUN}", "line-per-node", Verdict.SKIP),
        ("--ntasks-per-node=8", f"srun -N 2 -n 2 {TORCHRUN}", "line-per-node", Verdict.SKIP),
        ("-N 2 --ntasks=15", f"srun --mpi=pmix {PERF}", "line-spread", Verdict.WARN),
        ("-N 2 --ntasks=15", f"srun --mpi=pmix -n 16 {PERF}", "line-spread", Verdict.PASS),
        (
            "--ntasks-per-node=8 --gpus-per-node=8",
            f"srun --mpi=pmix {PERF} -g 8",
            "line-gpus",
            Verdict.FAIL,
        ),
        (
            "--ntasks-per-node=8 --gpus-per-node=8",
            f"srun --mpi=pmix {PERF}",
            "line-gpus",
            Verdict.PASS,
        ),
        ("-N 2", f"NCCL_DEBUG=WARN mpirun -n 2 -H h1,h2 {PERF}", "line-export", Verdict.PASS),
        ("-N 2", f"srun --mpi=pmix -n 1 {PERF}", "line-spread", Verdict.SKIP),
        ("-N 2", f"srun -w $HOST -n 3 {PERF}", "line-spread", Verdict.SKIP),
        ("-N 2", f"srun -N $N --ntasks-per-node 8 {PERF}", "line-spread", Verdict.SKIP),
    ],
)
def test_rules_with_the_numbers_of_a_job(
    directives: str, command: str, rule: str, verdict: Verdict
) -> None:
    assert verdicts(directives, command)[rule] is verdict


RUN = "mpirun -np 16 -H h1:8,h2:8"
FAULT = "NCCL_P2P_DISABLE=1"


@pytest.mark.parametrize(
    "script",
    [
        f'ARGS=(-x {FAULT} -x A=1)\n{RUN} "${{ARGS[@]}}" {PERF}',
        f"declare -a ARGS=(\n  -x A=1   # one\n  -x {FAULT}\n)\n{RUN} ${{ARGS[*]}} {PERF}",
        f'ARGS=(-x A=1)\nARGS+=(-x {FAULT})\nALL=("${{ARGS[@]}}")\n{RUN} ${{ALL[@]}} {PERF}',
        f'ARGS="-x A=1"\nARGS="$ARGS -x {FAULT}"\n{RUN} $ARGS {PERF}',
        f'sbatch -N 2 --wrap="export {FAULT}; srun {PERF}"',
        f'sbatch -N 2 --wrap "{FAULT} srun {PERF}"',
        f"srun -N 2 bash -c 'export {FAULT}; {PERF}'",
        f"{RUN} bash -lc '{FAULT} {PERF}'",
        f"{RUN} env {FAULT} {PERF}",
    ],
)
def test_variables_in_arrays_and_in_commands_within_commands(script):
    (command,) = commands(script, "job.sh")
    findings = lint.lint(command.words, None, command.exported)
    (fault,) = [found for found in findings if found.name == "nccl-p2p-disable"]
    in_option = "ARGS" in script
    assert fault.fix == f"leave out {'-x ' if in_option else ''}{FAULT}"


@pytest.mark.parametrize(
    ("script", "is_seen"),
    [
        (f'if [ -n "$A" ]; then\n  X+=(-x {FAULT})\nfi\n{RUN} "${{X[@]}}" {PERF}', False),
        (f'X=(-x B=1)\n[[ -n $A ]] && X+=(-x {FAULT})\n{RUN} "${{X[@]}}" {PERF}', False),
        (f'if a; then b\nelse\n  X=(-x {FAULT})\n  {RUN} "${{X[@]}}" {PERF}\nfi', True),
        (f'X=(-x {FAULT})\nif a; then X=(-x B=1); else b; fi\n{RUN} "${{X[@]}}" {PERF}', True),
        (f"[ -f a ] && {RUN} -x {FAULT} {PERF}", True),
        (f'case a in\n  b) c ;;\nesac\nX=(-x {FAULT})\n{RUN} "${{X[@]}}" {PERF}', True),
    ],
)
def test_what_a_branch_assigns_holds_up_to_its_end(script, is_seen):
    (command,) = commands(script, "job.sh")
    assert (FAULT in command.words) == is_seen


def test_options_of_sbatch_are_those_of_the_commands_that_it_wraps():
    text = f'sbatch -N 2 --ntasks-per-node=8 --gpus-per-node=8 --wrap "srun {PERF} -g 8"'
    (command,) = commands(text, "job.sh")
    gpus = next(
        found for found in lint.lint(command.words, None, command.exported) if found.id == "BW233"
    )
    assert gpus.verdict is Verdict.FAIL and gpus.fix == "-g 1"


def test_other_values_are_no_lists_of_options():
    (command,) = commands(f"PROGRAM=./a.out\nHOSTS=(h1 h2)\n{RUN} $PROGRAM\n", "job.sh")
    assert command.words[-1] == "$PROGRAM"
    # A number that a script gives a variable, until it gives it another value.
    for value, words in (("1", ("--nnodes=1", "1")), ("$A", ("--nnodes=$N", "${N}"))):
        text = f"N=1\nN={value}\ntorchrun --nnodes=$N ${{N}}"
        assert commands(text, "job.sh")[0].words[1:] == words
    (command,) = commands(f'NONE=()\n"${{NONE[@]}}"\n{RUN} "${{NONE[@]}}" {PERF}', "job.sh")
    assert command.words[-7:] == tuple(PERF.split())
