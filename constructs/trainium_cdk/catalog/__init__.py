"""The catalogue of Trainium facts: instance types, Neuron releases, prices, published throughput, each with source and
date.

Nothing in this package imports the AWS SDK or the CDK.

>>> from trainium_cdk.catalog import Catalog
>>> Catalog.load().instance("trn1.32xlarge").efa_interfaces
8
"""

from trainium_cdk.catalog.lookup import Catalog, CatalogOverrides
from trainium_cdk.catalog.models import (
    CapacityType,
    Framework,
    FrameworkName,
    InstanceType,
    NeuronRelease,
    Nvme,
    OperatingSystem,
    ParallelClusterFacts,
    Repositories,
    Statement,
    ThroughputPoint,
)
from trainium_cdk.catalog.stack import Need, Stack, Verdict, best_ami, choose, evaluate, nearest, python_of
from trainium_cdk.errors import UnknownCatalogEntry

__all__ = [
    "CapacityType",
    "Catalog",
    "CatalogOverrides",
    "Framework",
    "FrameworkName",
    "InstanceType",
    "Need",
    "NeuronRelease",
    "Nvme",
    "OperatingSystem",
    "ParallelClusterFacts",
    "Repositories",
    "Stack",
    "Statement",
    "ThroughputPoint",
    "UnknownCatalogEntry",
    "Verdict",
    "best_ami",
    "choose",
    "evaluate",
    "nearest",
    "python_of",
]
