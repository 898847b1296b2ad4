"""Which clients should I train on, and what do I gain? Strategies side by side on one task, with an answer in words."""

from fedpick.compare.charts import partition_chart
from fedpick.compare.comparison import Comparison
from fedpick.compare.earlier import check_federations, check_page, page_lock, set_aside
from fedpick.compare.folder import load_report, report_on_runs
from fedpick.compare.page import render_page, write_report
from fedpick.compare.presets import DEFAULT_STRATEGIES, Choices, choose_target, drop_repeats, make_experiments
from fedpick.compare.remarks import remarks_on_settings, remarks_on_test_set
from fedpick.compare.report import COLUMNS, ComparisonReport, columns_of, report_on
from fedpick.compare.summary import CURRENCIES, StrategySummary, check_target, totals
from fedpick.compare.tasks import TASKS
from fedpick.compare.tuning import check_rates, tune_rates

__all__ = [
    "COLUMNS",
    "CURRENCIES",
    "DEFAULT_STRATEGIES",
    "TASKS",
    "Choices",
    "Comparison",
    "ComparisonReport",
    "StrategySummary",
    "check_federations",
    "check_page",
    "check_rates",
    "check_target",
    "choose_target",
    "columns_of",
    "drop_repeats",
    "load_report",
    "make_experiments",
    "page_lock",
    "partition_chart",
    "remarks_on_settings",
    "remarks_on_test_set",
    "render_page",
    "report_on",
    "report_on_runs",
    "set_aside",
    "totals",
    "tune_rates",
    "write_report",
]
