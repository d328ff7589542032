"""The compat face: called as `all_reduce_perf` (a link that `busbw compat` made), busbw behaves as that binary of nccl-tests.

Deviations, each on purpose: `-b 0` and steps that would never end are refused; `-r all` works; every GPU stands in JSON's devices;
JSON's environment keeps all names but masks values that do not concern communication.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from busbw.cli.getopt import BadArguments, parse, usage
from busbw.cli.output import Output, stop_writing, talk
from busbw.cli.session import RankFailed, TooFewGpus, Where, run_job
from busbw.core.collectives import BY_NAME
from busbw.core.dtypes import BY_NAME as DTYPES
from busbw.core.errors import BusbwError, UsageError
from busbw.core.exits import Exit, NcclTestsExit
from busbw.core.redops import BY_NAME as REDOPS
from busbw.core.result import Result
from busbw.core.sweep import SweepSpec, check_spec
from busbw.launch import environment
from busbw.measure.job import Job
from busbw.measure.record import Record
from busbw.views import nccl_tests_json
from busbw.views.registry import view

DEFAULT_CTAS = 16
SYMMETRIC = 2


def perf(program: str, words: Sequence[str]) -> int:
    """Run one nccl-tests binary; returns its exit code."""
    try:
        return _perf(program, words)
    except BadArguments as error:
        talk(error.message)
        return int(NcclTestsExit.BAD_ARGUMENTS)
    except BusbwError as error:
        return _failed(error)
    except BrokenPipeError:
        return stop_writing()


def _perf(program: str, words: Sequence[str]) -> int:
    name = Path(program).name
    collective = name.removesuffix("_mpi").removesuffix("_perf")
    if collective not in BY_NAME:
        raise BadArguments(f"{name}: busbw knows no such test", f"link one of {', '.join(f'{known}_perf' for known in BY_NAME)}")
    parsed = parse(words)
    if parsed.help:
        if parsed.message:
            talk(f"{program}: {parsed.message}")
            sys.stdout.write("invalid option '?'\n")
        sys.stdout.write(usage(program))
        return int(NcclTestsExit.OK)
    spec, notes = softened(msgspec.convert({**parsed.fields, "collective": collective}, SweepSpec))
    _refuse(spec)
    for note in notes:
        sys.stdout.write(note + "\n")
    sys.stdout.flush()
    spec, file = _output_file(spec)
    record = Record(spec, None)
    output = Output(record, view("nccl-tests"))
    job = Job(sweep=spec, engine="", program=name, argv=[program, *words], compat=True)
    try:
        code = run_job(job, Where(engine=os.environ.get("BUSBW_ENGINE", "auto")), output)
    finally:
        if file is not None and record.started:
            file.write_text(nccl_tests_json.render(record.result), encoding="utf-8")
    if code == Exit.INTERRUPTED:
        return code
    return int(NcclTestsExit.WRONG_DATA if code or _below_minimum(record.result) else NcclTestsExit.OK)


def softened(spec: SweepSpec) -> tuple[SweepSpec, list[str]]:
    """nccl-tests' soft fall-backs: a value that cannot be meant is replaced and the message printed."""
    notes, change = [], {}
    if spec.datatype.lower() not in (*DTYPES, "all"):
        notes.append(f"invalid type {spec.datatype}, defaulting to float .. ")
        change["datatype"] = "float"
    if spec.op.lower() not in (*REDOPS, "all"):
        notes.append(f"invalid op {spec.op}, defaulting to sum .. ")
        change["op"] = "sum"
    return msgspec.structs.replace(spec, **change, **_in_range(spec)), notes


def _in_range(spec: SweepSpec) -> dict[str, int]:
    change: dict[str, int] = {}
    if not 1 <= spec.device_cta_count <= 128:
        change["device_cta_count"] = DEFAULT_CTAS
    per_iteration = spec.per_iter_timing if spec.per_iter_timing in (0, 1) and not spec.cudagraph else 0
    if per_iteration != spec.per_iter_timing:
        change["per_iter_timing"] = per_iteration
    if spec.blocking == 3 and spec.cudagraph:
        change["blocking"] = 0
    if not (per_iteration and 0 <= spec.per_iter_skip <= spec.iters - 1) and spec.per_iter_skip:
        change["per_iter_skip"] = 0
    return change


def _refuse(spec: SweepSpec) -> None:
    if spec.min_bytes > spec.max_bytes:
        raise BadArguments(f"invalid sizes for 'minbytes' and 'maxbytes': {spec.min_bytes} > {spec.max_bytes}")
    try:
        check_spec(spec)
    except UsageError as error:
        raise BadArguments(error.message, error.hint) from error
    if spec.device_implementation > 0:
        if spec.local_register != SYMMETRIC:
            raise BadArguments("device implementation (-D > 0) requires enabling symmetric memory registration (-R 2)")
        raise UsageError(
            f"-D {spec.device_implementation}: kernels that use NCCL's device API (LSA, multimem, GIN) are compiled C++; busbw has none",
            "leave out -D, or use NVIDIA's nccl-tests for this one",
        )


def _output_file(spec: SweepSpec) -> tuple[SweepSpec, Path | None]:
    """-J's file, on the process that writes it; numbered where it exists already."""
    member = environment.detect(os.environ)
    if not spec.output_file or (member and member.rank):
        return spec, None
    file = nccl_tests_json.output_path(spec.output_file)
    if file is None:
        return spec, None
    if not os.access(file.parent or Path(), os.W_OK):
        sys.stdout.write(f"# skipping json output; {spec.output_file} not accessible\n")
        return msgspec.structs.replace(spec, output_file=""), None
    return msgspec.structs.replace(spec, output_file=str(file)), file


def _below_minimum(result: Result) -> bool:
    """Whether the average is below 0.9 times NCCL_TESTS_MIN_BW (garbage there counts as 0)."""
    try:
        least = float(os.environ.get("NCCL_TESTS_MIN_BW", "0"))
    except ValueError:
        return False
    return bool(result.rows) and result.average_busbw() < 0.9 * least * 1e9


def _failed(error: BusbwError) -> int:
    """nccl-tests' exit codes for what went wrong."""
    talk(error.render())
    if isinstance(error, TooFewGpus):
        return int(NcclTestsExit.NOT_IMPLEMENTED)
    codes = {Exit.USAGE: NcclTestsExit.NOT_IMPLEMENTED, Exit.BUG: NcclTestsExit.INTERNAL, Exit.BAD: NcclTestsExit.WRONG_DATA}
    code = NcclTestsExit.NCCL if isinstance(error, RankFailed) else NcclTestsExit.INTERNAL
    return int(codes.get(error.exit, code))
