"""A smoke test that takes minutes: Neuron devices, driver and runtime, EFA, and an all-reduce over all nodes with nccom-test.

Sources: Neuron documentation, NCCOM-TEST and Neuron LS user guides (aws-neuron-sdk 81ce03ae, 2026-08-21); how AWS runs nccom-test over
several nodes (awsome-distributed-training, micro-benchmarks/nccom-tests; aws-k8s-tester, test/cases/neuron); 2026-11.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from trainium_cdk.client.jobs import sent, words
from trainium_cdk.client.jobs.models import Job, Upstream
from trainium_cdk.client.jobs.plan import Plan
from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Place, Program

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Fleet

SLOW = 0.75
"""A bandwidth below this fraction of the published one fails: as much as remains without two of eight EFA interfaces."""
_PROGRAM = "nccom.py"


class Nccom(Job):
    """A smoke test of the nodes of a queue. Its last lines report what is broken, and on which node."""

    TITLE: ClassVar[str] = "smoke test: devices, driver, EFA, and an all-reduce over all nodes, in minutes"
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ()
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "", "", "nccom-test, neuron-ls", "aws-neuronx-tools of the Neuron SDK"
    )
    RESTARTS: ClassVar[bool] = False
    CHECKS_VERSIONS: ClassVar[bool] = False

    kind: Literal["nccom"] = "nccom"
    precompile: bool = Field(default=False, description="Not supported: nccom-test compiles nothing.")
    min_bandwidth: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Bus bandwidth of the all-reduce below which the test fails, GB/s. Default: three quarters of the value published "
        "for the same test; no limit if none is published.",
    )

    def batch(self, fleet: "Fleet", notes: list[str]) -> None:
        from trainium_cdk.description.catalog import Catalog

        point = Catalog.load().collective(fleet.instance_type, self.nodes)
        if point is None:
            notes.append(
                f"no bus bandwidth is published for {self.nodes} x {fleet.instance_type}: the test reports what it measures"
                + ("" if self.min_bandwidth else ". Give --min-bandwidth to set a limit")
            )

    def check(self, plan: Plan) -> None:
        if self.precompile:
            raise JobError(
                f"{self.kind} cannot precompile: nccom-test compiles nothing. Submit it without --precompile"
            )

    def program(self, plan: Plan) -> Program:
        # a folder for each run: the reports of an earlier one mean nothing
        reports = (words.JOB, "/state/nccom.", Place("run"))
        settings = json.dumps(self._settings(plan))
        started = ("python3", (words.FILES, f"/{_PROGRAM}"), reports, settings, (Place("problem"),))
        return Program(started, (words.JOB, "/work"))

    def files(self, plan: Plan) -> Mapping[str, bytes]:
        return {_PROGRAM: sent.read(_PROGRAM)}

    def _settings(self, plan: Plan) -> dict[str, object]:
        """Return the devices and the bandwidth that the nodes should have: `nccom.Settings`."""
        from trainium_cdk.description.catalog import Catalog

        fleet = plan.fleet
        point = None if self.devices else Catalog.load().collective(fleet.instance_type, self.nodes)
        settings: dict[str, object] = {"devices": fleet.devices, "cores": fleet.cores, "efa": fleet.efa}
        if point:
            settings |= {"published": point.bus_gb_per_second, "source": f"{point.source}, {point.date}"}
        least = self.min_bandwidth or (round(SLOW * point.bus_gb_per_second, 1) if point else None)
        if least:
            settings["least"] = least
        return settings


KIND = Nccom
