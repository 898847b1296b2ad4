"""Helpers of the tests."""

from support import shapes as shapes  # where pytest's --jaxtyping-packages finds it
