"""The findings of a collective beside a load."""

from busbw.core.finding import RunFinding, Verdict
from busbw.overlap.types import OverlapResult

DATA = "overlap_data"
# of the reference page: verdict and meaning
OVERLAP_FINDINGS = {
    DATA: (Verdict.FAIL, "of `busbw overlap`: the collective gave wrong data beside the load")
}


def findings(result: OverlapResult) -> list[RunFinding]:
    """Wrong data."""
    if not result.is_wrong:
        return []
    return [RunFinding(DATA, Verdict.FAIL, "the collective gave wrong data beside the load")]
