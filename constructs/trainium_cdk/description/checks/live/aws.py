"""Preflight's AWS client: every call, by the IAM action that it needs. All of them only read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from trainium_cdk._aws import client, code_and_message, credentials_error
from trainium_cdk.errors import Absent, AwsError, Denied, NoCredentials, Unreachable

OPERATIONS: dict[str, tuple[str, str]] = {
    "secretsmanager:DescribeSecret": ("secretsmanager", "describe_secret"),
    "kms:DescribeKey": ("kms", "describe_key"),
    "kms:GetKeyPolicy": ("kms", "get_key_policy"),
    "kms:ListGrants": ("kms", "list_grants"),
    "sns:GetTopicAttributes": ("sns", "get_topic_attributes"),
    "sts:GetCallerIdentity": ("sts", "get_caller_identity"),
    "cloudformation:DescribeStacks": ("cloudformation", "describe_stacks"),
    "cloudformation:ListStackResources": ("cloudformation", "list_stack_resources"),
    "ssm:GetParameter": ("ssm", "get_parameter"),
    "iam:GetRole": ("iam", "get_role"),
    "iam:GetUser": ("iam", "get_user"),
    "iam:SimulatePrincipalPolicy": ("iam", "simulate_principal_policy"),
    "servicequotas:GetServiceQuota": ("service-quotas", "get_service_quota"),
    "servicequotas:GetAWSDefaultServiceQuota": ("service-quotas", "get_aws_default_service_quota"),
    "s3:ListBucket": ("s3", "head_bucket"),
    "eks:DescribeClusterVersions": ("eks", "describe_cluster_versions"),
    "eks:DescribeAddonVersions": ("eks", "describe_addon_versions"),
    "pcs:ListClusters": ("pcs", "list_clusters"),
    "elasticfilesystem:DescribeFileSystems": ("efs", "describe_file_systems"),
    "elasticfilesystem:DescribeMountTargets": ("efs", "describe_mount_targets"),
    "elasticfilesystem:DescribeMountTargetSecurityGroups": ("efs", "describe_mount_target_security_groups"),
    "fsx:DescribeFileSystems": ("fsx", "describe_file_systems"),
    "fsx:DescribeVolumes": ("fsx", "describe_volumes"),
    "resource-groups:GetGroupConfiguration": ("resource-groups", "get_group_configuration"),
    "resource-groups:ListGroupResources": ("resource-groups", "list_group_resources"),
    **{
        f"ec2:{''.join(w.capitalize() for w in method.split('_'))}": ("ec2", method)
        for method in (
            "describe_addresses",
            "describe_availability_zones",
            "describe_capacity_block_offerings",
            "describe_capacity_reservations",
            "describe_images",
            "describe_instance_type_offerings",
            "describe_instance_types",
            "describe_instances",
            "describe_key_pairs",
            "describe_network_interfaces",
            "describe_placement_groups",
            "describe_regions",
            "describe_route_tables",
            "describe_security_groups",
            "describe_snapshots",
            "describe_spot_price_history",
            "describe_subnets",
            "describe_vpc_attribute",
            "describe_vpc_endpoints",
            "describe_volumes",
            "describe_vpcs",
            "get_ebs_default_kms_key_id",
            "get_spot_placement_scores",
        )
    },
}
"""IAM action -> boto3's service and method. (HeadBucket is allowed by s3:ListBucket: S3's authorization reference.)"""

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403"})
_ABSENT = frozenset({
    "404", "InvalidPlacementGroup.Unknown", "NoSuchBucket", "NoSuchEntity", "NoSuchResourceException", "ResourceNotFoundException",
})  # fmt: skip
PATIENT = {"retries": {"mode": "adaptive", "total_max_attempts": 8}}
QUICK = {"connect_timeout": 3, "read_timeout": 8, "retries": {"mode": "standard", "total_max_attempts": 2}}
"""For calls to many regions, as one may not respond."""


class Aws:
    """Calls by IAM action. Each request is sent once, and checks share its response.

    Args:
        region: the region of calls without an explicit one.
        session: a `boto3.Session`. Default: a new one, from the environment.
        quick: give up on a service after some seconds, instead of a minute.
    """

    def __init__(self, region: str, session: Any = None, *, quick: bool = False):
        self.region = region
        self._quick = quick
        self._session = session
        self._clients: dict[tuple[str, str], Any] = {}
        self._answers: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._allowed: frozenset[str] | None = None

    def limited_to(self, actions: Iterable[str]) -> Aws:
        """The same connection, limited to these actions."""
        return self._with(_allowed=frozenset(actions))

    def in_region(self, region: str) -> Aws:
        """The same connection, for calls in another region."""
        return self._with(region=region)

    def _with(self, **changed: Any) -> Aws:
        other = object.__new__(Aws)
        other.__dict__ = {**self.__dict__, **changed}
        return other

    def __call__(self, action: str, *, region: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The complete response with all pages.

        Raises:
            Denied, NoCredentials, Unreachable, Absent: see these classes.
            AwsError: any other error; the message contains AWS's own.
            PermissionError: the check did not declare this action.
        """
        if self._allowed is not None and action not in self._allowed:
            raise PermissionError(f"{action} is not among the actions that this check declares")
        region = region or self.region
        key = json.dumps([action, region, parameters], sort_keys=True, default=str)
        with self._lock:
            mine = key not in self._answers
            answer = self._answers.setdefault(key, Future())
        if mine:
            try:
                answer.set_result(self._send(action, region, parameters))
            except BaseException as e:
                answer.set_exception(e)
        response: dict[str, Any] = answer.result()
        return response

    def find(self, action: str, *, region: str | None = None, **parameters: Any) -> dict[str, Any] | None:
        """Like a call, but returns None if the requested resource does not exist."""
        try:
            return self(action, region=region, **parameters)
        except Absent:
            return None

    def first(self, action: str, key: str, *, region: str | None = None, **parameters: Any) -> dict[str, Any] | None:
        """The first item of the response's list `key`; None if there is none."""
        answer = self.find(action, region=region, **parameters)
        return (answer[key] or [None])[0] if answer else None

    def parameter(self, name: str) -> str | None:
        """The value of an SSM parameter; None if it does not exist."""
        answer = self.find("ssm:GetParameter", Name=name)
        return str(answer["Parameter"]["Value"]) if answer else None

    def _send(self, action: str, region: str, parameters: dict[str, Any]) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        service, method = OPERATIONS[action]
        try:
            client = self._client(service, region)
            if client.can_paginate(method):
                pages: dict[str, Any] = client.get_paginator(method).paginate(**parameters).build_full_result()
                return pages
            whole: dict[str, Any] = getattr(client, method)(**parameters)
            return whole
        except ClientError as e:
            raise _of_client_error(e, action) from None
        except BotoCoreError as e:
            raise _of_botocore(e, service) from None

    def _client(self, service: str, region: str) -> Any:
        with self._lock:
            if self._session is None:
                import boto3

                self._session = boto3.Session()
            if (service, region) not in self._clients:
                from botocore.config import Config

                config: Any = Config(**(QUICK if self._quick else PATIENT))
                self._clients[service, region] = client(service, region, config=config, session=self._session)
            return self._clients[service, region]


def _of_client_error(error: Any, action: str) -> AwsError:
    code, message = code_and_message(error)
    if code in _DENIED:
        return Denied(action)
    if credentials_error(error):
        return NoCredentials(f"AWS rejects the credentials ({code}: {message})")
    if code in _ABSENT or "NotFound" in code or (code == "ValidationError" and "does not exist" in message):
        return Absent(message or code)
    return AwsError(f"{action} failed with {code}: {message}")


def _of_botocore(error: Exception, service: str) -> AwsError:
    from botocore import exceptions as e

    no_credentials = (
        e.NoCredentialsError,
        e.PartialCredentialsError,
        e.CredentialRetrievalError,
        e.ProfileNotFound,
        e.SSOError,
        e.TokenRetrievalError,
        e.InvalidConfigError,
    )
    text = " ".join(str(error).split())
    if isinstance(error, no_credentials):
        return NoCredentials(text)
    # refused, timed out, no name, bad certificate, proxy: botocore has no common base for them
    if isinstance(error, e.HTTPClientError | e.ConnectionError):
        return Unreachable(service, text)
    return AwsError(text)
