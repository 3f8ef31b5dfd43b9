"""The names of the package that users rely on."""

import inspect
import subprocess
import sys

import pytest

import overweave as ow
from overweave import overlay


def test_every_public_name_is_there_and_explains_itself():
    for name in ow.__all__:
        assert getattr(ow, name).__doc__, name
    assert set(ow.__all__) <= set(dir(ow))


PUBLIC = [
    pytest.param(getattr(module, name), id=f"{module.__name__}.{name}")
    for module in (ow, overlay)
    for name in module.__all__
    if callable(getattr(module, name))
]


@pytest.mark.parametrize("thing", PUBLIC)
def test_every_public_name_has_a_runnable_example(thing):
    texts = [thing.__doc__]
    if inspect.isclass(thing):
        texts += [getattr(member, "__doc__", None) for name, member in vars(thing).items() if not name.startswith("_")]
    assert any(">>>" in (text or "") for text in texts)


def test_version():
    assert ow.__version__ == "0.1.0"


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = ow.Nonsense


def test_import_is_light():
    code = "import sys, overweave; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numpy", "rustworkx", "typer", "rich"} & set(modules)
