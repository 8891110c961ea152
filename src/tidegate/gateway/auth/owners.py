"""The owner of a durable subscription, and the rights it is delivered with while the owner is not connected."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.settings import WEBHOOK_LIFETIME_S, AccessSettings
from tidegate.model import timestamps
from tidegate.subscriptions import Grant, SubscriptionRecord

KEY_ID = "key_"
"""The start of every API key's id."""


def grant_of(caller: Caller, settings: AccessSettings, now: datetime) -> Grant | None:
    """Return what a caller may see now, for a limited time; None for API keys, which are looked up instead."""
    if caller.id is None or caller.id.startswith(KEY_ID):
        return None
    lifetime_s = WEBHOOK_LIFETIME_S if settings.oidc is None else settings.oidc.webhook_lifetime_s
    expires_at = now + timedelta(seconds=WEBHOOK_LIFETIME_S if lifetime_s is None else lifetime_s)
    if lifetime_s is None and caller.expires_at is not None:
        expires_at = caller.expires_at
    groups = tuple(sorted(caller.groups))
    return Grant(caller.name, caller.role, caller.services, groups, timestamps.from_datetime(expires_at))


def renewed(record: SubscriptionRecord, caller: Caller, settings: AccessSettings, now: datetime) -> SubscriptionRecord:
    """Return a record with the current rights of a caller if they own it; otherwise the record as it was."""
    return replace(record, grant=grant_of(caller, settings, now)) if is_owner(caller, record) else record


def is_owner(caller: Caller, record: SubscriptionRecord) -> bool:
    """True if a caller owns a subscription. Callers without credentials own nothing."""
    return caller.id is not None and record.owner == caller.id
