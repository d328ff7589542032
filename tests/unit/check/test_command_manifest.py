"""Commands in manifests of Kubernetes."""

from busbw.check.command import lint
from busbw.check.command.script_parser import commands
from busbw.core.finding import Verdict

MANIFEST = """kind: MPIJob
      containers:
      - command:
        - mpirun
        - -np
        # ranks
        - "16"  # in all
        args:
        - -H
        - h1:h2
        - ./all_reduce_perf
      - command: ["/bin/bash", "-c"]
        args: [
          "mpirun \\
           -np 2 ./a --b 'c,d'",
        ]
      - args: ['./e']
        command: [srun]
      - args:
        - |
          mpirun -np 3 ./f
      - args:
        - 'srun -n {{ mul .Hosts 8 }} -c
          2 ./g'
      - args: [torchrun, ./h
"""


def test_commands_of_a_manifest():
    assert [(command.number, command.words) for command in commands(MANIFEST, "job.yaml")] == [
        (3, ("mpirun", "-np", "16", "-H", "h1:h2", "./all_reduce_perf")),
        (12, ("mpirun", "-np", "2", "./a", "--b", "c,d")),
        (17, ("srun", "./e")),
        (21, ("mpirun", "-np", "3", "./f")),
        (22, ("srun", "-n", "{{ mul .Hosts 8 }}", "-c", "2", "./g")),
    ]


FOLDED = """args:
- >
  export A=1 ;
  torchrun --nnodes=2
  --rdzv-backend=c10d --rdzv-endpoint=h1:1 a.py

  mpirun -np 2 \\
    ./b
command: >-
    srun
    ./d
"""


def test_lines_of_a_folded_block_are_joined():
    assert [(command.number, command.words) for command in commands(FOLDED, "job.yaml")] == [
        (3, ("torchrun", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h1:1", "a.py")),
        (7, ("mpirun", "-np", "2", "./b")),
        (10, ("srun", "./d")),
    ]


def failed(text):
    """The rules that the only command of a manifest fails."""
    (line,) = lint.report(["-"], text, None).lines
    return [finding.name for finding in line.findings if finding.verdict is Verdict.FAIL]


def test_operator_of_a_training_job_sets_the_rendezvous():
    text = "args:\n- torchrun\n- --nnodes\n- '2'\n- train.py\n"
    assert failed(text) == ["line-torchrun"]
    assert failed(f"kind: PyTorchJob\n{text}") == []
