"""A function's log lines are written with its role's permissions, as on AWS, and are lost without them.

So a deleted log group stays deleted if the role may not create another, and the function's last lines are lost if its
role is already deleted.
"""

from __future__ import annotations

from typing import Any

from ministack.core import iam_evaluator
from ministack.services import cloudwatch_logs, lambda_svc

ON_STREAMS = ("logs:CreateLogStream", "logs:PutLogEvents")


def install() -> None:
    """Check the role's permissions from now on."""
    emit = lambda_svc._emit_lambda_logs

    def emitted(function: dict[str, Any], *args: Any, **options: Any) -> None:
        if _may(function.get("config") or function):
            emit(function, *args, **options)

    lambda_svc._emit_lambda_logs = emitted


def _may(config: dict[str, Any]) -> bool:
    name = (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
    role, group = str(config["Role"]), cloudwatch_logs._make_group_arn(name)
    account, region = group.split(":")[4], group.split(":")[3]
    policies = iam_evaluator._gather_role_policies(role.rpartition("/")[2], account)
    actions = ON_STREAMS if name in cloudwatch_logs._log_groups else ("logs:CreateLogGroup", *ON_STREAMS)
    return all(
        iam_evaluator.evaluate(
            iam_evaluator.EvalContext(
                principal_arn=role,
                principal_type="AssumedRole",
                principal_account=account,
                action=action,
                resource_arn=group,
                region=region,
            ),
            policies,
        ).decision
        == "Allow"
        for action in actions
    )
