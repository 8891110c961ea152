"""The model of an event: types, schemas, ids and times.

Values only: nothing here reads a file, a clock or the network.
"""

from tidegate.model.schema import Schema
from tidegate.model.service_names import ServiceName
from tidegate.model.types import Array, Enum, Field, Optional, Scalar, Struct, Type

__all__ = ["Array", "Enum", "Field", "Optional", "Scalar", "Schema", "ServiceName", "Struct", "Type"]
