"""The documents of API keys as JSON schemas."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from tidegate.gateway.describe.json_schema import DURATION, MOMENT, TEXT, Schema, array, or_null, record, ref
from tidegate.gateway.settings import RATES, Quotas
from tidegate.registry import Role
from tidegate.registry.keys import MAX_NAME

_LENGTH: Schema = {**TEXT, "pattern": DURATION}
_NAMES: Schema = array({"type": "string", "minLength": 1, "maxLength": 128}, maxItems=1_000)
_QUOTAS: Schema = {
    "type": "object",
    "properties": {
        field.name: {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2**53}
        if field.name in RATES
        else {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
        for field in fields(Quotas)
    },
    "additionalProperties": False,
}
_KEY: Schema = {
    "id": TEXT,
    "name": TEXT,
    "role": {"enum": list(get_args(Role))},
    "services": {**or_null(array(TEXT)), "description": "The services and streams that it is for; null: all."},
    "quotas": {"type": "object", "additionalProperties": {"type": "number"}},
    "prefix": {**TEXT, "description": "The part of the secret that may be shown: `tg_PREFIX_...`."},
    "created_at": MOMENT,
    "expires_at": or_null(MOMENT),
    "revoked_at": or_null(MOMENT),
    "previous_until": {**or_null(MOMENT), "description": "Until when the secret before the last rotation holds."},
    "last_used_at": or_null(MOMENT),
    "last_used_from": {**or_null(TEXT), "description": "The address that it was last used from."},
    "state": {"enum": ["good", "expired", "revoked"]},
}
_SECRET: Schema = {**TEXT, "description": "Shown this once."}

KEY_SCHEMAS: dict[str, Schema] = {
    "Key": record(_KEY),
    "Keys": record({"keys": array(ref("Key"))}),
    "NewKey": record({**_KEY, "secret": _SECRET}),
    "KeyRequest": record(
        {
            "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
            "role": {"enum": [*get_args(Role), None]},
            "services": or_null(_NAMES),
            "streams": {**or_null(_NAMES), "description": "The same as `services`, for those who append."},
            "expires": or_null(_LENGTH),
            "quotas": or_null(_QUOTAS),
        },
        optional=("role", "services", "streams", "expires", "quotas"),
        closed=True,
    ),
    "RotateRequest": record(
        {"overlap": or_null(_LENGTH), "expires": or_null(_LENGTH)}, optional=("overlap", "expires"), closed=True
    ),
}
