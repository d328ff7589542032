"""The nccl-tests frontend: called as `all_reduce_perf`, by a command that `busbw compat` wrote,
busbw behaves like that binary.

The command line follows the rules of nccl-tests: options come in any order, also as `-b8` and
`--minb 8`; the last wins, and other arguments are ignored. Errors name options in nccl-tests' own
words.

Intended differences: `-b 0` and endless steps are rejected; `-r all` works; the JSON lists every
GPU under devices, and masks the values of environment variables that do not concern communication.
"""

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from busbw.cli.compat_errors import reword, text_of
from busbw.cli.getopt import BadArguments, parse, usage
from busbw.cli.output import SweepOutput, exit_code
from busbw.cli.streams import ReaderGone, bug, print_err, print_out, stop_writing
from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import DTYPES
from busbw.core.errors import BusbwError, Exit, NcclTestsExit, UsageError
from busbw.core.redops import REDOPS
from busbw.core.result import Outcome, Result
from busbw.core.sweep import SweepSpec, check_spec
from busbw.engines.registry import AUTO
from busbw.launch import environment
from busbw.measure.formats import nccl_tests_json
from busbw.measure.job import SweepJob
from busbw.measure.rank_failure import RankFailed
from busbw.measure.record import OWNER_ONLY, RunRecord
from busbw.measure.sink import Frontend
from busbw.measure.start import run
from busbw.measure.target import LaunchTarget
from busbw.report.registry import view
from busbw.ui.number_formats import minimum_gb_s

DEFAULT_CTAS, MAX_CTAS = 16, 128
BARRIER_OUTSIDE = 3
SYMMETRIC = 2
LAUNCH_LIMIT_S = 120.0  # until all ranks have joined


class NotSupported(UsageError):
    """A feature of nccl-tests that busbw lacks."""


def perf(program: str, args: Sequence[str]) -> int:
    """Behave like one nccl-tests binary; returns its exit code."""
    try:
        return _perf(program, args)
    except BadArguments as error:
        print_err(error.message)
        return int(NcclTestsExit.BAD_ARGUMENTS)
    except BusbwError as error:
        return _failed(error)
    except ReaderGone:
        stop_writing()
        return int(NcclTestsExit.OK)
    except Exception as error:  # noqa: BLE001 - any other exception is a bug
        bug(error)
        return int(NcclTestsExit.INTERNAL)


def _perf(program: str, args: Sequence[str]) -> int:
    name = Path(program).name
    collective = name.removesuffix("_mpi").removesuffix("_perf")
    if collective not in BY_NAME:
        commands = ", ".join(f"{known}_perf" for known in BY_NAME)
        raise BadArguments(f"{name}: unknown test", f"link one of {commands}")
    parsed = parse(args)
    if parsed.help:
        if parsed.message:
            print_err(f"{program}: {parsed.message}")
            print_out("invalid option '?'\n")
        print_out(usage(program))
        return int(NcclTestsExit.OK)
    spec, notes = replace_invalid_values(
        msgspec.convert({**parsed.fields, "collective": collective}, SweepSpec)
    )
    _refuse(spec)
    print_out("".join(note + "\n" for note in notes))
    spec, file = output_file(spec)
    record = RunRecord(file, lambda result: nccl_tests_json.render(result).encode())
    engine = os.environ.get("BUSBW_ENGINE", AUTO)
    job = SweepJob(
        sweep=spec,
        engine=engine,
        program=name,
        argv=[program, *args],
        compat=True,
        launch_limit_s=LAUNCH_LIMIT_S,
    )
    output = SweepOutput(record, view("nccl-tests"), COMPAT, save_unasked=False)
    try:
        code = exit_code(run(job, LaunchTarget(), output))
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    finally:
        if file is not None and record.result is None:
            file.unlink(missing_ok=True)  # nothing was measured
    if code or _below_minimum(record.result):
        return int(NcclTestsExit.WRONG_DATA)
    return int(NcclTestsExit.OK)


def replace_invalid_values(spec: SweepSpec) -> tuple[SweepSpec, list[str]]:
    """The spec with invalid values replaced as nccl-tests does, and the messages to print."""
    notes: list[str] = []
    change: dict[str, Any] = {}

    def replace(field: str, value: Any, note: str) -> None:
        change[field] = value
        notes.append(note)

    if spec.datatype not in {row.name for row in DTYPES} | {"all"}:
        replace("datatype", "float", f"invalid type {spec.datatype}, defaulting to float .. ")
    if spec.op not in {row.name for row in REDOPS} | {"all"}:
        replace("op", "sum", f"invalid op {spec.op}, defaulting to sum .. ")
    if not 1 <= spec.device_cta_count <= MAX_CTAS:
        replace(
            "device_cta_count",
            DEFAULT_CTAS,
            f"invalid device CTA count {spec.device_cta_count}, using {DEFAULT_CTAS}",
        )
    per_iteration = spec.per_iter_timing
    if per_iteration not in (0, 1):
        per_iteration = 0
        replace(
            "per_iter_timing",
            0,
            f"invalid value {spec.per_iter_timing} for -I, per-iteration timing is off",
        )
    elif per_iteration and spec.cudagraph > 0:
        per_iteration = 0
        replace("per_iter_timing", 0, "-I cannot be combined with -G, per-iteration timing is off")
    if spec.blocking == BARRIER_OUTSIDE and spec.cudagraph > 0:
        replace("blocking", 0, "-z 3 cannot be combined with -G, using -z 0")
    if spec.per_iter_skip and not (per_iteration and 0 <= spec.per_iter_skip <= spec.iters - 1):
        replace(
            "per_iter_skip",
            0,
            f"-K {spec.per_iter_skip} needs -I and fewer than {spec.iters} iterations, using 0",
        )
    if spec.cudagraph < 0:
        change["cudagraph"] = 0
    return msgspec.structs.replace(spec, **change), notes


def _refuse(spec: SweepSpec) -> None:
    if spec.min_bytes > spec.max_bytes:
        raise BadArguments(
            f"invalid sizes for 'minbytes' and 'maxbytes': {spec.min_bytes} > {spec.max_bytes}"
        )
    try:
        check_spec(spec)
    except UsageError as error:
        raise BadArguments(error.message, error.hint) from error
    if spec.device_implementation > 0:
        if spec.local_register != SYMMETRIC:
            raise BadArguments(
                "device implementation (-D > 0) requires enabling symmetric memory registration"
                " (-R 2)"
            )
        raise NotSupported(
            f"-D {spec.device_implementation}: busbw has no kernels that use NCCL's device API"
            " (LSA, multimem, GIN)",
            "leave out -D, or use NVIDIA's nccl-tests for this one",
        )
    if spec.tuning:
        raise NotSupported(
            f"-U {spec.tuning}: busbw does not report which algorithm and protocol NCCL chose",
            "leave out -U; NCCL's log has them: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING",
        )


def output_file(spec: SweepSpec) -> tuple[SweepSpec, Path | None]:
    """The spec, and the file of -J. The process that writes it makes it, with a number if the name
    is taken, so that two runs never share a file.

    None for a name without .json, as in nccl-tests, and on the other processes.
    """
    member, path = environment.detect(os.environ), Path(spec.output_file)
    if not path.name.lower().endswith(".json") or (member and member.rank):
        return spec, None
    numbered = (path.with_name(f"{path.name}.{number}") for number in count())
    for file in chain([path], numbered):
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
        except FileExistsError:
            continue
        except OSError:
            break
        return msgspec.structs.replace(spec, output_file=str(file)), file
    print_out(f"# skipping json output; {spec.output_file} not accessible\n")
    return msgspec.structs.replace(spec, output_file=""), None


def _below_minimum(result: Outcome | None) -> bool:
    """Whether the average is below 0.9 times NCCL_TESTS_MIN_BW, as the text states."""
    if not isinstance(result, Result) or not result.rows:
        return False
    minimum = minimum_gb_s(result)
    return minimum is not None and result.average_busbw() < 0.9 * minimum * 1e9


KIND_EXIT = {
    "TimedOut": NcclTestsExit.TIMEOUT,
    "CudaFailed": NcclTestsExit.CUDA,
    "TooFewGpus": NcclTestsExit.NOT_IMPLEMENTED,
}


def exit_of(error: BusbwError) -> int:
    kind = error.kind if isinstance(error, RankFailed) else type(error).__name__
    if isinstance(error, NotSupported):
        return int(NcclTestsExit.NOT_IMPLEMENTED)
    if error.exit == Exit.BUG:
        return int(NcclTestsExit.INTERNAL)
    return int(KIND_EXIT.get(kind, NcclTestsExit.NCCL))


COMPAT = Frontend(exit_of, text_of)


def _failed(error: BusbwError) -> int:
    """Print the line that nccl-tests' wrappers parse, and the error on stderr; the exit code."""
    code = exit_of(error)
    kinds = {NcclTestsExit.CUDA: "CUDA failure", NcclTestsExit.TIMEOUT: "timeout"}
    kind = kinds.get(NcclTestsExit(code), "NCCL failure")
    with suppress(BusbwError, ReaderGone):
        host = platform.node().split(".")[0]
        print_out(f"{host}: Test {kind} '{reword(error.message, error.options)}'\n")
    print_err(text_of(error))
    return code
