"""What methods lose of a gradient, by severity.

The indices stand in results: later entries were appended (train.plan_types).
"""

LEAST_FIRST = (0, 1, 2, 5, 3, 4)  # results contain the indices, so that later entries were appended
