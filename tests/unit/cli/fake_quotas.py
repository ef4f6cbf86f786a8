"""The part of the fake admin client that is about quotas."""

from __future__ import annotations

from typing import Any

from strandline.client.quotas import QuotaOwner


class FakeQuotaAdmin:
    """Tells `settings["quotas there are"]` of its cluster, and keeps what it is asked for in `settings`, too."""

    cluster: Any

    def describe_quotas(self, owner: QuotaOwner) -> dict[QuotaOwner, dict[str, float]]:
        self.cluster.settings["asked about"] = owner
        found: dict[QuotaOwner, dict[str, float]] = self.cluster.settings.get("quotas there are", {})
        return found

    def alter_quotas(self, owner: QuotaOwner, changes: dict[str, float | None], *, validate_only: bool) -> None:
        self.cluster.settings["quotas"] = (owner, changes, validate_only)
