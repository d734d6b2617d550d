"""What Trainium is: instance types, Neuron releases, prices, published throughput; each with its source and date.

No AWS and no CDK in here.

>>> from trainium_cdk.catalog import Catalog
>>> Catalog.load().instance("trn1.32xlarge").efa_interfaces
8
"""

from trainium_cdk.catalog.lookup import Catalog, CatalogOverrides
from trainium_cdk.catalog.models import (
    Framework,
    FrameworkName,
    InstanceType,
    NeuronRelease,
    Nvme,
    OperatingSystem,
    ParallelClusterFacts,
    Purchase,
    Repositories,
    ThroughputPoint,
    Words,
)
from trainium_cdk.catalog.stack import Need, Stack, Verdict, best_ami, choose, judge, nearest, python_of
from trainium_cdk.errors import UnknownCatalogEntry

__all__ = [
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
    "Purchase",
    "Repositories",
    "Stack",
    "ThroughputPoint",
    "UnknownCatalogEntry",
    "Verdict",
    "Words",
    "best_ami",
    "choose",
    "judge",
    "nearest",
    "python_of",
]
