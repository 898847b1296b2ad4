"""JAX leaves millions of objects behind: to look through them at every chance is a tenth of the time of the tests."""

import gc

gc.set_threshold(200_000, 50, 100)
