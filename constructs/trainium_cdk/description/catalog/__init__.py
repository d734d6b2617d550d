"""The catalogue of Trainium facts: instance types, Neuron releases, prices, published bandwidth, each with source and
date.

Nothing in this package imports the AWS SDK or the CDK.

>>> from trainium_cdk.description.catalog import Catalog
>>> Catalog.load().instance("trn1.32xlarge").efa_interfaces
8
"""

from __future__ import annotations

from trainium_cdk.description.catalog.lookup import Catalog as Catalog
from trainium_cdk.description.catalog.lookup import CatalogOverrides as CatalogOverrides
from trainium_cdk.description.catalog.lookup import device_counters as device_counters
from trainium_cdk.description.catalog.models import CapacityType as CapacityType
from trainium_cdk.description.catalog.models import Framework as Framework
from trainium_cdk.description.catalog.models import InstanceType as InstanceType
from trainium_cdk.description.catalog.models import NeuronRelease as NeuronRelease
from trainium_cdk.description.catalog.stack import Need as Need
from trainium_cdk.description.catalog.stack import Stack as Stack
from trainium_cdk.description.catalog.stack import best_ami as best_ami
from trainium_cdk.description.catalog.stack import boot_driver as boot_driver
from trainium_cdk.description.catalog.stack import choose as choose
from trainium_cdk.description.catalog.stack import driver_fits as driver_fits
from trainium_cdk.description.catalog.stack import evaluate as evaluate
from trainium_cdk.description.catalog.stack import nearest as nearest
from trainium_cdk.description.catalog.stack import python_of as python_of
