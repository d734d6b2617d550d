"""The stack of the third engine: its outputs, and no resource that costs money."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, CfnWaitConditionHandle, Stack
from constructs import Construct
from process_engine import process_outputs

from trainium_cdk.settings import Environment


class TrnProcessStack(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment, **kwargs: Any):
        super().__init__(scope, id, **kwargs)
        CfnWaitConditionHandle(self, "Nothing")
        for key, (value, description) in process_outputs(environment).items():
            CfnOutput(self, key, value=value, description=description).override_logical_id(key)
