"""The key `webhooks` of a profile."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tidegate.cli.profile.webhooks import WebhookProfile, read_webhooks
from tidegate.errors import EnvironmentProblem


def read(text: str) -> WebhookProfile:
    return read_webhooks(yaml.safe_load(text), "p.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", WebhookProfile()),
        ("{}", WebhookProfile()),
        ("{allow_private: true}", WebhookProfile(allow_private=True)),
        ("{timeout: 30s}", WebhookProfile(timeout_s=30.0)),
        ("{retry: {first: 500ms, max: 10m, attempts: 3}}", WebhookProfile(False, None, 0.5, 600.0, 3)),
        ("{retry: {attempts: 1000}, timeout: 5m}", WebhookProfile(timeout_s=300.0, max_attempts=1_000)),
    ],
)
def test_settings_are_read(text: str, expected: WebhookProfile) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "p.yaml: webhooks: expected a map with allow_private, timeout, retry, not []"),
        ("{allow_private: 1}", "p.yaml: webhooks.allow_private: expected true or false, not 1"),
        ("{retries: 3}", "p.yaml: webhooks: unknown key 'retries'; did you mean 'retry'?"),
        ("{timeout: 1h}", "p.yaml: webhooks.timeout: expected at most 5m, not '1h'"),
        (
            "{retry: {first: 2}}",
            "p.yaml: webhooks.retry.first: expected a length of time such as 10s, at least 100ms, not 2",
        ),
        (
            "{retry: {max: 1ms}}",
            "p.yaml: webhooks.retry.max: expected a length of time such as 10s, at least 100ms, not '1ms'",
        ),
        ("{retry: {first: 1m, max: 10s}}", "p.yaml: webhooks.retry.max: expected at least first, 1m, not '10s'"),
        (
            "{retry: {attempts: true}}",
            "p.yaml: webhooks.retry.attempts: expected a whole number from 1 to 1,000, not True",
        ),
        (
            "{retry: {attempts: 0}}",
            "p.yaml: webhooks.retry.attempts: expected a whole number from 1 to 1,000, not 0",
        ),
        ("{retry: 3}", "p.yaml: webhooks.retry: expected a map with first, max, attempts, not 3"),
    ],
)
def test_invalid_setting_is_refused_with_key_and_value(text: str, message: Any) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        read(text)
    assert str(caught.value) == message
