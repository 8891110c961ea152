"""The settings that a gateway process takes from its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.data_folder.home import Home
from tidegate.cli.processes.gateway_server import durable_settings
from tidegate.cli.profile import Profile
from tidegate.cli.profile.webhooks import WebhookProfile
from tidegate.delivery.push.context import PushSettings
from tidegate.gateway.transports.webhook import WebhookSettings


def test_webhooks_of_the_profile_change_only_what_they_state(tmp_path: Path) -> None:
    embedded = durable_settings(Home(tmp_path), private=False)
    assert (embedded.push, embedded.webhooks) == (PushSettings(), WebhookSettings())
    webhooks = WebhookProfile(timeout_s=30.0, first_retry_s=1.0, max_retry_s=60.0, max_attempts=5)
    settings = durable_settings(Home(tmp_path, Profile(webhooks=webhooks)), private=False)
    assert settings.push == PushSettings(first_retry_s=1.0, max_retry_s=60.0, max_attempts=5)
    assert settings.webhooks == WebhookSettings(timeout_s=30.0)


def test_first_delay_above_the_default_maximum_raises_the_maximum(tmp_path: Path) -> None:
    home = Home(tmp_path, Profile(webhooks=WebhookProfile(first_retry_s=7_200.0)))
    push = durable_settings(home, private=False).push
    assert (push.first_retry_s, push.max_retry_s) == (7_200.0, 7_200.0)


@pytest.mark.parametrize(("private", "profile"), [(True, False), (False, True), (True, True)])
def test_private_addresses_are_allowed_by_the_option_or_the_profile(
    tmp_path: Path, private: bool, profile: bool
) -> None:
    home = Home(tmp_path, Profile(webhooks=WebhookProfile(allow_private=profile)))
    assert durable_settings(home, private=private).webhooks.allow_private
