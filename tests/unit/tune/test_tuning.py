"""What the check with new ranks decides: it is made of real runs of the sim engine, whose
parameters say what a table does to them.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from busbw.core.errors import NoMeasurement, UsageError
from busbw.core.finding import RunFinding, Verdict
from busbw.core.result import Result
from busbw.core.sweep import Sampling, SweepSpec
from busbw.core.tuner_table import TunerTable
from busbw.core.tuning import TuningChoice
from busbw.measure.api import run
from busbw.measure.record import RunRecord
from busbw.measure.sink import Sink
from busbw.measure.target import LaunchTarget
from busbw.stats.judging import Limits
from busbw.tune import table_file, validate
from busbw.tune.env_tuner import VariablesTuner
from busbw.tune.jobs import Jobs, SearchSink
from busbw.tune.text import text
from busbw.tune.tuning import TableTuner
from busbw.tune.types import Gain, Trial, Tried, Trying, TunedSize, TunedSystem, TuneJob, Tuning

SMALL, LARGE = 1024, 4096
OWN, FOUND = TuningChoice("Ring", "LL"), TuningChoice("Tree", "LL", 2)
SPEC = SweepSpec(
    collective="all_reduce",
    min_bytes=SMALL,
    max_bytes=LARGE,
    step_factor=4,
    check=0,
    sampling=Sampling(max_time_s=60),
)


def trial(size: int, share: float) -> Trial:
    """The choice takes this share of the time of NCCL's."""
    times = [1e-5 * (1 + at % 7 / 100) for at in range(64)]
    return Trial(
        size_bytes=size,
        own=OWN,
        own_s=1e-5,
        candidates=18,
        nodes=1,
        choice=FOUND,
        default_s=times,
        choice_s=[share * time_s for time_s in times],
    )


@dataclass(slots=True)
class Prepared(Jobs):
    """The search finds `share` of the time, `share_set` with variables.

    Sweeps run with the parameters `tuned` if there is a table, with `varied` if there are
    variables, else with `untuned`. With variables the search or the check can fail.
    """

    share: float = 0.8
    share_set: float = 0.8
    untuned: str = ""
    tuned: str = ""
    varied: str = ""
    fails: bool = False
    check_fails: bool = False
    findings_of_sweeps: tuple[RunFinding, ...] = ()
    searched: list[dict[str, str]] = field(default_factory=list)

    def search(self, variables: Mapping[str, str], tried: Callable[[Trial], None]) -> None:
        self.system = TunedSystem(device="GPU", ranks=4, hosts=2, nccl=22809)
        self.searched.append(dict(variables))
        if self.fails and variables:
            raise NoMeasurement("rank 1 ended")
        for size in (SMALL, LARGE):
            tried(trial(size, self.share_set if variables else self.share))

    def sweep(self, variables: Mapping[str, str], table: str = "") -> Result:
        assert not table or "about state all_reduce found, not yet checked" in table
        if self.check_fails and variables:
            raise NoMeasurement("rank 1 ended")
        simulation = self.varied if variables else self.tuned if table else self.untuned
        result = run(self.job.sweep, engine="sim", ranks=4, simulation=simulation)
        result.findings += self.findings_of_sweeps
        return result


@pytest.fixture
def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Tuning, Prepared, list[str]]]:
    """Tunes with a Prepared of these fields; returns it too, and the messages."""
    for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"):
        monkeypatch.delenv(name, raising=False)

    def start(
        *,
        try_settings: bool = False,
        spec: SweepSpec = SPEC,
        before: TunerTable | None = None,
        **fields: object,
    ) -> tuple[Tuning, Prepared, list[str]]:
        messages: list[str] = []
        jobs = Prepared(TuneJob(sweep=spec), LaunchTarget(), Sink(RunRecord()), **fields)
        tuner = TableTuner(
            jobs,
            tmp_path / "table",
            before,
            2,
            4,
            Limits(),
            try_settings,
            messages.append,
            lambda _: None,
        )
        return tuner.tune(), jobs, messages

    return start


def rules(tuning: Tuning) -> list[str]:
    """The rules of the file, without notes."""
    return [rule.line().partition("   #")[0] for rule in table_file.read(Path(tuning.file)).rules]


def test_a_size_that_is_slower_with_new_ranks_is_dropped(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    bbr = RunFinding("tcp_congestion", Verdict.WARN, "TCP's congestion control is BBR on h1")
    tuning, _, _ = tune(
        tuned=f"alpha_us=7,dip_bytes={LARGE}",
        findings_of_sweeps=(bbr, RunFinding("bandwidth", Verdict.FAIL, "slow")),
    )
    assert tuning.findings == [bbr], "of the machines, not of NCCL's choice"
    assert "\nWARN    TCP's congestion control is BBR on h1  [tcp_congestion]\n" in text(tuning, {})
    assert [size.reason for size in tuning.sizes] == ["", "slower with new ranks"]
    assert rules(tuning) == ["4 1 all_reduce 1024 2048 Tree LL 2"], (
        "for the one host that NCCL counts, not for two names"
    )


def test_a_gain_that_new_ranks_do_not_show_is_dropped(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, _, _ = tune(tuned="alpha_us=8.05")
    assert [size.reason for size in tuning.sizes] == ["no gain with new ranks"] * 2
    assert rules(tuning) == []


def test_settings_that_make_a_size_slower_are_not_used(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, jobs, messages = tune(
        try_settings=True, share_set=0.5, varied=f"alpha_us=5,dip_bytes={LARGE}", tuned="alpha_us=6"
    )
    assert jobs.searched == [{}, *validate.OTHER_NETWORKS]
    assert (
        "NCCL_MIN_NCHANNELS=16: not used, as a size is slower by over 2 % or has wrong data, or"
        " none is faster" in messages
    )
    assert tuning.variables == {}
    assert rules(tuning) == ["4 1 all_reduce 1024 4096 Tree LL 2"], (
        "what was found without them is checked and kept"
    )


def test_settings_that_help_belong_to_the_table(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, jobs, _ = tune(
        try_settings=True, share=0.999, share_set=0.5, varied="alpha_us=5", tuned="alpha_us=6"
    )
    assert (tuning.variables, rules(tuning)) == (
        {"NCCL_MIN_NCHANNELS": "16"},
        ["4 1 all_reduce 1024 4096 Tree LL 2"],
    )
    assert [
        size.gain == size.check and size.gain is not None and size.reason == ""
        for size in tuning.sizes
    ] == [True, True]
    before = table_file.read(Path(tuning.file))
    second_tuning, jobs, _ = tune(try_settings=True, before=before, varied="alpha_us=5")
    assert (jobs.searched, second_tuning.variables) == ([tuning.variables], tuning.variables), (
        "what the table has is kept"
    )
    plain, jobs, messages = tune(share=0.999)
    assert (jobs.searched, [size.reason for size in plain.sizes]) == (
        [{}],
        ["NCCL's choice is as fast"] * 2,
    )
    assert (rules(plain), plain.variables, messages) == ([], {}, []), "nothing to check"


def test_settings_must_gain_over_the_table_without_them(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, _, messages = tune(try_settings=True, share=0.8, share_set=0.8, tuned="alpha_us=6")
    assert (tuning.variables, [text for text in messages if "not used" in text]) == ({}, [])


@pytest.mark.parametrize("variables", [False, True])
def test_wrong_data_rules_out_the_chosen_candidate(
    variables: bool, tune: Callable[..., tuple[Tuning, Prepared, list[str]]]
) -> None:
    checking = msgspec.structs.replace(SPEC, check=1)
    if variables:
        jobs = Prepared(
            TuneJob(sweep=checking),
            LaunchTarget(),
            Sink(RunRecord()),
            varied="alpha_us=6,corrupt_rank=1",
        )
        jobs.system = TunedSystem(device="GPU", ranks=4, hosts=2, nccl=22809)
        tuning = VariablesTuner(jobs, 4, lambda _: None).tune()
        assert (tuning.variables, set(tuning.dropped.values())) == (
            {},
            {"wrong data with new ranks"},
        )
        return
    tuning, _, _ = tune(spec=checking, tuned="alpha_us=6,corrupt_rank=1")
    assert [size.reason for size in tuning.sizes] == ["wrong data with new ranks"] * 2
    assert rules(tuning) == []


@pytest.mark.parametrize("checked", [False, True])
def test_a_tuning_that_ends_early_keeps_checked_rules(
    checked: bool, tune: Callable[..., tuple[Tuning, Prepared, list[str]]], tmp_path: Path
) -> None:
    system = TunedSystem(device="GPU", ranks=4, hosts=2, nccl=22809)
    before = table_file.build(system, SPEC, [], {}, None, checked=checked)
    with pytest.raises(NoMeasurement, match="wrong data with NCCL's own choice"):
        tune(spec=msgspec.structs.replace(SPEC, check=1), untuned="corrupt_rank=1", before=before)
    assert (tmp_path / "table").exists() is not checked


def test_a_setting_that_fails_in_the_check_is_not_used(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, _, _ = tune(try_settings=True, share_set=0.5, tuned="alpha_us=6", check_fails=True)
    assert (tuning.variables, tuning.dropped) == ({}, {"NCCL_MIN_NCHANNELS=16": "rank 1 ended"})
    assert rules(tuning) == ["4 1 all_reduce 1024 4096 Tree LL 2"]


def test_a_setting_that_fails_is_not_used(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    tuning, jobs, messages = tune(try_settings=True, tuned="alpha_us=6", fails=True)
    assert jobs.searched == [{}, *validate.OTHER_NETWORKS]
    assert "NCCL_MIN_NCHANNELS=16 failed and is not used: rank 1 ended" in messages
    assert tuning.dropped == {
        "NCCL_MIN_NCHANNELS=16": "rank 1 ended",
        "NCCL_MIN_NCHANNELS=32": "rank 1 ended",
    }
    assert rules(tuning) == ["4 1 all_reduce 1024 4096 Tree LL 2"]


@pytest.mark.parametrize(("checked", "expected"), [(False, True), (True, False)])
def test_a_tuner_records_whether_it_has_written(
    checked: bool, expected: bool, tmp_path: Path
) -> None:
    system = TunedSystem(device="GPU", ranks=4, hosts=2, nccl=22809)
    before = table_file.build(system, SPEC, [], {}, None, checked=checked)
    jobs = Prepared(
        TuneJob(sweep=msgspec.structs.replace(SPEC, check=1)),
        LaunchTarget(),
        Sink(RunRecord()),
        untuned="corrupt_rank=1",
    )
    tuner = TableTuner(
        jobs, tmp_path / "table", before, 2, 4, Limits(), False, lambda _: None, lambda _: None
    )
    assert not tuner.written
    with pytest.raises(NoMeasurement):
        tuner.tune()
    assert tuner.written is expected


def test_a_table_has_notes_and_keeps_other_collectives(tmp_path: Path) -> None:
    system = TunedSystem(device="H200", ranks=4, hosts=2, nccl=22809)
    gain = Gain(default_s=1e-5, choice_s=8.79e-6, ratio=0.879, low=0.868, high=0.89)
    sizes = [
        TunedSize(
            size_bytes=SMALL,
            own=OWN,
            own_s=1e-5,
            candidates=9,
            nodes=1,
            choice=FOUND,
            gain=gain,
            kept=True,
        ),
        TunedSize(
            size_bytes=2048,
            own=OWN,
            own_s=1e-5,
            candidates=9,
            choice=FOUND,
            gain=msgspec.structs.replace(gain, low=None),
            kept=True,
        ),
        TunedSize(size_bytes=LARGE, own=OWN, own_s=1e-5, candidates=9, choice=FOUND, gain=gain),
    ]
    gather = msgspec.structs.replace(SPEC, collective="all_gather", step_factor=1, step_bytes=512)
    other = table_file.build(system, gather, [sizes[0]], {}, None, checked=False)
    old = table_file.build(system, SPEC, [sizes[0]], {}, other, checked=False)
    table = table_file.build(system, SPEC, sizes, {"NCCL_MIN_NCHANNELS": "8"}, old, checked=True)
    head, stamp, *lines = table.text().splitlines()
    assert (head, stamp.split()[:2]) == ("busbw-tuner-table 1", ["about", "made"])
    small = "1024 B: 12.1 % less time than NCCL's Ring LL (11.0 to 13.2)"
    assert lines == [
        "about device H200",
        "about ranks 4",
        "about hosts 2",
        "about nccl 22809",
        "about network -",
        "about variable NCCL_MIN_NCHANNELS=8",
        "about measured all_gather float sum 1024 4096 +512",
        "about measured all_reduce float sum 1024 4096 x4",
        "about state all_gather found, not yet checked with new ranks",
        "about state all_reduce checked with new ranks",
        "# ranks hosts collective first last algorithm protocol channels",
        f"4 1 all_gather 1024 1024 Tree LL 2   # {small}",
        (
            f"4 1 all_reduce 1024 2896 Tree LL 2   # {small}; 2048 B: 12.1 % less time than NCCL's"
            " Ring LL"
        ),
    ]
    before = os.umask(0o022)
    try:
        table_file.write(table, tmp_path / "table")
    finally:
        os.umask(before)
    assert (tmp_path / "table").stat().st_mode & 0o777 == 0o644, "NCCL of other users reads it"
    assert [
        (spec.collective, spec.step_factor, spec.step_bytes)
        for spec in table_file.recorded_sweeps(table, "t", SPEC)
    ] == [("all_gather", 1, 512), ("all_reduce", 4, SPEC.step_bytes)]
    with pytest.raises(UsageError) as caught:
        table_file.fixed_variables(TunerTable(about=[("variable", "NCCL_MIN_NCHANNELS=0")]), "t")
    names = "NCCL_MIN_NCHANNELS, NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD or BUSBW_NET_THREADS"
    assert caught.value.message == f"t: NCCL_MIN_NCHANNELS is not {names} with a number"


def test_each_collective_of_a_table_has_its_own_state(
    tune: Callable[..., tuple[Tuning, Prepared, list[str]]],
) -> None:
    system = TunedSystem(device="GPU", ranks=4, hosts=2, nccl=22809)
    gather = msgspec.structs.replace(SPEC, collective="all_gather")
    tuning, _, _ = tune(
        tuned="alpha_us=6", before=table_file.build(system, gather, [], {}, None, checked=False)
    )
    states = [
        "all_gather found, not yet checked with new ranks",
        "all_reduce checked with new ranks",
    ]
    assert table_file.read(Path(tuning.file)).texts_of("state") == states


def test_an_error_after_the_search_of_a_size_rules_out_no_candidate() -> None:
    trying = []
    listener = SearchSink(
        Sink(RunRecord()), lambda _: None, lambda _: trying.append(listener.trying)
    )
    listener.take(Trying(SMALL, FOUND))
    listener.take(Tried(trial(SMALL, 0.8)))
    assert trying == [None]


def test_settings_of_the_user_are_left_alone() -> None:
    assert validate.candidates("Socket", {"NCCL_MIN_CTAS": "4"}) == [
        {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}
    ]
    assert validate.candidates("Socket", {"NCCL_SOCKET_NTHREADS": "2"}) == [
        {"NCCL_MIN_NCHANNELS": "8"}
    ]


def test_differences_between_systems_are_named() -> None:
    system = TunedSystem(device="H200", ranks=4, hosts=2, nccl=22809, network="Socket")
    assert table_file.differences(system, system) == ([], [])
    patch = TunedSystem(device="H200", ranks=4, hosts=2, nccl=22803, network="Socket")
    assert table_file.differences(patch, system) == (
        [],
        ["the table is for NCCL 2.28.3, here is 2.28.9"],
    )
    other = TunedSystem(device="H100", ranks=8, hosts=1, nccl=22705, network="")
    wrong, _ = table_file.differences(other, system)
    assert wrong == [
        "GPU H100, here H200",
        "ranks 8, here 4",
        "hosts 1, here 2",
        "NCCL 2.27, here 2.28",
        "network none, here Socket",
    ]
