"""Users of a Slurm cluster that come from a directory, such as Active Directory: ParallelCluster's section DirectoryService."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainium_cdk.settings.base import Arn, Settings
from trainium_cdk.settings.cdk_types import MaybeToken
from trainium_cdk.text import Text

_PLAIN = r"^[^\x00-\x1f\x7f]+$"
_LABELS = r"[A-Za-z0-9_-]+"


class DirectoryService(Settings):
    """A directory whose users have accounts on every node, by LDAP. Patterns and values as in the schema and the validators of
    aws-parallelcluster 3.16.1. A change needs a stopped fleet and stopped login nodes."""

    domain_name: Annotated[
        str,
        Text(rf"^({_LABELS}(\.{_LABELS})*|(DC|dc)={_LABELS}(,(DC|dc)={_LABELS})*)$", "a domain", "corp.example.com"),
        MaybeToken,
    ]
    """The domain: corp.example.com, or DC=corp,DC=example,DC=com."""
    domain_addr: Annotated[
        str,
        Text(
            r"^ldaps?://[^\s,]+(,ldaps?://[^\s,]+)*$",
            "the addresses of its servers, with commas between them",
            "ldaps://corp.example.com",
        ),
        MaybeToken,
    ]
    """Its servers, separated by commas: ldaps://corp.example.com. They must be reachable from all nodes."""
    password_secret: Arn
    """Secrets Manager secret that holds the password of `read_only_user` as plain text. ParallelCluster lets the head node read it, and writes
    the password into a file on each head and login node that root alone can read."""
    read_only_user: Annotated[
        str,
        Text(_PLAIN, "its distinguished name", "cn=ReadOnly,ou=Users,dc=corp,dc=example,dc=com", max_length=1024),
        MaybeToken,
    ]
    """Its user that may read: cn=ReadOnly,ou=Users,ou=CORP,dc=corp,dc=example,dc=com."""
    tls_ca_cert: (
        Annotated[
            str,
            Text(
                r"^/[A-Za-z0-9._/-]+$",
                "a path that begins with a slash, of letters, digits and . _ -",
                "/etc/ssl/certs/corp.pem",
            ),
        ]
        | None
    ) = None
    """Path, on every node, of the certificates that the servers' are verified with; for example installed by `bootstrap.scripts` or a
    custom_ami."""
    tls_req_cert: Literal["never", "allow", "try", "demand", "hard"] = "hard"
    """How the servers' certificates are verified."""
    access_filter: (
        Annotated[str, Text(_PLAIN, "an LDAP filter on one line", "memberOf=cn=Team,dc=corp,dc=example,dc=com")] | None
    ) = None
    """LDAP filter of those who may log in: memberOf=cn=TrainiumTeam,ou=Users,ou=CORP,dc=corp,dc=example,dc=com. Default: all."""
    ssh_keys: bool = True
    """Whether each user gets an SSH key at the first login, with which nodes let the user in from the head node."""
    sssd: dict[
        Annotated[
            str,
            Text(r"^[a-z][a-z0-9_]*$", "the name of a setting of SSSD: small letters, digits and _", "ldap_id_mapping"),
        ],
        str | bool | int,
    ] = Field(default_factory=dict)
    """Further lines of the section of the domain in sssd.conf."""
