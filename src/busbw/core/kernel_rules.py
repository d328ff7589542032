"""All rules of the kernel log, and which lines concern any of them."""

import re
from functools import cache

from busbw.core.kernel_rule import KernelRule
from busbw.core.kernel_rules_gpus import GPU_RULES
from busbw.core.kernel_rules_host import HOST_RULES
from busbw.core.kernel_rules_nics import NIC_RULES
from busbw.core.kernel_rules_pcie import PCIE_RULES
from busbw.core.kernel_rules_storage import STORAGE_RULES

RULES: tuple[KernelRule, ...] = (*GPU_RULES, *NIC_RULES, *PCIE_RULES, *HOST_RULES, *STORAGE_RULES)


@cache
def concerned() -> re.Pattern[str]:
    """One pattern for the lines that a rule judges, and those that end what a rule reports.

    Each sign is a group, whose number is the `lastindex` of a match.
    """
    signs = [sign for rule in RULES for sign in rule.signs]
    patterns = [sign.pattern.pattern for sign in signs]
    patterns += [sign.ends.pattern for sign in signs if sign.ends]
    unnamed = (re.sub(r"\?P<\w+>", "?:", pattern) for pattern in dict.fromkeys(patterns))
    return re.compile("|".join(f"({pattern})" for pattern in unnamed), re.ASCII)
