"""The methods of --compare: words become settings, and invalid ones are named."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.core.errors import UsageError
from busbw_accel.settings import Settings
from busbw_accel.train.methods import HOOKS, WORDS, parse, parse_all
from busbw_accel.train.plan_types import LOSSES


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("dense", Settings()),
        ("2d+bf16", Settings(two_d=True, wire="bf16")),
        (
            "topk+ratio=0.001+values=fp16+feedback=0",
            Settings(method="topk", ratio=0.001, values="fp16", feedback=False),
        ),
        ("2d+intra_size=2+int8", Settings(method="int8", two_d=True, intra_size=2)),
        ("chunk=65536", Settings(chunk=65536)),
        ("host+int4", Settings(method="int4", staging="host")),
    ],
)
def test_method_names_become_settings(text, settings):
    method = parse(text)
    assert (method.name, method.settings, method.hook) == (text, settings, "")


@pytest.mark.parametrize(
    ("name", "hook", "loss", "settles", "code"),
    [
        ("none", "", "nothing", 1, ""),
        ("torch-bf16", "bf16", "rounded to 16 bits", 1, "default_hooks.bf16_compress_hook)"),
        ("torch-fp16", "fp16", "rounded to 16 bits", 1, "default_hooks.fp16_compress_hook)"),
        ("torch-powersgd", "powersgd", "a low rank now, the rest later", 3, "powerSGD_hook)"),
        (
            "topk+ratio=0.1",
            "",
            "the largest now, the rest later",
            1,
            "busbw_accel.attach(model, busbw_accel.Settings(method='topk', ratio=0.1))",
        ),
        (
            "int8+every=30",
            "",
            "ranks train apart between exchanges",
            1,
            "busbw_accel.attach(model, busbw_accel.Settings(method='int8', every=30),"
            " optimizer=optimizer)",
        ),
    ],
)
def test_a_method_has_its_loss_and_the_code_that_applies_it(name, hook, loss, settles, code):
    method = parse(name)
    assert (method.hook, LOSSES[method.loss], method.settles) == (hook, loss, settles)
    assert (method.settings is None) == (name == "none" or bool(hook))
    assert method.plain == (name == "none")
    assert method.code.startswith("model.register_comm_hook(" if hook else code)
    assert method.code.endswith(code)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no method"),
        (" , ", "names no method"),
        ("none,none", "names none twice"),
        ("top-k", "'top-k' of 'top-k' is not a method"),
        ("none+topk", "'none' of 'none+topk' is not a method"),
        ("topk+ratio=x", "'x' of 'topk+ratio=x' is not a value of ratio"),
        ("2d+two_d=yes", "'yes' of '2d+two_d=yes' is not a value of two_d"),
        ("topk+ratio=2", "ratio is 2.0, and must be a share above 0"),
        ("ratio", "'ratio' of 'ratio' is not a method"),
        ("host", "staging=host has no effect"),
    ],
)
def test_unknown_methods_are_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_all(text)
    assert message in caught.value.message


@given(
    st.lists(
        st.sampled_from([*(word for word in WORDS if word != "host"), "none", *HOOKS]),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
def test_lists_of_methods_keep_their_names(names):
    assert [method.name for method in parse_all(", ".join(names))] == names


VALUES = [
    f"{field.name}={value}"
    for field in dataclasses.fields(Settings)
    for value in ("", "1", "-1", "x", "nan", "é\0")
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*WORDS, *HOOKS, "none", *VALUES]), st.sampled_from(["", *"+, ="])
        ).map("".join),
        max_size=5,
    ).map("".join)
)
def test_any_text_gives_methods_or_an_error(text):
    try:
        assert all(method.name for method in parse_all(text))
    except UsageError as error:
        assert error.message


def test_every_setting_can_be_given():
    for field in dataclasses.fields(Settings):
        if field.default is None:
            continue
        value = int(field.default) if isinstance(field.default, bool) else field.default
        assert parse(f"{field.name}={value}").settings == Settings()
