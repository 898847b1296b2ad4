"""How many inputs there are: some thousand in `make test`, a hundred thousand in `make test-all`.

FEDPICK_FUZZ is another number for the first: FEDPICK_FUZZ=100000 pytest tests/fuzz -m "not slow".
"""

import os

import pytest

QUICK, LARGE = int(os.environ.get("FEDPICK_FUZZ", "2000")), 100_000


@pytest.fixture(params=[QUICK, pytest.param(LARGE, marks=pytest.mark.slow)])
def total(request):
    """The inputs of all targets together, of which each has its share."""
    return request.param
