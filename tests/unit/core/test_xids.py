"""The tables of Xids and SXids: what each number means for the node."""

import pytest

from busbw.core.sxids import SwitchEffect, sxid, sxids
from busbw.core.table_file import cells
from busbw.core.xids import EFFECTS, FIXES, Effect, xid, xids

DESCRIBED = {  # all numbers that NVIDIA's catalog describes
    Effect.REBOOT: {79, 151, 167},
    Effect.RESET: {
        46,
        48,
        62,
        64,
        74,
        95,
        109,
        110,
        119,
        120,
        136,
        140,
        143,
        155,
        156,
        158,
        169,
        171,
        172,
    },
    Effect.REPAIR: {54, 142},
    Effect.LINK: {*range(144, 151)},
    Effect.RECOVERY: {154},
    Effect.RESTART: {
        8,
        39,
        40,
        41,
        60,
        68,
        *range(70, 73),
        *range(75, 78),
        *range(82, 87),
        88,
        89,
        94,
        *range(96, 106),
        *range(126, 136),
        139,
    },
    Effect.WATCH: {78, 159, 164, 165, 166, 168, 170},
    Effect.APPLICATION: {11, 13, 25, 31, 32, 43, 45, 69, 80},
    Effect.NOTE: {
        37,
        38,
        44,
        63,
        66,
        67,
        92,
        93,
        106,
        107,
        121,
        137,
        141,
        152,
        153,
        157,
        *range(160, 164),
    },
}


def test_every_described_xid_has_its_effect() -> None:
    catalog = [
        xid(int(row["number"]))
        for row in cells("core/xids.csv")
        if row["source"] == "NVIDIA Xid catalog"
    ]
    assert {
        effect: {row.number for row in catalog if row.effect is effect} for effect in Effect
    } == DESCRIBED
    assert (len(catalog), len(xids())) == (109, 116)


def test_every_action_of_the_catalog_has_an_effect() -> None:
    assert {row.action for row in xids().values()} - {""} == EFFECTS.keys()


def test_fixes_that_end_a_job_begin_with_draining() -> None:
    for effect in (Effect.REBOOT, Effect.RESET, Effect.REPAIR, Effect.RECOVERY):
        texts = [
            FIXES[effect],
            *filter(None, (xid(number).own_fix for number in DESCRIBED[effect])),
        ]
        assert all(text.startswith("drain the host first") for text in texts), effect
    assert all(
        "drain" not in FIXES[effect] for effect in (Effect.RESTART, Effect.APPLICATION, Effect.NOTE)
    )
    assert "-i 0000:43:00.0" in xid(95).fix("0000:43:00.0")


def test_unknown_xids_warn() -> None:
    assert (xid(9999).effect, xid(9999).meaning) == (Effect.WATCH, "not in NVIDIA's Xid catalog")


@pytest.mark.parametrize(
    ("number", "word", "effect"),
    [
        (20034, "Fatal", SwitchEffect.FATAL),
        (12020, "Fatal", SwitchEffect.ALWAYS),  # always fatal: only a reboot helps
        (12020, "Correctable", SwitchEffect.NOTE),
        (12028, "Non-fatal", SwitchEffect.WATCH),
        (22013, "Non-fatal", SwitchEffect.NOTE),  # a request of a link that needs nothing
        (19049, "Fatal", SwitchEffect.FATAL),  # the word counts, not the number
        (10006, "", SwitchEffect.FATAL),  # the driver prints no word with these
        (10005, "", SwitchEffect.NOTE),
        (99999, "", SwitchEffect.WATCH),
        (99999, "Fatal", SwitchEffect.FATAL),
    ],
)
def test_sxid_by_its_word(number: int, word: str, effect: SwitchEffect) -> None:
    assert sxid(number).judged(word) is effect


def test_conditions_of_nvswitches_end() -> None:
    ends = {row.ended_by for row in sxids().values() if row.ended_by}
    assert len(ends) == 3
    assert all(sxids()[end].effect is SwitchEffect.NOTE for end in ends)


def test_each_fix_can_be_printed() -> None:
    for row in xids().values():
        assert "{" not in row.fix("0000:1b:00.0")
    for row in sxids().values():
        assert "{" not in row.fix(row.effect, "0000:c1:00.0")
