"""Definitions of streams and services: their Python values, their YAML form, and their checks.

Runs nothing: `pipelines` compiles and runs definitions, `registry` stores them.
"""

from tidegate.services.check import check, stream_schemas
from tidegate.services.definitions import Definitions, Service, Stream
from tidegate.services.document import from_dict, load, load_texts, loads
from tidegate.services.schema_inference import Shape, output_schema, schema_after, shape
from tidegate.services.writing import to_dict

__all__ = [
    "Definitions",
    "Service",
    "Shape",
    "Stream",
    "check",
    "from_dict",
    "load",
    "load_texts",
    "loads",
    "output_schema",
    "schema_after",
    "shape",
    "stream_schemas",
    "to_dict",
]
