"""The smallest form of the paper's items, and what every outcome of them has."""

from dataclasses import replace

from fedpick.paper import TINY

SMALL = replace(TINY, draws=1, fashion_rounds=2, synthetic_rounds=2, quadratic_rounds=20)


def complete(outcome):
    """Whether an outcome has all that the page shows, and says nothing that is no number."""
    assert outcome.claims
    assert outcome.charts
    assert outcome.verdict in ("reproduced", "partly reproduced", "undecided", "not reproduced")
    for claim in outcome.claims:
        assert claim.checks
        assert claim.statement
        assert claim.source
        assert claim.reason
        for check in claim.checks:
            assert check.met in ("yes", "partly", "unclear", "no")
            assert "nan" not in check.evidence
    for chart in outcome.charts:
        assert chart.rows
        assert chart.text
        for row in chart.rows:
            assert row["low"] <= row["y"] <= row["high"]
    for shown in outcome.tables:
        assert all(len(row) == len(shown.columns) for row in shown.rows)
