"""The registry of codecs is complete, and everything that lists codecs is made from it."""

import inspect
import pkgutil
from importlib import import_module

import pytest

pytest.importorskip("torch")
from busbw_accel import codecs
from busbw_accel.codecs import Codec, codec_for
from busbw_accel.methods import CODECS
from busbw_accel.settings import Settings
from busbw_accel.train.methods import parse
from busbw_accel.train.plan_rounds import methods
from busbw_accel.train.plan_types import LOSSES


def test_every_codec_class_is_registered():
    modules = [
        import_module(f"busbw_accel.codecs.{module.name}")
        for module in pkgutil.iter_modules(codecs.__path__)
    ]
    classes = {
        codec
        for module in modules
        for _, codec in inspect.getmembers(module, inspect.isclass)
        if issubclass(codec, Codec)
    }
    assert {type(codec_for(codec.name, Settings())) for codec in CODECS} == {
        codec for codec in classes if not codec.__subclasses__()
    }


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_codec_is_a_method_of_train_and_plan(codec):
    assert parse(codec.name).settings == Settings(method=codec.name)
    assert parse(codec.name).loss == codec.loss < len(LOSSES)
    planned = [name for rows in (False, True) for name in methods(two_d=rows, host=True)]
    assert [parse(name) for name in planned] and (
        codec.name == "dense" or any(codec.name in name for name in planned)
    )


@pytest.mark.parametrize(
    ("rows", "host", "tried_methods"),
    [
        (
            False,
            True,
            (
                "none bf16 exact exact+host int8 int8+host int4 int4+host"
                " int4+last=powersgd+matrix_rank=16 powersgd topk+ratio=0.1 topk"
            ),
        ),
        (
            True,
            False,
            "none 2d 2d+bf16 2d+exact 2d+int8 2d+int4 powersgd 2d+topk+ratio=0.1 2d+topk",
        ),
    ],
)
def test_plan_tries_the_variants_of_each_codec(rows, host, tried_methods):
    assert [
        name for name in methods(two_d=rows, host=host) if name in tried_methods.split()
    ] == tried_methods.split()
