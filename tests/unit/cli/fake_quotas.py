"""The part of the fake admin client that is about quotas."""

from __future__ import annotations

from typing import Any

from strandline.client.quotas import QuotaOwner


class FakeQuotaAdmin:
    """Tells `settings["quotas there are"]` of its cluster, keeps what it is asked for in `settings`, too, and
    raises what that has as "quotas fail"."""

    cluster: Any

    def describe_quotas(self, owner: QuotaOwner) -> dict[QuotaOwner, dict[str, float]]:
        self._fail()
        self.cluster.settings["asked about"] = owner
        found: dict[QuotaOwner, dict[str, float]] = self.cluster.settings.get("quotas there are", {})
        return found

    def alter_quotas(self, owner: QuotaOwner, changes: dict[str, float | None], *, validate_only: bool) -> None:
        self._fail()
        self.cluster.settings["quotas"] = (owner, changes, validate_only)

    def was_reached(self) -> bool:
        return bool(self.cluster.settings["was reached"])

    def _fail(self) -> None:
        if (failure := self.cluster.settings.get("quotas fail")) is not None:
            raise failure
