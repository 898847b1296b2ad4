"""Flower's ArrayRecord collects garbage at each message, which takes a second where JAX has a large heap."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_collection_per_message(monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda *generation: 0)
