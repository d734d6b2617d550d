"""The data of a job, read once from its cluster: for the report, `--watch`, plots and tables."""

from trainium_cdk.client.jobs.report.page import report
from trainium_cdk.client.jobs.report.run import Run, collect_all

__all__ = ["Run", "collect_all", "report"]
