"""Log retention: days, as in environments, and the CDK's names for them."""

from __future__ import annotations

from aws_cdk import aws_logs as logs
from constructs import Construct

_R = logs.RetentionDays
RETENTION = {
    1: _R.ONE_DAY, 3: _R.THREE_DAYS, 5: _R.FIVE_DAYS, 7: _R.ONE_WEEK, 14: _R.TWO_WEEKS, 30: _R.ONE_MONTH, 60: _R.TWO_MONTHS,
    90: _R.THREE_MONTHS, 120: _R.FOUR_MONTHS, 150: _R.FIVE_MONTHS, 180: _R.SIX_MONTHS, 365: _R.ONE_YEAR,
    400: _R.THIRTEEN_MONTHS, 545: _R.EIGHTEEN_MONTHS, 731: _R.TWO_YEARS, 1096: _R.THREE_YEARS, 1827: _R.FIVE_YEARS,
    2192: _R.SIX_YEARS, 2557: _R.SEVEN_YEARS, 2922: _R.EIGHT_YEARS, 3288: _R.NINE_YEARS, 3653: _R.TEN_YEARS,
}  # fmt: skip
"""Every number of days that CloudWatch Logs accepts."""
_DAYS = {retention: days for days, retention in RETENTION.items()}


def days_of(retention: logs.RetentionDays, construct: Construct | None = None) -> int | None:
    """The number of days; None for logs that never expire.

    Args:
        construct: whose argument it is, for the message.

    Raises:
        ValueError: it is something else, for example a number: the logs would never expire.
    """
    if retention == _R.INFINITE:
        return None
    if retention not in _DAYS:
        where = f"{construct.node.path}: " if construct else ""
        name = RETENTION.get(retention, _R.ONE_MONTH).name  # type: ignore[call-overload]  # of a number of days
        raise ValueError(
            f"{where}log_retention = {retention}: not a RetentionDays of aws_logs. Fix: write RetentionDays.{name}"
        )
    return _DAYS[retention]
