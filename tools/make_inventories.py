"""Write the inventories of the names that docstrings refer to: ``python tools/make_inventories.py``.

A docstring may name ``torch.Tensor``; the page links it to PyTorch's documentation. Sphinx would fetch a list of all
names there are, on every build. These lists hold the names the book needs, so a build needs no network. A name that is
missing fails the build; add it here.
"""

from __future__ import annotations

import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "inventories"

# name: (role, page below the documentation's root; $ stands for the name)
PYTHON = {
    "bool": ("py:class", "library/functions.html#$"),
    "bytes": ("py:class", "library/stdtypes.html#$"),
    "collections.abc.Callable": ("py:class", "library/collections.abc.html#$"),
    "collections.Counter": ("py:class", "library/collections.html#$"),
    "collections.abc.Collection": ("py:class", "library/collections.abc.html#$"),
    "collections.abc.Iterable": ("py:class", "library/collections.abc.html#$"),
    "collections.abc.Iterator": ("py:class", "library/collections.abc.html#$"),
    "collections.abc.Mapping": ("py:class", "library/collections.abc.html#$"),
    "collections.abc.Sequence": ("py:class", "library/collections.abc.html#$"),
    "dict": ("py:class", "library/stdtypes.html#$"),
    "float": ("py:class", "library/functions.html#$"),
    "int": ("py:class", "library/functions.html#$"),
    "list": ("py:class", "library/stdtypes.html#$"),
    "object": ("py:class", "library/functions.html#$"),
    "Path": ("py:class", "library/pathlib.html#pathlib.Path"),
    "os.PathLike": ("py:class", "library/os.html#$"),
    "pathlib.Path": ("py:class", "library/pathlib.html#$"),
    "random.Random": ("py:class", "library/random.html#$"),
    "set": ("py:class", "library/stdtypes.html#$"),
    "str": ("py:class", "library/stdtypes.html#$"),
    "tuple": ("py:class", "library/stdtypes.html#$"),
    "type": ("py:class", "library/functions.html#$"),
    "typing.Any": ("py:data", "library/typing.html#$"),
    "typing.Literal": ("py:data", "library/typing.html#$"),
    "None": ("py:data", "library/constants.html#$"),
    "AssertionError": ("py:exception", "library/exceptions.html#$"),
    "FileNotFoundError": ("py:exception", "library/exceptions.html#$"),
    "ModuleNotFoundError": ("py:exception", "library/exceptions.html#$"),
    "RuntimeError": ("py:exception", "library/exceptions.html#$"),
    "TypeError": ("py:exception", "library/exceptions.html#$"),
    "ValueError": ("py:exception", "library/exceptions.html#$"),
}
NUMPY = {
    "numpy.ndarray": ("py:class", "reference/generated/numpy.ndarray.html#$"),
    "numpy.typing.ArrayLike": ("py:class", "reference/typing.html#$"),
}
MATPLOTLIB = {
    "matplotlib.axes.Axes": ("py:class", "api/_as_gen/matplotlib.axes.Axes.html#$"),
    "matplotlib.figure.Figure": ("py:class", "api/_as_gen/matplotlib.figure.Figure.html#$"),
}
TORCH = {
    "torch._C.Generator": ("py:class", "generated/torch.Generator.html#torch.Generator"),  # its real home
    "torch.optim.adam.Adam": ("py:class", "generated/torch.optim.Adam.html#torch.optim.Adam"),
    "torch.Generator": ("py:class", "generated/torch.Generator.html#$"),
    "torch.Tensor": ("py:class", "tensors.html#$"),
    "torch.device": ("py:class", "tensor_attributes.html#$"),
    "torch.dtype": ("py:class", "tensor_attributes.html#$"),
    "torch.nn.Module": ("py:class", "generated/torch.nn.Module.html#$"),
    "torch.nn.modules.module.Module": ("py:class", "generated/torch.nn.Module.html#torch.nn.Module"),  # its real home
    # As they stand in the code, where Sphinx does not resolve them: a NamedTuple's fields, a Module's constructor.
    "Tensor": ("py:class", "tensors.html#torch.Tensor"),
    "nn.Parameter": ("py:class", "generated/torch.nn.parameter.Parameter.html#torch.nn.parameter.Parameter"),
    "torch.nn.functional.scaled_dot_product_attention": (
        "py:function",
        "generated/torch.nn.functional.scaled_dot_product_attention.html#$",
    ),
}


def write(project: str, version: str, names: dict[str, tuple[str, str]]) -> None:
    """Write ``inventories/<project>.inv`` in Sphinx's format."""
    lines = "".join(f"{name} {role} 1 {page} -\n" for name, (role, page) in sorted(names.items()))
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n"
        f"# Version: {version}\n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{project}.inv").write_bytes(head.encode() + zlib.compress(lines.encode(), 9))


if __name__ == "__main__":
    write("python", "3", PYTHON)
    write("numpy", "2", NUMPY)
    write("matplotlib", "3", MATPLOTLIB)
    write("torch", "2.13", TORCH)
