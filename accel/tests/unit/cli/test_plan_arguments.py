"""`busbw plan` refuses invalid arguments before anything starts, and the hint names the correct
form.
"""

import pytest

from busbw.cli.main import guarded


@pytest.mark.parametrize("target", ["95%", "0.95", "100%", "1"])
def test_a_target_is_a_share_or_percent(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["plan", "mlp-small", "--target", target, "--try", "udp"]) == 2
    assert capsys.readouterr().err.startswith("error: 'udp' in 'udp' is not a transport")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("95", "--target 95: a fraction is at most 1\n\nhint: write --target 95% for percent"),
        (
            "101%",
            (
                "--target 101%: must be above 0% and at most 100%\n\n"
                "hint: write percent or a fraction, like --target 95% or --target 0.95"
            ),
        ),
        ("0", "--target 0: must be above 0% and at most 100%"),
        ("much", "--target much: must be above 0%"),
    ],
)
def test_a_target_that_nothing_reaches_is_refused(
    target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(["plan", "mlp-small", "--target", target]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_setting_that_cannot_be_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["train", "mlp-small", "--compare", "topk+ratio=2"]) == 2
    assert (
        capsys.readouterr().err == "error: ratio is 2.0, and must be a share above 0, at most 1\n\n"
        "hint: give ratio a valid value, or leave it out; the default is 0.01\n"
    )


def test_local_steps_are_refused_where_their_optimizer_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("plan", "--losses", "200", "--compare", "int8+every=30", "--", "true")
    assert guarded(list(words)) == 2
    assert capsys.readouterr().err == (
        "error: --losses 200 cannot train with 'int8+every=30': attach needs the optimizer\n\n"
        "hint: put it into the training: busbw_accel.attach(model,"
        " busbw_accel.Settings(method='int8', every=30), optimizer=optimizer)\n"
    )


def test_the_diloco_of_torchft_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["plan", "mlp-small", "--compare", "none,torchft-diloco"]) == 2
    assert capsys.readouterr().err == (
        "error: torchft-diloco is not measured by busbw plan\n\n"
        "hint: busbw train MODEL --compare none,torchft-diloco\n"
    )
