"""The history of a service as data: Arrow, pandas, or a Parquet file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO

from tidegate.client import arrow
from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.requests.request import ApiRequest
from tidegate.client.values import HistoryFormat

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class AsyncHistory:
    """The events of a service in a span of time. Each method sends a new request.

    Events are in the order of the log. Besides the attributes there are the columns `_id`, `_time`, and `_more`: a JSON
    object of values that do not fit the current schema. `batches` and `to_parquet` use bounded memory: the response is
    written to a file, in the folder for temporary files or that of the Parquet file. The methods raise ClientError.
    """

    def __init__(self, connection: AsyncGatewayConnection, request: Callable[[HistoryFormat], ApiRequest]) -> None:
        """`request` returns the request for a format."""
        self._connection, self._request = connection, request

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the events as record batches of Arrow, after all of them have arrived."""
        async with self._downloaded() as file:
            for batch in arrow.read_batches(file):
                yield batch

    async def to_arrow(self) -> pa.Table:
        """Return all events as a table of Arrow."""
        async with self._downloaded() as file:
            return arrow.read_table(file)

    async def to_pandas(self) -> pd.DataFrame:
        """Return all events as a DataFrame."""
        return (await self.to_arrow()).to_pandas()

    async def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write all events to a Parquet file, and return its path. The file appears when it is complete."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.part")
        try:
            with partial.open("wb") as file:
                await self._connection.download(self._request("parquet"), file)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return target

    @asynccontextmanager
    async def _downloaded(self) -> AsyncIterator[BinaryIO]:
        arrow.need_pyarrow()
        with TemporaryFile(prefix="tidegate-history-") as file:
            await self._connection.download(self._request("arrow"), file)
            file.seek(0)
            yield file
