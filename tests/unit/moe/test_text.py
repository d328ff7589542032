"""The text of a result, and its findings."""

import moe_results
import msgspec
import pytest

from busbw.core import json_codec
from busbw.core.finding import Verdict
from busbw.core.topology import Topology
from busbw.model.findings import findings
from busbw.moe.findings import MOE_FINDINGS
from busbw.moe.text import render_all
from busbw.moe.types import MoeResult
from busbw.report import results


def judged(result: MoeResult) -> MoeResult:
    result.findings = findings(result, Topology(hosts=[]))
    return result


def test_text_fits_a_terminal(golden) -> None:
    result = judged(moe_results.result(imbalance=1.62))
    result.rows[3].wrong, result.rows[3].mismatches = 12, [moe_results.WRONG]
    text = render_all(judged(result), 80)
    assert max(map(len, text.splitlines())) <= 80
    golden("moe.txt", text)


def test_a_routing_from_a_file_has_no_seed() -> None:
    result = moe_results.result()
    assert "routing uniform, seed 1" in render_all(result)
    result.moe = msgspec.structs.replace(result.moe, routing="file:ids.csv")
    assert "routing file:ids.csv\n" in render_all(result)


def test_wide_text_has_every_column() -> None:
    text = render_all(moe_results.result(), None)
    heading = next(line for line in text.splitlines() if line.startswith("tokens"))
    titles = "tokens time +-% pack exchange unpack wire recv sel imb bound wrong"
    assert heading.split() == titles.split()
    assert "no bound" not in text


@pytest.mark.parametrize("width", [60, 72, 80, None])
def test_the_legend_names_what_is_shown(width: int | None) -> None:
    result = moe_results.result()
    result.rows[0].whole.stopped = "budget"
    text = render_all(result, width)
    lines = text.splitlines()
    titles = {title for line in lines if line.startswith("tokens") for title in line.split()}
    for title in ("sel", "imb", "wire"):
        assert (title in titles) == any(line.startswith(f"{title}: ") for line in lines)
    assert ("+-%" in titles) == ("see +-%" in text)
    assert width is not None or "+-%" in titles


def test_reason_for_no_bound_is_said() -> None:
    result = moe_results.result(bound_s=None, bound="")
    result.no_bound = "the ranks run on CPUs"
    text = render_all(result)
    assert "  bound" not in text
    assert "no bound: the ranks run on CPUs\n" in text


def test_imprecise_times_are_counted() -> None:
    result = moe_results.result()
    assert "less precise" not in render_all(result)
    result.rows[0].whole.stopped = "budget"
    assert "1 of 4 times less precise than wanted, see +-%: give more" in render_all(result)


def test_good_run_has_no_finding() -> None:
    assert judged(moe_results.result()).findings == []


def test_wrong_data_fails_with_its_place() -> None:
    result = moe_results.result()
    result.rows[1].wrong, result.rows[1].mismatches = 12, [moe_results.WRONG]
    (found,) = judged(result).findings
    assert (found.id, found.verdict) == ("moe_data", Verdict.FAIL)
    assert found.message == "12 elements wrong, first in combine of 2048 tokens by alltoallv"
    assert found.evidence == "rank 3, element 7168: nan instead of 1.5"
    assert result.wrong()


def test_phase_that_takes_over_half_is_named() -> None:
    result = moe_results.result()
    result.rows[2] = moe_results.row(4096, "dispatch", (0.3, 0.1, 0.6))
    (found,) = judged(result).findings
    assert (found.id, found.verdict) == ("moe_phase", Verdict.WARN)
    assert found.message == "unpack takes 60 % of dispatch by alltoallv at 4096 tokens"
    assert found.fix == "let the kernels of the experts read and write rows where they are"


@pytest.mark.parametrize(
    ("direction", "local_s", "fix"),
    [
        ("dispatch", (0.6, 0.1, 0.1), "use kernels that pack while they send"),
        ("combine", (0.6, 0.1, 0.1), "let the kernels of the experts read and write"),
        ("combine", (0.1, 0.1, 0.6), "use kernels that reduce while they send"),
    ],
)
def test_deepep_is_named_for_the_phases_that_it_lacks(
    direction: str, local_s: tuple[float, float, float], fix: str
) -> None:
    result = moe_results.result()
    result.rows = [moe_results.row(4096, direction, local_s)]
    (found,) = judged(result).findings
    assert found.fix.startswith(fix)


def test_one_rank_is_not_judged_by_phases() -> None:
    result = moe_results.result(imbalance=2.0)
    result.rows[2] = moe_results.row(4096, "dispatch", (4.17, 0.1, 0.6))
    del result.world.devices[1:]
    (found,) = judged(result).findings
    assert (found.id, found.verdict) == ("one_rank", Verdict.SKIP)
    assert "no data crosses a link" in render_all(result)


def test_imbalance_is_a_warning_above_one_and_a_half() -> None:
    assert not judged(moe_results.result(imbalance=1.5)).findings
    (found,) = judged(moe_results.result(imbalance=1.51)).findings
    assert found.id == "moe_imbalance"
    assert "1.51 times the mean" in found.message


def test_every_finding_is_in_the_reference() -> None:
    result = judged(moe_results.result(imbalance=2.0))
    result.rows[0] = moe_results.row(8192, "dispatch", (0.6, 0.1, 0.3), wrong=1)
    found = judged(result).findings
    assert {(one.id, one.verdict) for one in found} == {
        (name, verdict) for name, (verdict, _) in MOE_FINDINGS.items()
    }


def test_file_of_a_result_is_read_back() -> None:
    result = judged(moe_results.result())
    data = json_codec.encode(result)
    assert msgspec.json.decode(data)["schema"] == "busbw.moe/1"
    again = results.read(data)
    assert isinstance(again, MoeResult)
    assert again.records() == result.records()
    assert again.records()[0]["wire"] == pytest.approx(50e9)
    assert results.kind_of(again).table(again, 80, False) == render_all(result, 80)
    assert list(results.kind_of(again).parts(again))
