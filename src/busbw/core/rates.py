"""Rates in arguments and settings: `450GB/s` in bytes, `400Gbit/s` in bits, by factors of 1000.

All options and settings that take a rate read it here, so that they all take the same spellings.
"""

import math
import re

from busbw.core.errors import UsageError

FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BITS_A_BYTE = 8
BUSBW_EXAMPLE, LINK_EXAMPLE = "450GB/s", "400Gbit/s"
# Not compiled here, but where they are used: every start imports this module.
_NUMBER = r"\d+\.?\d*|\.\d+"
_LINK = rf"\s*({_NUMBER})\s*[mg]\s*"  # what vendors call a port of 400 Gbit/s: 400G
_RATE = rf"\s*({_NUMBER})\s*([kmgt]?)(?:(bit)(?:/s)?|(b)/s)\s*"


def parse_rate(text: str, option: str, example: str = BUSBW_EXAMPLE) -> float:
    """Bytes per second from `450GB/s` or `400Gbit/s`; also as tc writes it: `25gbit`.

    Where `example` is in bits, the rate of a link is asked, which may be just `25G`. UsageError for
    other text, for a number without a unit, for `Gb/s`, which may mean either unit, and for 0. Its
    hint shows `example`.
    """
    if example.endswith("bit/s") and re.fullmatch(_LINK, text, re.ASCII | re.IGNORECASE):
        text = f"{text.strip()}bit/s"
    match = re.fullmatch(_RATE, text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise _no_rate(text, option, example)
    number, prefix, is_bits, byte = match.groups()
    if not is_bits and byte != "B":
        prefix = prefix.upper() if prefix.lower() != "k" else "k"
        raise UsageError(
            f"{option} {text}: bits or bytes?",
            f"write {option} {number}{prefix}bit/s or {option} {number}{prefix}B/s",
        )
    rate = float(number) * FACTORS[prefix.lower()] / (BITS_A_BYTE if is_bits else 1)
    if not 0 < rate < math.inf:
        raise UsageError(
            f"{option} {text}: it is not a rate above 0", f"give one like {option} {example}"
        )
    return rate


def _no_rate(text: str, option: str, example: str) -> UsageError:
    number = text.strip()
    if re.fullmatch(_NUMBER, number, re.ASCII):
        unit = example.lstrip("0123456789.")
        return UsageError(
            f"{option} {text}: a rate needs its unit", f"write it like {option} {number}{unit}"
        )
    return UsageError(
        f"{option} {text}: it is not a rate", f"give a number and its unit, like {option} {example}"
    )
