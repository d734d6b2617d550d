"""The description of an environment: everything that `cdk deploy` needs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainium_cdk.description import engines, requirements
from trainium_cdk.description.catalog import Catalog, CatalogOverrides, NeuronRelease, best_ami, boot_driver, choose
from trainium_cdk.description.catalog.eks import Addon, Ami, Chart
from trainium_cdk.description.catalog.stack import FrameworkChoice
from trainium_cdk.description.settings.base import (
    AccountId,
    Days,
    Region,
    S3Folder,
    Settings,
    Version,
    refuse_duplicates,
)
from trainium_cdk.description.settings.eks import Eks
from trainium_cdk.description.settings.network import Network
from trainium_cdk.description.settings.observability import Observability
from trainium_cdk.description.settings.pcluster import Pcluster
from trainium_cdk.description.settings.section import Section
from trainium_cdk.description.settings.shape import CATALOG_ERROR
from trainium_cdk.description.settings.slurm import Pcs, SlurmSection
from trainium_cdk.description.settings.storage import Registry, Storage
from trainium_cdk.errors import RequirementError
from trainium_cdk.problems import Source, wrong
from trainium_cdk.text import Text

SERVICE_NETWORKS = ("172.20.0.0/16", "10.100.0.0/16", "192.168.0.0/16")
"""The first choices for a cluster's service network: EKS's own two (EKS user guide, 2026-11), and one more."""
ENCRYPTION = ("aws-managed", "customer-key")
KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):key/[A-Za-z0-9-]+")


def _requirement(text: str) -> str:
    """Read a requirement like pip."""
    try:
        return requirements.entry(text)[0]
    except RequirementError as e:
        raise wrong(e.reason, e.fix) from None


Requirement = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_requirement)]
"""A requirement as pip takes it, or an option with an index."""


class OwnScript(Settings):
    """Your own script, which Slurm nodes run as root after ours."""

    name: Annotated[
        str,
        Text(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", "a letter or digit, then also . _ or -", "install-tools", max_length=60),
    ]
    """Its name, for logs and messages."""
    script: Annotated[str, Text(r"^#!", "a script that names its interpreter first", "#!/bin/bash", max_length=200_000)]
    """Its text; the first line names the interpreter, for example `#!/bin/bash`. Everybody with access to a node can read it: no secrets.
    It runs at a node's first start, and on head and login nodes again when the scripts change: let it be repeatable. If it fails, the
    node does too; an update of the cluster only reports it. The variable TRN_NODE_ROLE is head, compute, cpu or login."""
    nodes: tuple[Literal["head", "compute", "login"], ...] = Field(default=("head", "compute", "login"), min_length=1)
    """The nodes that run it. On AWS PCS the login node is the head; nodes of the CPU queue are compute nodes, too."""


class Bootstrap(Settings):
    """What is installed on the nodes."""

    neuron_release: Version | None = None
    """Neuron SDK release. Default: the one that AWS recommends for the instance types; else the newest that AWS supports for them, the
    framework and the operating system."""
    framework: FrameworkChoice | None = None
    """The framework of the virtual environment: torch-xla (PyTorch/XLA), torch-native (TorchNeuron), jax (JAX, a beta of AWS), or `none`
    for no virtual environment (bring your own). Default: the one that AWS recommends for the instance types, torch-native for Trn2 and
    Trn3; else a PyTorch that can train on them. JAX is used only where it is named."""
    venv: Annotated[
        str,
        Text(r"^/?[A-Za-z0-9_][A-Za-z0-9_./-]*$", "a name or path of letters, digits and . _ -", "/efs/venv"),
        AfterValidator(lambda path: str(PurePosixPath(path))),  # without slashes that mean nothing
    ] = "aws_neuron_venv_pytorch"
    """The virtual environment: a path, or a name in the shared home directory."""
    pip_packages: tuple[Requirement, ...] = ()
    """Additional packages for it, as pip takes them: `transformers>=4.40,<5`, `tomli; python_version < "3.11"`,
    `peft @ git+https://github.com/huggingface/peft@COMMIT`. Your own index: `--extra-index-url https://...`. No passwords."""
    scripts: tuple[OwnScript, ...] = ()
    """Your own scripts, in the order in which Slurm nodes run them. Nodes on EKS have `eks.node_groups[].user_data`."""

    @model_validator(mode="after")
    def _names(self) -> Bootstrap:
        refuse_duplicates([s.name for s in self.scripts], "script")
        return self


def _encryption(value: str) -> str:
    if value not in ENCRYPTION and not KEY_ARN.fullmatch(value):
        raise wrong(
            "neither an encryption mode nor the ARN of a KMS key (key aliases are not accepted)",
            f"write {' or '.join(ENCRYPTION)}, or arn:aws:kms:<region>:<account>:key/<id>",
        )
    return value


class Health(Settings):
    """What to do when a training runs and makes no progress. `trn status JOB` always reports it."""

    hang: Literal["tell", "restart"] = "tell"
    """A training that makes no step for far longer than usual: `tell`, or `restart` it from its newest complete checkpoint. After three restarts
    without a new step between them, the job has failed."""
    nan: Literal["tell", "stop"] = "tell"
    """A loss that became NaN: `tell`, or `stop` the job after five such steps."""

    device: Literal["tell", "replace"] = "replace"
    """A node whose device has an error that its memory could not correct, as root measured it: `replace` it, and let its job continue with other
    nodes; or `tell`. After three such nodes without a new step between them, the job has failed."""

    @property
    def actions(self) -> str:
        """Actions other than `tell`, as in the stack's output: `hang=restart nan=stop`; empty for none."""
        chosen = {name: getattr(self, name) for name in ("hang", "nan")}  # of devices, the nodes themselves know
        return " ".join(f"{name}={value}" for name, value in chosen.items() if value != "tell")


class Jobs(Settings):
    """What is done about jobs, on every cluster of the environment."""

    health: Health = Health.model_construct()
    keep: S3Folder | None = None
    """s3://bucket/prefix to which each complete checkpoint of a job is copied, so that it outlives the cluster. Jobs get the right to read and
    write there. The bucket is yours: no stack creates or deletes it. Default: none."""
    cache: S3Folder | None = None
    """s3://bucket/prefix of compiled graphs, which jobs of every cluster read and add to: by framework, version of the compiler and instance
    type. Jobs get the right to read and write there. Default: none."""

    @property
    def addresses(self) -> dict[str, str]:
        """Where jobs may read and write in S3: key -> address."""
        return {key: address for key in ("keep", "cache") if (address := getattr(self, key))}


class Environment(Settings):
    """Everything about one environment. Every key has a default: an empty file, or none, is the tutorials' cluster.

    Read one with `settings.load()`.
    """

    name: Annotated[
        str,
        Text(
            r"^[a-z][a-z0-9-]*[a-z0-9]$",
            "at least two small letters, digits and hyphens, with a letter as the first and a letter or digit as the last",
            "my-cluster",
            max_length=30,
        ),
    ] = "trn"
    """Prefix of the names of all resources."""
    region: Region = "us-east-1"
    """The AWS region."""
    account: AccountId | None = None
    """The account to deploy into. Default: the account of the credentials."""
    tags: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=128)],
        Annotated[str, StringConstraints(max_length=256)],
    ] = Field(default_factory=dict)
    """Tags on every resource."""
    on_destroy: Literal["delete", "keep"] = "delete"
    """What `cdk destroy` does with data (EFS, FSx, ECR, buckets): `delete` it, or `keep` it and list what is kept."""
    encryption: Annotated[str, AfterValidator(_encryption)] = "aws-managed"
    """The keys that encrypt images, buckets, file systems and volumes. `aws-managed`: AWS's own keys. `customer-key`: a key that the
    stack creates. Or the ARN of your own key, in this region and account. Logs, variables of Lambda functions and
    Kubernetes secrets always have a key that the stack creates, or yours."""
    log_days: Days = 365
    """How long logs are kept, days: of clusters, with the audit log of EKS; of the VPC's traffic; of nodes and pods; of metrics."""
    network: Network = Network.model_construct()
    storage: Storage = Storage.model_construct()
    registry: Registry = Registry.model_construct()
    bootstrap: Bootstrap = Bootstrap.model_construct()
    pcluster: Pcluster = Pcluster.model_construct()
    eks: Eks = Eks.model_construct()
    pcs: Pcs = Pcs.model_construct()
    jobs: Jobs = Jobs.model_construct()
    observability: Observability | None = Observability.model_construct()
    """What CloudWatch shows of the clusters: null for nothing."""
    overrides: CatalogOverrides = Field(default=CatalogOverrides.model_construct(), alias="catalog")
    """Instance types, Neuron releases, prices and your own package mirrors."""

    _source: Source = PrivateAttr(default_factory=Source)
    _catalog: Catalog | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _catalog_fits(self) -> Environment:
        try:
            Catalog.load(self.overrides)
        except ValidationError as e:
            details = e.errors()
            first = ".".join(map(str, details[0]["loc"]))
            raise PydanticCustomError(
                CATALOG_ERROR,
                "catalog.{first}: {reason}",
                {"first": first, "reason": details[0]["msg"], "errors": details},
            ) from None
        return self

    @property
    def source(self) -> Source:
        """The file it was read from, with the line of each key."""
        return self._source

    @property
    def catalog(self) -> Catalog:
        """The catalogue with this environment's additions."""
        return self._catalog or Catalog.load(self.overrides)

    def with_catalog(self, catalog: Catalog) -> Environment:
        """The same environment with another catalogue."""
        other = self.model_copy()
        other._catalog = catalog
        return other

    @property
    def engines(self) -> tuple[str, ...]:
        """Names of the engines that the environment describes: those it has a section for, or all of them where it has none.

        What it describes must be right; another engine's stack is there where its defaults fit.
        """
        named = tuple(e.name for e in engines.ENGINES.values() if e.section in self.model_fields_set)
        return named or tuple(engines.ENGINES)

    @property
    def release(self) -> NeuronRelease:
        """The Neuron SDK release of its nodes: the one that is set, else the best for its instance types.

        Raises:
            UnknownCatalogEntry: the catalogue does not hold the one that is set.
        """
        return self.catalog.release(self._chosen[0])

    @property
    def framework(self) -> FrameworkChoice:
        """The framework of its nodes: the one that is set, else the best for its instance types."""
        return self._chosen[1]

    @property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The families of the known instance types of each engine."""
        return {name: self._families_of(section) for name, section in self.sections.items()}

    def _families_of(self, section: Section) -> tuple[str, ...]:
        known, types = self.catalog.instances, [node.resource.instance_type for node in section.nodes()]
        return tuple(dict.fromkeys(known[one].family for one in types if one in known))

    @property
    def sections(self) -> Mapping[str, Section]:
        """The section of each engine, by the engine's name."""
        return {"slurm": self.pcluster, "eks": self.eks, "pcs": self.pcs}

    @property
    def slurm_sections(self) -> Mapping[str, SlurmSection]:
        """The sections of the engines that run Slurm, by the engine's name."""
        return {name: section for name, section in self.sections.items() if isinstance(section, SlurmSection)}

    @property
    def node_image(self) -> Ami | None:
        """The EKS image of its node groups: `eks.ami_release`, else the newest known one whose driver is compatible with the
        Neuron release, else the newest known one, on which nodes install `node_driver`.

        None if the catalogue has no image of the date, or of the Kubernetes version: EKS then uses its newest.
        """
        amis = self.catalog.amis(self.kubernetes_version)
        best = best_ami(self.catalog, release=self.release.version, version=self.kubernetes_version)
        return amis.get(self.eks.ami_release or best or max(amis, default=""))

    @property
    def node_driver(self) -> str | None:
        """The version of the Neuron driver that EKS nodes install when they start, where no known image has a compatible one; None =
        they use the image's."""
        if self.eks.ami_release:
            return None
        return boot_driver(self.catalog, release=self.release.version, version=self.kubernetes_version)

    @property
    def _chosen(self) -> tuple[str, FrameworkChoice]:
        sections = [self.sections[name] for name in self.engines]
        active = tuple(one.need(self.catalog, found) for one in sections if (found := self._families_of(one)))
        return choose(self.catalog, active, release=self.bootstrap.neuron_release, framework=self.bootstrap.framework)

    @property
    def cluster_name(self) -> str:
        """Name of the Slurm cluster. It is never the stack's name, because ParallelCluster creates a stack with the
        cluster's name."""
        return self.pcluster.cluster_name or f"{self.name}-slurm"

    @property
    def pcs_cluster_name(self) -> str:
        return self.pcs.cluster_name or f"{self.name}-pcs"

    @property
    def eks_cluster_name(self) -> str:
        return self.eks.cluster_name or f"{self.name}-eks"

    @property
    def parallelcluster_version(self) -> str:
        return self.pcluster.version or self.catalog.parallelcluster.default

    @property
    def kubernetes_version(self) -> str:
        return self.eks.kubernetes(self.catalog)

    @property
    def eks_addons(self) -> dict[str, Addon]:
        """The EKS add-ons that the cluster gets, by name, in the catalogue's order."""
        kinds = [kind for kind, there in (("efs", self.storage.efs), ("fsx", self.storage.fsx)) if there]
        return self.catalog.eks.addons_for(
            kinds,
            node_monitoring=self.eks.plugins.node_monitoring,
            observability=self.eks.observability is not None,
        )

    @property
    def eks_charts(self) -> dict[str, Chart]:
        """The Helm charts that the cluster gets, by name, in the order in which they are installed."""
        known = self.catalog.instances
        efa = any(
            group.instance_type in known and known[group.instance_type].efa_of(group.efa)
            for group in self.eks.node_groups
        )
        plugins = self.eks.plugins
        claims = any(self.eks.claims(group) for group in self.eks.node_groups)
        return self.catalog.eks.charts_for(
            self.eks.mirror.charts.items(), efa=efa, volcano=plugins.volcano, claims=claims
        )

    @property
    def eks_parts(self) -> set[str]:
        """Names of what brings pods to the cluster's nodes: add-ons, charts, and the settings that add pods to those."""
        seen = self.eks.observability
        switches = {**self.eks.plugins.model_dump(), "metrics": seen is not None and seen.metrics}
        return {*self.eks_addons, *self.eks_charts, *(name for name, on in switches.items() if on is True)}

    @property
    def service_cidr(self) -> str | None:
        """The IPv4 network of the EKS cluster's services: the one that is set, else the first that overlaps neither the VPC nor
        a peered network. None if every candidate overlaps."""
        peers = itertools.chain.from_iterable(peer.known_networks for peer in self.network.peerings)
        taken = [*map(IPv4Network, self.network.vpc_cidrs), *peers]
        private = (IPv4Network(n).subnets(new_prefix=16) for n in ("10.0.0.0/8", "172.16.0.0/12"))
        choices = [*map(IPv4Network, SERVICE_NETWORKS), *itertools.chain.from_iterable(private)]
        free = (str(c) for c in choices if not any(c.overlaps(t) for t in taken))
        return self.eks.service_cidr or next(free, None)
