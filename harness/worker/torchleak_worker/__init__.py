"""The part of torchleak that runs next to PyTorch.

Importing this package imports nothing of torch: a host decides when that happens.
"""
