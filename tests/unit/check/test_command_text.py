"""Command lines in text and scripts, the facts of this machine, and the command that prints what
is found.
"""

import io
import json
import shlex
import sys
import time

import pytest
from healthy import healthy

from busbw.check.command import lint
from busbw.check.command.script_parser import commands
from busbw.check.machine import Machine
from busbw.cli.main import guarded
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict

SCRIPT = """#!/bin/bash
#SBATCH -N 2
export NCCL_DEBUG=WARN   # for all
make && echo "built; now mpirun starts"
# mpirun -n 99 old
time mpirun -n 16 \\
  -H h1:h2 \\
  -x NCCL_DEBUG -x NCCL_ALGO=$ALGO \\
  ./build/all_reduce_perf -b 8 -e 8G -f 2 2>&1 | tee log
srun --mpi=pmix -N 2 --ntasks-per-node=8 ./all_gather_perf -b 1G -e 1G; date
"""


def test_commands_of_a_script():
    first, second = commands(SCRIPT, "job.sh")
    assert (first.number, first.words[:4], first.exported) == (
        6,
        ("time", "mpirun", "-n", "16"),
        {"SLURM_JOB_ID": "", "SLURM_JOB_NUM_NODES": "2", "NCCL_DEBUG": "WARN"},
    )
    assert first.words[-1] == "2>" and "log" not in first.words
    assert (second.number, second.words[0], second.words[-1]) == (10, "srun", "1G")


@pytest.mark.parametrize(
    "endpoint",
    [
        "$(scontrol show hostnames $NODES | head -n 1):6000",
        "`scontrol show hostnames; date`:6000",
        '"$(echo ")" | tr -d "x"):6000"',
        "${HOST:-a b}:6000",
        "$((N * 8)):6000",
    ],
)
def test_a_substitution_is_one_word(endpoint):
    line = f"torchrun --nnodes 2 --rdzv_endpoint {endpoint} --rdzv_backend c10d t.py | tee log"
    (command,) = commands(line, "the line")
    assert command.words[-3:] == ("--rdzv_backend", "c10d", "t.py")
    assert command.words[4] == endpoint.removeprefix('"').removesuffix('"')


def test_a_substitution_without_an_end_is_text():
    (command,) = commands("A=$(\nmpirun -n 2 ./a ${B `c\n)", "job.sh")
    assert command.words == ("mpirun", "-n", "2", "./a", "${B", "`c")


@pytest.mark.parametrize(
    "assignment", ["A=$({})", 'A="$({})"', "export A=`{}`", "A=$(B=$(cd x; {}))"]
)
def test_a_command_whose_output_is_assigned(assignment):
    (command,) = commands(assignment.format("mpirun -n 2 ./a"), "job.sh")
    assert command.words == ("mpirun", "-n", "2", "./a")


@pytest.mark.parametrize(
    "line",
    [
        "echo starting all_reduce_perf",
        'echo "[launcher] starting all_reduce_perf"',
        "if ! command -v all_reduce_perf; then",
        "A=$(mpirun --version)",
        "which mpirun",
        "- mpirun",
    ],
)
def test_a_line_that_only_names_a_program(line):
    with pytest.raises(UsageError, match="no command of mpirun"):
        commands(line, "job.sh")


@pytest.mark.parametrize("line", ["deepspeed train.py", "nohup accelerate launch train.py &", ""])
def test_variables_of_a_script_without_a_known_launcher(line):
    (found,) = lint.report(["-"], f"export NCCL_DEBUG=debug\n{line}\n", None).lines
    (finding,) = [item for item in found.findings if item.verdict is Verdict.WARN]
    assert finding.name == "nccl-debug"


def test_a_here_document_may_hold_an_apostrophe():
    text = "cat > a <<'EOF'\nIt's a test\nsrun ./b\n'c\nEOF\nN=$((1 << N))\nmpirun -n 2 ./a\n"
    found = [(command.number, command.words[-1]) for command in commands(text, "job.sh")]
    assert found[-1] == (7, "./a")
    with pytest.raises(UsageError, match="line 2: a quotation does not end"):
        commands(f'A=$((1 << N))\n"\n{text}', "job.sh")


def test_quotes_over_several_lines():
    (command,) = commands("mpirun -n 2 bash -c 'cd x;\n./run'", "the line")
    assert command.words == ("mpirun", "-n", "2", "bash", "-c", "cd x;\n./run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "no command of mpirun"),
        ("", "no command of mpirun"),
        ("a\nmpirun 'x", "stdin, line 2: a quotation does not end"),
        ("mpirun 'x \\", "a quotation does not end"),
    ],
)
def test_text_without_a_command(text, message):
    with pytest.raises(UsageError, match=message):
        commands(text, "stdin")


def bad(words, machine=None, stdin=""):
    report = lint.report(words, stdin, machine)
    return [
        [finding.name for finding in line.findings if finding.verdict is Verdict.FAIL]
        for line in report.lines
    ]


def test_line_as_words_in_quotes_in_a_file_and_from_stdin(tmp_path):
    line = "mpirun -n 16 -H h1:h2 ./train"
    (tmp_path / "run.sh").write_text(line, encoding="utf-8")
    for words in (line.split(), [line], [str(tmp_path / "run.sh")], ["-"]):
        assert bad(words, stdin=line) == [["line-hosts"]]


def test_script_exports_the_variables_its_lines_pass_on(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    report = lint.report([str(path)], "", None)
    assert [line.where for line in report.lines] == [f"{path}, line 6", f"{path}, line 10"]
    (export,) = [finding for finding in report.lines[0].findings if finding.name == "line-export"]
    assert export.verdict is Verdict.PASS


def test_file_that_is_not_a_script(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        lint.report([str(tmp_path / "binary")], "", None)


def test_facts_of_this_machine_count_where_the_launcher_is(monkeypatch, tmp_path):
    (tmp_path / "mpirun").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "mpirun").chmod(0o755)
    machine = Machine(
        healthy().update("mpirun", version="5.0.8", path=str(tmp_path / "mpirun")).source()
    )
    line = shlex.split(
        "mpirun --allow-run-as-root -H far:8 -n 8 ./all_reduce_perf -b 1G -e 1G -g 8"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = lint.report(line, "", machine).facts
    assert (facts["host"], facts["Open MPI"]) == (
        "gpu-1",
        f"5.0.8 ({tmp_path}/mpirun)",
    ) and "GPUs" not in facts, "no rank runs here"
    assert (
        "GPUs" not in lint.report([*line[:2], "--hostfile", "hosts", *line[4:]], "", machine).facts
    )
    assert lint.report([*line[:3], "localhost:8", *line[4:]], "", machine).facts["GPUs"] == "8"
    assert lint.report(["/other/mpirun", *line[1:]], "", machine).facts == {}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mpirun").touch(0o755)
    assert (
        lint.report([str(tmp_path / "other" / "mpirun"), *line[1:]], "", machine).facts["Open MPI"]
        == "another one"
    )
    failing = Machine(
        healthy()
        .update("mpirun", version="", error="exit code 1", path=str(tmp_path / "mpirun"))
        .source()
    )
    assert lint.report(line, "", failing).facts["Open MPI"] == "exit code 1"
    monkeypatch.setenv("PATH", "/nowhere")
    assert lint.report(line, "", machine).facts == {}


@pytest.mark.parametrize(
    ("line", "judged"),
    [
        ("srun ./a", True),
        ("mpirun -n 3 -x NCCL_ALGO ./a", True),
        ("mpirun -n 3 ./a", False),
        ("NCCL_ALGO= srun ./a", False),
    ],
)
def test_exported_variables_that_reach_the_ranks_are_judged(line, judged):
    (found,) = lint.report(["-"], f"export NCCL_ALGO=Ring\n{line}\n", None).lines
    bad_names = [item.name for item in found.findings if item.verdict is Verdict.WARN]
    assert ("nccl-algo" in bad_names) is judged


def test_variables_that_a_script_sets_without_a_machine():
    (line,) = lint.report(
        ["-"], "export NCCL_DEBUG=WARN\nmpirun -x NCCL_DEBUG -n 2 ./a\n", None
    ).lines
    assert [finding.verdict for finding in line.findings if finding.name == "line-export"] == [
        Verdict.PASS
    ]
    (line,) = lint.report(["-"], "export NCCL_ALGO=Ring\nmpirun -n 2 -H h1,h2 ./a\n", None).lines
    (finding,) = [finding for finding in line.findings if finding.name == "line-export"]
    assert finding.verdict is Verdict.WARN and finding.fix == "-x NCCL_ALGO"
    # The shell that starts the script may have the others.
    (line,) = lint.report(
        ["-"], "export NCCL_ALGO=Ring\nmpirun -x NCCL_ALGO -x NCCL_PROTO -n 2 ./a\n", None
    ).lines
    (finding,) = [finding for finding in line.findings if finding.name == "line-export"]
    assert finding.verdict is Verdict.UNKNOWN and "whether NCCL_PROTO has" in finding.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"""mpirun "a\"b" ./c # 'd""", ("mpirun", 'a"b', "./c")),
        (r"""mpirun 'a\' ./c # 'd""", ("mpirun", "a\\", "./c")),
        (r"""mpirun a\'b ./c""", ("mpirun", "a'b", "./c")),
        ("mpirun -x A \\\n ./c", ("mpirun", "-x", "A", "./c")),
        ("mpirun -x A \\ \n ./c", ("mpirun", "-x", "A", " ")),  # another command
    ],
)
def test_a_backslash_escapes_but_in_single_quotes(text, words):
    (command,) = commands(text, "the line")
    assert command.words == words


def test_command_prints_the_faults_and_exits_with_1(capfd):
    words = ["--no-machine", "mpirun", "-np", "16", "-H", "h1:h2", "./train"]
    assert guarded(["check", "command", *words]) == 1
    out, err = capfd.readouterr()
    assert "FAIL    h1:h2 is h1 with 'h2' slots: a comma separates hosts  [BW220 line-hosts]" in out
    assert out.startswith("without the facts of this machine") and err == ""


def stdin(text):
    return io.TextIOWrapper(io.BytesIO(text.encode()))


def test_command_as_json_without_secrets(monkeypatch, capfd):
    line = "mpirun -x MY_TOKEN=hunter2 -n 2 -H h1:1,h2:1 ./train"
    monkeypatch.setattr(sys, "stdin", stdin(line))
    assert guarded(["check", "command", "--no-machine", "--format", "json", "-"]) == 0
    out = capfd.readouterr().out
    report = json.loads(out)
    assert (report["schema"], report["lines"][0]["where"]) == (
        "busbw.check-command/1",
        "stdin, line 1",
    )
    assert "hunter2" not in out


def test_command_without_a_line_is_a_usage_error(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", stdin(""))
    assert guarded(["check", "command"]) == 2
    assert "no command line" in capfd.readouterr().err


def test_rules_are_listed_with_the_checks(capfd):
    assert guarded(["check", "--list"]) == 0
    assert "BW220  line-hosts" in capfd.readouterr().out
    assert guarded(["check", "--only", "line-hosts"]) == 2


def test_comments_hold_no_quotations():
    (command,) = commands("module load x # don't\nmpirun -n 2 ./a#b '# c' # isn't\n", "the line")
    assert command.words == ("mpirun", "-n", "2", "./a#b", "# c")


def test_a_long_script_with_an_open_quotation_takes_no_time():
    started = time.process_time()
    with pytest.raises(UsageError, match="line 1: a quotation does not end"):
        commands("echo 'open\n" + "x=1; y=2; z=3; some more words\n" * 2000, "job.sh")
    assert time.process_time() - started < 1


def test_a_script_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"job.sh: neither a file nor a launcher"):
        lint.report([str(tmp_path / "job.sh")], "", None)


def test_a_closed_stdin_is_an_empty_text(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", None)
    assert guarded(["check", "command", "-"]) == 2
    assert "stdin: no command of mpirun" in capfd.readouterr().err


def test_secrets_of_a_line_are_masked():
    words = shlex.split(
        "mpirun -x HF_TOKEN=hunter2 ./a --token hunter2 --api-key=hunter2 --password -v"
    )
    (line,) = lint.report(words, "", None).lines
    assert line.argv == shlex.split(
        "mpirun -x HF_TOKEN=*** ./a --token *** --api-key=*** --password -v"
    )


def test_options_of_check_are_not_lost_before_a_command(capfd):
    assert guarded(["check", "--hosts", "h1,h2", "job"]) == 2
    assert "--hosts stands before job, which does not read it" in capfd.readouterr().err


@pytest.mark.parametrize("number", ["\u00b2", "\u0663", "1e3", "-1", "9" * 40, ""])
def test_any_number_is_understood(number):
    words = [
        "mpirun",
        "-n",
        number,
        "-H",
        f"h1:{number},h2",
        "-x",
        f"CUDA_VISIBLE_DEVICES={number}",
        "./all_reduce_perf",
        "-b",
        number,
    ]
    (line,) = lint.report(words, "", None).lines
    assert not [
        finding.message for finding in line.findings if "did not understand" in finding.message
    ]
