"""A tuning by NCCL's own variables, on ranks of the sim engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.result import Cell, EngineLibrary, Result, ResultRow
from busbw.core.sweep import Sampling, SweepSpec
from busbw.engines.sim_parameters import parse_parameters
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.target import LaunchTarget
from busbw.tune.env_tuner import VariablesTuner, _ratios, candidates
from busbw.tune.jobs import Jobs
from busbw.tune.types import TunedSystem, TuneJob, Tuning

SPEC = SweepSpec(
    collective="broadcast",
    min_bytes=1024,
    max_bytes=4096,
    step_factor=4,
    check=0,
    sampling=Sampling(max_time_s=60),
)
LARGE = {"min_bytes": 1 << 16, "max_bytes": 1 << 18}
LL128, SIMPLE = (
    {"NCCL_ALGO": "broadcast:Ring", "NCCL_PROTO": f"broadcast:{protocol}"}
    for protocol in ("LL128", "Simple")
)


@dataclass(slots=True)
class Later(Jobs):
    """Sweeps with variables differ from the first check on, which is the eighth: they run with
    `later` in place of NCCL's parameters.
    """

    later: str = ""
    spoiled: tuple[dict[str, str], ...] = ()
    variable_sweeps: int = field(default=0)

    def sweep(self, variables: Mapping[str, str], table: str = "") -> Result:
        self.variable_sweeps += bool(variables)
        if self.variable_sweeps <= 7 or variables not in self.spoiled:
            return Jobs.sweep(self, variables, table)
        job, self.job = (
            self.job,
            msgspec.structs.replace(self.job, simulation=parse_parameters(self.later)),
        )
        try:
            return Jobs.sweep(self, variables, table)
        finally:
            self.job = job


def tuned(
    simulation: str, *, later: str = "", spoiled: tuple[dict[str, str], ...] = (), **fields: object
) -> tuple[Tuning, list[str]]:
    spec = msgspec.structs.replace(SPEC, **fields)
    job, messages = (
        TuneJob(sweep=spec, engine="sim", simulation=parse_parameters(simulation)),
        list[str](),
    )
    jobs = Later(job, LaunchTarget(ranks=4), Sink(RunRecord()), later=later, spoiled=spoiled)
    return VariablesTuner(jobs, 4, messages.append).tune(), messages


def checks(messages: list[str]) -> list[str]:
    return [text.removeprefix("checking ") for text in messages if text.startswith("checking")]


def test_the_variables_that_help_most_are_checked_and_kept() -> None:
    tuning, messages = tuned("channels=4", **LARGE)
    assert (tuning.variables, tuning.dropped) == ({"NCCL_MIN_NCHANNELS": "16"}, {})
    assert (
        messages[0]
        == "7 candidates, each in a run between two of NCCL's choice; then 16 runs at most"
    )
    (message,) = (text for text in messages if text.startswith("NCCL_MAX_NCHANNELS=4: "))
    assert float(message.split()[1]) == pytest.approx(1, abs=0.02), "four is NCCL's choice"
    (line,) = (text for text in messages if text.startswith("NCCL_MIN_NCHANNELS=8"))
    mean, worst = (float(line.split()[at]) for at in (1, -1))
    assert mean < worst < 1
    assert checks(messages) == ["NCCL_MIN_NCHANNELS=16 with new ranks: 8 runs"]
    for size in tuning.sizes:
        assert size.gain is not None and size.check == size.gain and size.gain.ratio < 0.9
        assert (size.own, size.own_s, size.candidates) == (None, size.gain.default_s, 0)


def test_where_nothing_helps_the_times_are_those_of_nccls_choice() -> None:
    tuning, messages = tuned("")
    assert (tuning.variables, checks(messages), len(messages)) == ({}, [], 8)
    assert [(size.size_bytes, size.gain, 7e-6 < size.own_s < 9e-6) for size in tuning.sizes] == [
        (1024, None, True),
        (4096, None, True),
    ]


def test_candidates_that_fail_are_dropped() -> None:
    tuning, messages = tuned("ll=3,dies_algo=0", collective="all_reduce")
    assert tuning.variables == {"NCCL_ALGO": "allreduce:Ring", "NCCL_PROTO": "allreduce:LL128"}
    trees = [
        f"NCCL_ALGO=allreduce:Tree NCCL_PROTO=allreduce:{protocol}"
        for protocol in ("LL", "LL128", "Simple")
    ]
    assert [tuning.dropped[tree].partition(" in ")[0] for tree in trees] == ["rank 1 ended"] * 3
    dropped = [f"{tree} failed and is dropped: {tuning.dropped[tree]}" for tree in trees]
    assert [text for text in messages if "=allreduce:Tree " in text] == dropped


@pytest.mark.parametrize("later", ["ll=9,gbps=1,alpha_us=90", "ll=3,gbps=10,alpha_us=24"])
def test_the_second_best_is_checked_if_the_best_fails(later: str) -> None:
    tuning, messages = tuned("ll=3", later=later, spoiled=(SIMPLE,))
    assert tuning.variables == LL128
    assert [text.split()[1] for text in checks(messages)] == [
        "NCCL_PROTO=broadcast:Simple",
        "NCCL_PROTO=broadcast:LL128",
    ]


def test_no_third_one_is_checked() -> None:
    all_settings = tuple(candidates("broadcast", 0))
    tuning, messages = tuned(
        "ll=3,channels=4", later="ll=9,gbps=1,alpha_us=90", spoiled=all_settings, **LARGE
    )
    better = [
        text
        for text in messages
        if " of the time" in text and float(text.split(": ")[1].split()[0]) < 0.98
    ]
    assert (len(better) > 2, len(checks(messages)), tuning.variables) == (True, 2, {})


def test_a_wrong_request_ends_the_tuning() -> None:
    class Refusing(Later):
        def sweep(self, variables: Mapping[str, str], table: str = "") -> Result:
            if variables:
                raise UsageError("no such engine", "name another")
            return Later.sweep(self, variables, table)

    jobs = Refusing(TuneJob(sweep=SPEC, engine="sim"), LaunchTarget(ranks=4), Sink(RunRecord()))
    with pytest.raises(UsageError, match="no such engine"):
        VariablesTuner(jobs, 4, lambda _: None).tune()


def test_an_engine_without_nccl_has_no_variables() -> None:
    class Own(Later):
        def own(self) -> Result:
            return Result(SPEC, library=EngineLibrary("mpi", 0))

    jobs = Own(
        TuneJob(sweep=SPEC),
        LaunchTarget(),
        Sink(RunRecord()),
        system=TunedSystem(device="CPU", ranks=2, hosts=1, nccl=0),
    )
    with pytest.raises(NoMeasurement, match="the mpi engine does not use NCCL"):
        VariablesTuner(jobs, 4, lambda _: None).tune()


@pytest.mark.parametrize(
    ("nccl", "prefix"), [(0, "broadcast:"), (1, ""), (22399, ""), (22400, "broadcast:")]
)
def test_the_collective_is_named_where_nccl_can_read_that(nccl: int, prefix: str) -> None:
    first, *_, last = candidates("broadcast", nccl)
    assert (first, last) == (
        {"NCCL_ALGO": f"{prefix}Ring", "NCCL_PROTO": f"{prefix}LL"},
        {"NCCL_MAX_NCHANNELS": "4"},
    )


def timed(**times: float) -> Result:
    rows = [
        ResultRow(int(size[1:]), 2, "float", "sum", -1, Cell(time_s, 1.0, 1.0), None, 1)
        for size, time_s in times.items()
    ]
    return Result(SPEC, rows=rows)


def test_ratios_are_to_the_mean_of_the_runs_before_and_after() -> None:
    assert _ratios(timed(_8=1.0, _16=1.0), timed(_8=2.0, _16=3.0), timed(_8=3.0, _16=5.0)) == [
        1.0,
        1.0,
    ]
    before, after = timed(_8=1.0, _16=4.0), timed(_16=4.0, _32=1.0)
    assert _ratios(before, timed(_8=2.0, _16=2.0, _32=2.0), after) == [0.5]
    assert _ratios(before, timed(_64=2.0), after) == [1.0]
