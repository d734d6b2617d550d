"""What Trainium is: instance types, Neuron releases, prices, published throughput; each with its source and date.

No AWS and no CDK in here.

>>> from trainium_cdk.catalog import Catalog
>>> Catalog.load().instance("trn1.32xlarge").efa_interfaces
8
"""

from trainium_cdk.catalog.lookup import Catalog, CatalogOverrides, UnknownFact
from trainium_cdk.catalog.models import (
    Framework,
    InstanceType,
    NeuronRelease,
    Nvme,
    OperatingSystem,
    ParallelClusterFacts,
    Purchase,
    Repositories,
    ThroughputPoint,
)

__all__ = [
    "Catalog",
    "CatalogOverrides",
    "Framework",
    "InstanceType",
    "NeuronRelease",
    "Nvme",
    "OperatingSystem",
    "ParallelClusterFacts",
    "Purchase",
    "Repositories",
    "ThroughputPoint",
    "UnknownFact",
]
