"""The timed loop of busbw-native calls NCCL and CUDA exactly as Python's does, and a sweep says
which of them it used, and what NCCL ran.

The nccl engine runs with the real bindings of NCCL and CUDA on fake libraries, which note calls.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busbw.core.collectives import COLLECTIVES
from busbw.core.version import __version__

HERE = Path(__file__).parent
VERSION = 'const char *busbw_version(void) {{ return "{}"; }}'
LOOP = "void busbw_loop_open(void) {} void busbw_loop_run(void) {} void busbw_loop_close(void) {}"
STEPS = "unsigned long busbw_loop_step_bytes(void) { return 80; }"
SAMPLING = {"sampling": {"fixed": 4, "precision": 0.1}}


def compile_library(source: Path, target: Path, *options: str) -> Path:
    flags = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
    soname = f"-Wl,-soname,{target.name}"
    subprocess.run(["gcc", *flags, soname, "-o", target, source, *options], check=True)
    return target


def plugins(folder: Path) -> dict[str, Path]:
    """Libraries that do not fit: of another version, of other builds of this one, and none."""
    own = VERSION.format(__version__)
    sources = {"other": VERSION.format("0.0.1"), "no loop": own, "large steps": own + LOOP + STEPS}
    paths = {"garbage": folder / "garbage.so", "missing": folder / "missing.so"}
    paths["garbage"].write_bytes(b"no library")
    for name, source in sources.items():
        (folder / f"{name}.c").write_text(source)
        flags = ["gcc", "-shared", "-fPIC", "-o", folder / f"{name}.so", folder / f"{name}.c"]
        subprocess.run(flags, check=True)
        paths[name] = folder / f"{name}.so"
    return paths


@pytest.fixture(scope="module")
def answers(
    plugin_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What loop_calls.py prints: the calls of both loops, and the outcomes of sweeps."""
    pytest.importorskip("nccl.bindings", reason="no nccl4py: pip install 'busbw[cuda13]'")
    pytest.importorskip("cuda.bindings", reason="no cuda-bindings: pip install 'busbw[cuda13]'")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: make test-tools")
    folder = tmp_path_factory.mktemp("fakes")
    compile_library(HERE / "fake_cuda.c", folder / "libcuda.so.1", "-ldl")
    link = (f"-L{folder}", "-l:libcuda.so.1")
    compile_library(HERE / "fake_nccl.c", folder / "libnccl.so.2", *link)
    here = {"BUSBW_PLUGIN": str(plugin_library), "BUSBW_LOOP": "", "NCCL_PROFILER_PLUGIN": ""}
    sweeps = {
        "native": ({}, here),
        "python": ({}, here | {"BUSBW_LOOP": "python"}),
        "precise": (SAMPLING, here),
        "precise in python": (SAMPLING, here | {"BUSBW_LOOP": "python"}),
        "waits": ({"blocking": 2}, here),
        "waits, native": ({"blocking": 2}, here | {"BUSBW_LOOP": "native"}),
        "unknown": ({}, here | {"BUSBW_LOOP": "rust"}),
    }
    for name, path in plugins(folder).items():
        sweeps[name] = ({}, here | {"BUSBW_PLUGIN": str(path)})
    sweeps["sends"] = ({"collective": "sendrecv"}, here)
    sweeps["no data"] = ({"min_bytes": 2, "max_bytes": 4}, here)
    sweeps["user's profiler"] = ({}, here | {"NCCL_PROFILER_PLUGIN": "none"})
    sweeps["missing, native"] = ({}, sweeps["missing"][1] | {"BUSBW_LOOP": "native"})
    for way in ("fails", "hangs"):
        sweeps[f"asked, {way}"] = ({"timeout": 1}, here | {"FAKE_ASKED": way})
    sweeps["symmetric"] = ({}, here | {"FAKE_SYMMETRIC": "1"})
    sweeps["symmetric, own log"] = (
        {},
        here
        | {"FAKE_SYMMETRIC": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "log")},
    )
    sweeps["no profiler"] = ({}, here | {"FAKE_NO_PROFILER": "1"})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    program = [sys.executable, HERE / "loop_calls.py", folder, json.dumps(sweeps)]
    run = subprocess.run(
        program, capture_output=True, text=True, timeout=120, env=clean | here, check=False
    )
    assert run.returncode == 0, run.stderr
    calls, outcomes = json.loads(run.stdout)
    return calls, outcomes


def test_both_loops_make_the_same_calls(answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    calls, _ = answers
    for row in COLLECTIVES:
        assert sum(case.startswith(f"{row.name}, ") for case in calls) >= 8
    for case, loops in calls.items():
        assert loops["native"] == loops["python"] != [], case


def test_what_a_loop_calls(answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    def names(case: str) -> list[str]:
        return [call.partition("(")[0] for call in answers[0][case]["native"]]

    first = ["ncclAllReduce", "cuStreamQuery"]
    assert names("all_reduce, 1 GPUs, out of place, classic") == [
        *first,
        *["ncclAllReduce"] * 5,
        "cuStreamQuery",
    ]
    assert names("all_reduce, check timed, classic") == ["ncclAllReduce"] * 7 + ["cuStreamQuery"]
    marked = names("all_reduce, marked, classic")
    assert [name for name in marked if name != "cuCtxSetCurrent"] == [
        *first,
        *["cuEventRecord", "ncclAllReduce"] * 4,
        "cuEventRecord",
        "cuStreamQuery",
    ]
    assert names("mulsum, 1 GPUs, classic")[-4:-1] == [
        "ncclRedOpCreatePreMulSum",
        "ncclReduce",
        "ncclRedOpDestroy",
    ]
    groups = names("sendrecv, aggregated, classic").count("ncclGroupStart")
    assert groups == 1 + 7 * 3, "each iteration is a group of two"
    failed = answers[0]["failure of call 2, classic"]["native"]
    assert "CudaFailed" in failed[-1] and failed[-2] == "ncclGroupEnd()"


def test_both_loops_give_the_same_rows(answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, sweeps = answers
    for native, python in (("native", "python"), ("precise", "precise in python")):
        assert sweeps[native] == sweeps[python] | {"loop": "native"}
        assert sweeps[python]["loop"] == "python"
        assert [row[0] for row in sweeps[native]["rows"]] == [8, 16, 32, 64]
        assert sweeps[native]["notes"] == []


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("other", f"busbw-native is 0.0.1, and busbw is {__version__} on "),
        ("no loop", f"native {__version__} is of another build: "),
        ("large steps", "is of another build: its steps have 80 bytes, not 64 on "),
        ("garbage", "busbw-native cannot be loaded: "),
        ("missing", "missing.so: no such file on "),
    ],
)
def test_a_library_that_does_not_fit_is_named_once_and_python_calls_nccl(
    answers: tuple[dict[str, Any], dict[str, Any]], case: str, reason: str
) -> None:
    outcome = answers[1][case]
    (note,) = outcome["notes"]
    assert note.startswith("note: NCCL is called from Python") and reason in note
    assert outcome["loop"] == "python" and len(outcome["rows"]) == 4


def test_a_choice_that_cannot_be_met_is_refused(
    answers: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    _, sweeps = answers
    assert sweeps["waits"]["loop"] == "python" and sweeps["waits"]["notes"] == []
    assert sweeps["waits, native"]["error"] == [
        "BUSBW_LOOP=native: -z and -G need Python's loop",
        "unset BUSBW_LOOP, or leave them out",
    ]
    assert sweeps["unknown"]["error"][0] == "BUSBW_LOOP=rust: not a loop"
    assert sweeps["missing, native"]["error"][0].startswith("BUSBW_LOOP=native: BUSBW_PLUGIN=")


@pytest.mark.parametrize("case", ["native", "python", "precise", "precise in python"])
def test_rows_state_what_nccl_ran_of_one_more_operation_each(
    answers: tuple[dict[str, Any], dict[str, Any]], case: str
) -> None:
    outcome = answers[1][case]
    small, large = ["Tree LL, 2 channels", "None"], ["NEW Simple, 24 channels", "None"]
    assert outcome["ran"] == [small, small, large, large]
    assert outcome["ran_unknown"] == ""
    assert outcome["reported"] == 4 * 2, "one operation for each row and placement, no timed one"


def test_how_ranks_are_connected_is_in_the_log_of_the_first_operation(
    answers: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    outcome = answers[1]["native"]
    (connection,) = outcome["connections"]
    assert [connection[name] for name in ("sender", "receiver", "transport")] == [
        0,
        1,
        "SHM/direct",
    ]
    assert outcome["left"] == []


def test_the_log_names_a_symmetric_kernel_of_one_further_operation(
    answers: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    outcome, own_log = answers[1]["symmetric"], answers[1]["symmetric, own log"]
    named = ["Symmetric AllReduce_AGxLL_R, 3 channels", "None"]
    assert outcome["ran"] == [named] * 4 and outcome["ran_unknown"] == ""
    assert outcome["chosen"] == 4 * 2, "a line for each row and placement, none for a timed call"
    assert len(outcome["connections"]) == 1, "what the log had before is kept"
    assert outcome["left"] == []
    assert own_log["ran"] == [["Symmetric", "None"]] * 4, "a log of the user's is left alone"
    assert own_log["chosen"] == 0


def test_nothing_is_asked_about_operations_without_data(
    answers: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    outcome = answers[1]["no data"]
    assert "rows" in outcome, outcome
    assert [row[:2] for row in outcome["rows"]] == [[0, 0], [4, 1]]
    assert outcome["ran"][0] == ["None", "None"]
    assert (outcome["reported"], outcome["ran_unknown"]) == (2, "")


def test_sends_have_no_algorithm(answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert {row[0] for row in answers[1]["sends"]["ran"]} == {"SendRecv, 2 channels"}


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("user's profiler", "NCCL_PROFILER_PLUGIN=none is set on "),
        ("no profiler", "NCCL has not loaded the profiler plugin on "),
        ("other", f"busbw-native is 0.0.1, and busbw is {__version__} on "),
        ("garbage", "busbw-native cannot be loaded: "),
        ("missing", "missing.so: no such file on "),
    ],
)
def test_a_run_without_the_profiler_goes_on_and_says_why(
    answers: tuple[dict[str, Any], dict[str, Any]], case: str, reason: str
) -> None:
    outcome = answers[1][case]
    assert reason in outcome["ran_unknown"]
    assert outcome["ran"] == [["None", "None"]] * 4 and outcome["reported"] == 0
    assert len(outcome["connections"]) == 1, "the log is read all the same"


def test_a_run_whose_operation_fails_or_hangs_while_nccl_is_asked_ends_with_the_error(
    answers: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    _, sweeps = answers
    assert "fake failure" in sweeps["asked, fails"]["error"][0]
    message, hint = sweeps["asked, hangs"]["error"]
    assert message.endswith(": the GPU did not finish within 1 s") and "-T sets the limit" in hint
