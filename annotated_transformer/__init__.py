"""The Transformer of "Attention Is All You Need", in modules that follow the paper's sections.

Importing the package loads nothing but PyTorch and the standard library, and changes no setting of either.
"""

__version__ = "0.1.0"
