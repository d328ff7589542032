"""The results of all kinds of runs, by the schema of their files."""

from busbw.core.result import Result
from busbw.pattern.replay.kind import ReplayResult
from busbw.train.kinds import PlanResult, TrainResult

AnyResult = Result | TrainResult | PlanResult | ReplayResult
SCHEMAS = {
    "busbw.result/1": Result,
    "busbw.training/1": TrainResult,
    "busbw.plan/1": PlanResult,
    "busbw.replay/1": ReplayResult,
}
